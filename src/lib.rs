//! x
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod backend;
mod client;
mod clock;
mod decision;
mod error;
mod keys;
mod limiter;
mod permit;
mod queue;
mod rate;
mod script;
mod window;

pub use backend::memory::MemoryStore;
pub use backend::{State, TimeToLive};
pub use client::{RedissonClient, RedissonClientBuilder};
pub use clock::Clock;
pub use decision::{Decision, Grant};
pub use error::{Error, Result};
pub use limiter::{RRateLimiter, RateLimiter};
pub use rate::{Rate, RateType};
