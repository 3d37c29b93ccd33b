//! The algorithms other than RRateLimiter's, as pure models: numbers, the state of a target and a
//! request in, answer out.
//!
//! A policy, such as [`TokenBucket`](crate::TokenBucket), holds its numbers (`NAME/mod.rs`). Its
//! algorithm exists as a pure model (`NAME/model.rs`) and as a script (`lua/policies/NAME.lua`). A
//! [`PolicyLimiter`](crate::PolicyLimiter) applies it to targets. The path of a request:
//! `PolicyLimiter -> combining -> Store::check -> lua/policies/NAME.lua`.
//!
//! CONTRIBUTING.md says what a new policy needs.
//!
//! ```layers
//! every_kind
//! any_policy reply stored_target
//! call target_keys
//! algorithm
//! fixed_window gcra leaky_bucket penalty_token_bucket quota_bucket shared_rate
//! sliding_window_counter sliding_window_log token_bucket
//! bucket numbers refill
//! model
//! state
//! counters lengths
//! answer arithmetic registry starts
//! ```

#[macro_use]
mod numbers;

pub(crate) mod algorithm;
pub(crate) mod answer;
pub(crate) mod any_policy;
mod arithmetic;
mod bucket;
pub(crate) mod call;
mod counters;
#[cfg(all(test, feature = "redis"))]
mod differential_tests;
#[cfg(all(any(test, fuzzing), feature = "redis"))]
pub(crate) mod every_kind;
#[cfg(all(test, feature = "redis"))]
mod give_back_tests;
#[cfg(all(test, feature = "redis"))]
mod history_tests;
mod lengths;
pub(crate) mod model;
mod refill;
pub(crate) mod reply;
pub(crate) mod shared_rate;
mod starts;
mod state;
pub(crate) mod stored_target;
pub(crate) mod target_keys;

macro_rules! modules {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(
            mod $name;
            pub use $name::$Policy;
        )*
    };
}
policies!(modules! {});
