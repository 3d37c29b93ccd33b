//! Redisson and this crate on one server. One behaviour a file; one binary, so that all share a JVM a version.

mod a_passed_clock_decides;
mod a_spoiled_limiter_works_again;
mod both_count_the_same_permits;
mod combined_calls_are_readable_by_redisson;
mod each_client_sees_what_the_other_left;
mod keyed_and_joint_limiters_are_shared;
mod limiters_on_a_cluster_are_shared;
mod random_steps_have_the_same_effect;
