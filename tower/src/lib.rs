#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod attributes;
mod charged;
mod decide;
pub mod fields;
mod future;
pub mod key;
mod layer;
pub mod reject;
mod service;
mod settings;
#[cfg(feature = "signals")]
pub mod signals;

pub use charged::Charged;
pub use decide::{ByRules, OneLimiter};
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use reject::{Reject, Rejection};
pub use service::RateLimit;
