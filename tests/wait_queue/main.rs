//! Many requests at once: batching, waiting, cancellation.

#[path = "../support/by_hand.rs"]
mod by_hand;
#[path = "../support/clients.rs"]
mod clients;
mod in_memory;
mod keyed;
#[path = "../support/keys.rs"]
mod keys;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/silent.rs"]
mod silent;
#[path = "../support/stopped_time.rs"]
mod stopped_time;
#[path = "../support/mod.rs"]
mod support;

mod batching;
mod call_counts;
mod cancellation;
mod idle_runtime;
mod late_polls;
mod leaving;
mod order;
mod random_cancellation;
mod rates_change_while_waiting;
mod response_timeout;
mod shutdown;
mod slow_server;
mod timeouts;
mod wakers;
