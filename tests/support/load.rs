//! Parties that take permits, and record what they have used: from time to time fewer than there
//! are, so that some are leased, and more than there are when the test says so.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::RateLimiter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::uses::Uses;

type Granted = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Someone who takes permits.
pub struct Party {
    try_acquire: Box<dyn Fn() -> Granted + Send + Sync>,
    pub uses: Uses,
}

impl Party {
    /// A party that takes a permit by calling this.
    pub fn by<F>(try_acquire: impl Fn() -> F + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Arc::new(Self {
            try_acquire: Box::new(move || Box::pin(try_acquire())),
            uses: Uses::default(),
        })
    }

    pub fn with(limiter: RateLimiter) -> Arc<Self> {
        Self::by(move || {
            let limiter = limiter.clone();
            async move { limiter.try_acquire(1).await.unwrap() }
        })
    }

    /// Asks this many times for a permit.
    pub async fn take(&self, times: usize) {
        for _ in 0..times {
            self.uses.note(1, (self.try_acquire)()).await;
        }
    }
}

/// Takers of the parties' permits, until it ends.
pub struct Load {
    takers: JoinSet<()>,
    is_over: watch::Sender<bool>,
}

impl Load {
    /// Each party takes a permit, and pauses.
    pub fn start(parties: &[Arc<Party>], pause: Duration) -> Self {
        let is_over = watch::Sender::new(false);
        let mut takers = JoinSet::new();
        for party in parties {
            let (party, is_over) = (Arc::clone(party), is_over.subscribe());
            takers.spawn(async move {
                while !*is_over.borrow() {
                    party.take(1).await;
                    sleep(pause).await;
                }
            });
        }
        Self { takers, is_over }
    }

    pub async fn end(self) {
        self.is_over.send_replace(true);
        self.takers.join_all().await;
    }
}
