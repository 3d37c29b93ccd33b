//! The callers that run in this process: of this crate, and of bare scripts.

use std::sync::Arc;

use redis::{Value, aio::ConnectionManager};
use redisson_rate_limiter::{RateLimiter, RedissonClient};

use crate::{callers::Caller, recorded_call::RecordedCall};

pub struct OfThisCrate(pub Arc<[RateLimiter]>);

impl Caller for OfThisCrate {
    async fn is_granted(&mut self, limiter: usize) -> bool {
        let answer = self.0[limiter].try_acquire(1).await;
        answer.expect("a decision of this crate")
    }
}

pub struct OfThisCrateByName(pub RedissonClient, pub Arc<[String]>);

impl Caller for OfThisCrateByName {
    async fn is_granted(&mut self, limiter: usize) -> bool {
        let limiter = self.0.rate_limiter(&self.1[limiter]);
        limiter
            .try_acquire(1)
            .await
            .expect("a decision of this crate")
    }
}

/// Sends one script call for each decision, over a connection of the type that this crate has.
pub struct OfScript {
    pub connection: ConnectionManager,
    pub call: Arc<RecordedCall>,
    /// Of each limiter.
    pub keys: Arc<[Vec<String>]>,
    pub rate: u64,
    /// Names this caller's calls.
    pub caller: u64,
    pub calls: u64,
}

impl Caller for OfScript {
    async fn is_granted(&mut self, limiter: usize) -> bool {
        self.calls += 1;
        let mut random = [0; 16];
        random[..8].copy_from_slice(&self.caller.to_le_bytes());
        random[8..].copy_from_slice(&self.calls.to_le_bytes());
        let command = self.call.command(&self.keys[limiter], random, self.rate);
        let answer: Value = command
            .query_async(&mut self.connection)
            .await
            .expect("an answer of the script");
        self.call.is_granted(&answer)
    }
}
