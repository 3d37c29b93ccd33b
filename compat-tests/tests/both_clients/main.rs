//! Redisson and this crate on one server. One binary, so that all tests share a JVM per version.

mod available_permits;
mod batched_calls;
mod cluster;
mod differential;
mod keyed_and_joint;
mod leases;
mod own_clock;
mod recovery;
mod shared_state;
