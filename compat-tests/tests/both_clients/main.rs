//! Redisson and this crate on one server. One binary, so that all tests share a JVM per version.

#[path = "../../../tests/support/clients.rs"]
mod clients;
#[path = "../../../tests/support/eras.rs"]
mod eras;
#[path = "../../../tests/support/keys.rs"]
mod keys;
#[path = "../../../tests/support/late_settles.rs"]
mod late_settles;
#[path = "../../../tests/support/load.rs"]
mod load;
#[path = "../../../tests/support/parties.rs"]
mod parties;
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
#[path = "../../../tests/support/state.rs"]
mod state;
/// What these files need of the servers.
mod support {
    pub use compat_tests::{Server, without_timeouts};
}
#[path = "../../../tests/support/uses.rs"]
mod uses;

mod available_permits;
mod batched_calls;
mod cluster;
mod differential;
mod hold;
mod keyed_and_joint;
mod leases;
mod own_clock;
mod recovery;
mod shared_state;
mod who_sets_the_rate;
