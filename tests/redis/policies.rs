//! The other algorithms: what their keys hold, and what goes over the wire.

mod batching;
mod cluster_slots;
mod fixed_window;
mod key_names;
mod key_types;
mod leaky_bucket;
mod penalty;
mod penalty_token_bucket;
mod quota_bucket;
mod round_trips;
mod sliding_log;
mod sliding_window;
mod token_bucket;
