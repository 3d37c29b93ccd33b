#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

// The way of a request.
mod client;

mod limiter;

mod limiters;

mod rate;

mod queue;

mod backend;

mod script;

mod window;

// What they speak in.
mod clock;
mod decision;
mod error;
mod keys;
mod permit;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

pub use backend::memory::MemoryStore;
pub use backend::{State, TimeToLive};
pub use client::{RedissonClient, RedissonClientBuilder};
pub use clock::Clock;
pub use decision::{Decision, Grant};
pub use error::{Error, Result};
pub use limiter::{RRateLimiter, RateLimiter};
pub use limiters::{
    FixedWindow, JointDecision, KeyedRateLimiter, LeakyBucket, Limiter, PenaltyTokenBucket, Policy,
    PolicyLimiter, QuotaBucket, Rule, Rules, Share, SlidingLog, SlidingWindow, TokenBucket,
    Verdict,
};
pub use rate::{Rate, RateType};

// So that its examples are tested.
#[cfg(doctest)]
#[doc = include_str!("../docs/which-limiter.md")]
struct WhichLimiter;
