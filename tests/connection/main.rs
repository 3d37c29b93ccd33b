//! Connections are always replaced: whatever happens to server, network or credentials, calls go on
//! within their response timeout.

#[path = "../support/by_hand.rs"]
mod by_hand;
#[path = "../support/events.rs"]
mod captured_events;
#[path = "../support/clients.rs"]
mod clients;
#[path = "../support/keys.rs"]
mod keys;
mod load;
#[path = "../support/proxy.rs"]
mod proxy;
mod scripted;
mod sentinels;
#[path = "../support/silent.rs"]
mod silent;
#[path = "../support/stopped_time.rs"]
mod stopped_time;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls_server;
#[path = "../support/told.rs"]
mod told;

mod black_hole;
mod cluster;
mod credentials;
mod demoted_primary;
mod events;
mod freed_elsewhere;
mod frozen_connection;
mod idle_close;
mod killed_connections;
mod late_servers;
mod loading;
mod lost_writes;
mod pauses;
mod redirections;
mod runtimes;
mod scripts;
mod sentinel;
mod sentinel_answers;
mod sentinel_login;
mod set_up;
mod slow_connecting;
mod stopped_server;
mod thousand_callers;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_cluster;
#[cfg(feature = "tls")]
mod tls_sentinel;
mod unready_server;
