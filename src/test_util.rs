//! For the tests of services: with the feature `test-util`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::decision::{Decision, Denied, Granted};
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::limiters::Limiter;
use crate::quota::Quota;

/// A limiter that grants, denies, fails or stalls as a test says, and knows what it was asked: with the feature `test-util`. Cheap to
/// clone; clones are one limiter.
///
/// For a limiter that limits, use a client [in memory](crate::RedissonClient::in_memory).
///
/// ```
/// use redisson_rate_limiter::{Limiter, Result, TestLimiter};
/// use std::time::Duration;
///
/// /// What a test is about.
/// async fn status(limiter: &dyn Limiter, user: &str) -> u16 {
///     match limiter.check(user, 1).await {
///         Ok(decision) if decision.is_granted() => 200,
///         Ok(_) => 429,
///         Err(_) => 503,
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limiter = TestLimiter::new();
/// assert_eq!(status(&limiter, "alice").await, 200);
/// limiter.deny(Duration::from_secs(3));
/// assert_eq!(status(&limiter, "alice").await, 429);
/// limiter.fail(redisson_rate_limiter::Error::Closed);
/// assert_eq!(status(&limiter, "bob").await, 503);
/// limiter.stall();
/// let stalled = tokio::time::timeout(Duration::from_secs(60), status(&limiter, "alice"));
/// assert!(stalled.await.is_err());
/// assert_eq!((limiter.asked("alice"), limiter.charged("alice")), (3, 1));
/// assert_eq!((limiter.asked("bob"), limiter.charged("bob")), (1, 0));
/// # }
/// ```
///
/// A request that was granted can be given back, and with a [quota](Self::with_quota) decisions have what header fields state:
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = TestLimiter::new().with_name("user").with_quota(Quota::new(10, Duration::from_secs(60)));
/// let decision = limiter.check("alice", 3).await?;
/// assert_eq!((decision.limit(), decision.remaining(), limiter.charged("alice")), (10, 7, 3));
/// let grant = decision.into_grant().expect("granted");
/// assert_eq!(limiter.refund("alice", grant).await?, 3);
/// assert_eq!(limiter.charged("alice"), 0);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct TestLimiter {
    shared: Arc<Shared>,
    name: Arc<str>,
    quota: Quota,
}

impl Default for TestLimiter {
    fn default() -> Self {
        Self {
            shared: Arc::default(),
            name: "test".into(),
            quota: Quota::new(0, Duration::ZERO),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    answer: Answer,
    /// The requests for each key, and the costs that were granted and not given back.
    keys: HashMap<String, (u64, u64)>,
}

#[derive(Debug, Clone, Default)]
enum Answer {
    #[default]
    Grant,
    Deny(Duration),
    Fail(Error),
    Stall,
}

impl TestLimiter {
    /// One that grants everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the [name](Limiter::name) of this handle and its clones. Without it, that is `test`.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        let name = name.into().into();
        Self { name, ..self }
    }

    /// Sets the quota that decisions by this handle and its clones state. It limits nothing: what is granted, the test says.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    /// Grants from now on.
    pub fn grant(&self) {
        self.answer(Answer::Grant);
    }

    /// Denies from now on, until `retry_after` at the earliest.
    pub fn deny(&self, retry_after: Duration) {
        self.answer(Answer::Deny(retry_after));
    }

    /// Fails from now on, with this error.
    pub fn fail(&self, error: Error) {
        self.answer(Answer::Fail(error));
    }

    /// Answers no request from now on, until it is told to answer in another way.
    pub fn stall(&self) {
        self.answer(Answer::Stall);
    }

    /// How many requests for a key were made.
    #[must_use]
    pub fn asked(&self, key: &str) -> u64 {
        self.state().keys.get(key).map_or(0, |it| it.0)
    }

    /// The costs of the requests for a key that were granted and not given back.
    #[must_use]
    pub fn charged(&self, key: &str) -> u64 {
        self.state().keys.get(key).map_or(0, |it| it.1)
    }

    fn answer(&self, answer: Answer) {
        self.state().answer = answer;
        self.shared.changed.notify_waiters();
    }

    /// Each step leaves it whole.
    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Limiter for TestLimiter {
    fn name(&self) -> &str {
        &self.name
    }

    async fn check(&self, key: &str, cost: u32) -> Result<Decision> {
        self.state().keys.entry(key.to_owned()).or_default().0 += 1;
        loop {
            let changed = self.shared.changed.notified();
            {
                let mut state = self.state();
                match state.answer.clone() {
                    Answer::Grant => {
                        let (_, charged) = state.keys.entry(key.to_owned()).or_default();
                        *charged += u64::from(cost);
                        let left = self.quota.limit.saturating_sub(*charged);
                        let granted = Granted::new(cost).with_quota(self.quota);
                        return Ok(granted.with_remaining(left).into());
                    }
                    Answer::Deny(retry_after) => {
                        return Ok(Denied::new(retry_after).with_quota(self.quota).into());
                    }
                    Answer::Fail(error) => return Err(error),
                    Answer::Stall => {}
                }
            }
            changed.await;
        }
    }

    async fn refund(&self, key: &str, grant: Grant) -> Result<u32> {
        let mut state = self.state();
        match state.keys.get_mut(key) {
            Some((_, charged)) if grant.begin_refund() => {
                *charged = charged.saturating_sub(u64::from(grant.permits()));
                Ok(grant.permits())
            }
            _ => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stalled_request_gets_the_answer_that_a_test_gives_later() {
        let limiter = TestLimiter::new();
        limiter.stall();
        let asking = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.check("alice", 3).await }
        });
        tokio::task::yield_now().await;
        assert!(!asking.is_finished());
        assert_eq!((limiter.asked("alice"), limiter.charged("alice")), (1, 0));
        limiter.grant();
        assert!(asking.await.unwrap().unwrap().is_granted());
        assert_eq!((limiter.asked("alice"), limiter.charged("alice")), (1, 3));
    }
    #[tokio::test(start_paused = true)]
    async fn a_charge_is_given_back_once_and_settled_by_its_cost() {
        let limiter = TestLimiter::new();
        let granted = async |cost| {
            let decision = limiter.check("alice", cost).await.unwrap();
            decision.into_grant().unwrap()
        };
        let grant = granted(5).await;
        assert_eq!(limiter.refund("alice", grant.clone()).await.unwrap(), 5);
        assert_eq!(limiter.refund("alice", grant).await.unwrap(), 0);
        for (cost, expected) in [(2, 2), (9, 11)] {
            let grant = granted(5).await;
            limiter.settle("alice", grant, cost).await.unwrap();
            assert_eq!(limiter.charged("alice"), expected);
        }
        let grant = granted(1).await;
        assert_eq!(limiter.refund("bob", grant).await.unwrap(), 0);
    }
}
