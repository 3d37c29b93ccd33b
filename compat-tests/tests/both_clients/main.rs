//! Redisson and this crate on one server. One behaviour a file; one binary, so that all share a JVM a version.

mod available_permits;
mod batched_calls;
mod cluster;
mod differential;
mod keyed_and_joint;
mod own_clock;
mod recovery;
mod shared_state;
