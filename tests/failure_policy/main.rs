//! What requests get while Redis is down: each policy, each kind of limiter and each form of
//! request, on a server that is killed, stopped, refuses or does not answer.

#[path = "../support/events.rs"]
mod events;
#[path = "../support/every_policy.rs"]
mod every_policy;
mod fixture;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/told.rs"]
mod told;

mod away_and_back;
mod before_a_server;
mod breaker;
mod each_limiter;
mod emptied_server;
mod health;
mod many_callers;
mod mistakes;
mod nodes;
mod on_event;
mod runtimes;
