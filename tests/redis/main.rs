//! What only a Redis server shows: the keys, calls and retries, and errors.

#[path = "../support/bad_state.rs"]
mod bad_state;
#[path = "../support/by_hand.rs"]
mod by_hand;
#[path = "../support/clients.rs"]
mod clients;
#[path = "../support/events.rs"]
mod events;
mod every_method;
#[path = "../support/every_policy.rs"]
mod every_policy;
mod fixture;
mod key_expiry;
#[path = "../support/keys.rs"]
mod keys;
#[path = "../support/monitor.rs"]
mod monitor;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/stopped_time.rs"]
mod stopped_time;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/told.rs"]
mod told;

mod acl_rule;
mod arguments;
mod attempt_deadlines;
mod audits;
mod bounded_calls;
mod call_deadlines;
mod clock_skew;
mod closing;
mod cluster_names;
mod commands;
mod corrupt_keys;
mod exactly_once;
mod freed_elsewhere;
mod full_server;
mod key_format;
mod large_audits;
mod large_limiters;
mod managed_servers;
mod missing_server;
mod multi_acquire;
mod multi_check;
mod on_event;
mod one_server;
mod permissions;
mod policies;
mod reads;
mod remembered_denials;
mod reservations;
mod round_trips;
mod rules;
mod secrets;
mod server_restart;
mod server_time;
mod supplied_connection;
mod time_to_live;
