//! The connection always comes back: whatever happens to server, network or credentials, calls go on within their
//! response timeout.

#[path = "../support/by_hand.rs"]
mod by_hand;
mod load;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/silent.rs"]
mod silent;
#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod credentials;
mod demoted_primary;
mod events;
mod frozen_connection;
mod idle_close;
mod killed_connections;
mod runtimes;
mod scripts;
mod sentinel;
mod stopped_server;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod unready_server;
