#![cfg_attr(all(doc, not(doctest)), doc = include_str!("guide/links.txt"))]
#![cfg_attr(all(doc, not(doctest)), doc = include_str!("guide/pictures.txt"))]
#![cfg_attr(
    any(feature = "redis", not(doctest)),
    doc = include_str!("../README.md")
)]
//! # Cargo features
//!
//! | feature | adds |
//! |---|---|
//! | `redis`, on by default | limiters in Redis: [`RedissonClient::connect`], the builder's settings for it, `Credentials`. Without it, no redis crate is compiled, clients are [in memory](RedissonClient::in_memory), and `connect` fails |
//! | `cluster` | Redis Cluster; implies `redis` |
//! | `tls` | `rediss://` URLs and `TlsConfig`; implies `redis` |
//! | `serde` | `Serialize` and `Deserialize` for [`Rate`], the policies, [`AnyPolicy`] and [`FailurePolicy`], and `RulesConfig` |
//! | `toml`, `yaml` | rules from text and files: `RulesConfig::from_file`; both imply `serde` |
//! | `test-util` | for tests: a clock that `MemoryStore::advance` moves, and a store's `Faults` |
#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[macro_use]
#[path = "policies/registry.rs"]
mod registry;

#[cfg(feature = "serde")]
#[macro_use]
mod fields;

// The way of a request: each imports only from those below it.
mod client;

mod limiters;

mod fallback;

mod leases;

mod queue;

mod batch;

mod denials;

mod store;

// The way to a server, which knows no limiter.
#[cfg(feature = "redis")]
mod link;

#[cfg_attr(
    not(any(feature = "redis", feature = "test-util", test)),
    expect(dead_code, reason = "a store in memory is never unavailable")
)]
mod breaker;

// The algorithms, without a server, a clock or a queue.
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only a store on Redis sends and reads it")
)]
mod policies;

#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only a store on Redis sends and reads it")
)]
mod window;

// Words that all of them use.
mod backoff;
mod box_future;
mod client_state;
mod clock;
mod decision;
mod error;
mod escaped;
mod event;
mod failure_policy;
mod grant;
mod health;
mod keys;
mod limiter_options;
mod lock;
mod name_hash;
mod permit;
mod quota;
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "only a store on Redis sends and reads it")
)]
mod rate;
mod same_runtime;
#[cfg(feature = "serde")]
mod serialization;

#[cfg(all(doc, any(feature = "redis", not(doctest))))]
pub mod guide;

#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub mod fuzzing;

#[cfg(all(test, feature = "redis"))]
mod client_vectors;
#[cfg(test)]
mod interleaving;
#[cfg(test)]
mod random_cases;

#[cfg(all(test, feature = "redis"))]
#[path = "../tests/support/pretty_json.rs"]
mod pretty_json;
#[cfg(all(test, feature = "redis"))]
#[path = "../tests/support/mod.rs"]
mod support;

pub use box_future::BoxFuture;
pub use client::{RedissonClient, RedissonClientBuilder};
#[cfg(feature = "redis")]
pub use client::{Reply, Server};
pub use clock::Clock;
pub use decision::{Decision, DecisionSource, Denied, Granted};
pub use error::{Error, ErrorKind, Result};
pub use event::{AskedLimiter, Event, RequestResult};
pub use failure_policy::{FailurePolicy, LocalShare};
pub use grant::Grant;
pub use health::{BreakerState, Health, ServerHealth};
pub use limiter_options::LimiterOptions;
pub use limiters::{
    Attributes, Charge, Chargeable, Ending, Job, JointDecision, KeyedRateLimiter, Lease, Limiter,
    Plan, PolicyLimiter, RateLimiter, Reservation, Rule, Rules, RulesChange, RulesGrant, Verdict,
    Worker,
};
#[cfg(feature = "serde")]
pub use limiters::{RuleConfig, RuleCost, RuleLimit, RulesConfig};
#[cfg(feature = "redis")]
pub use link::Credentials;
#[cfg(feature = "tls")]
pub use link::TlsConfig;
pub use policies::any_policy::{AnyPolicy, Policy};
pub use quota::Quota;
pub use rate::{Rate, RateType};
#[cfg(any(feature = "test-util", test))]
pub use store::memory::Faults;
pub use store::memory::MemoryStore;
pub use store::{PermitsInUse, TimeToLive};

macro_rules! exports {
    ([] $($name:ident: $Policy:ident,)*) => {
        pub use policies::{$($Policy,)*};
    };
}
policies!(exports! {});
