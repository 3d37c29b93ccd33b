//! For the tests of services: with the feature `test-util`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::decision::{Decision, Denied, Granted};
use crate::error::{Error, Result};
use crate::limiters::Limiter;

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
#[derive(Debug, Clone, Default)]
pub struct TestLimiter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    answer: Answer,
    /// The requests for each key, and the costs that were granted.
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

    /// The costs of the requests for a key that were granted.
    #[must_use]
    pub fn charged(&self, key: &str) -> u64 {
        self.state().keys.get(key).map_or(0, |it| it.1)
    }

    fn answer(&self, answer: Answer) {
        self.state().answer = answer;
        self.0.changed.notify_waiters();
    }

    /// Each step leaves it whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Limiter for TestLimiter {
    fn name(&self) -> &str {
        "test"
    }

    async fn check(&self, key: &str, cost: u32) -> Result<Decision> {
        self.state().keys.entry(key.to_owned()).or_default().0 += 1;
        loop {
            let changed = self.0.changed.notified();
            {
                let mut state = self.state();
                match state.answer.clone() {
                    Answer::Grant => {
                        state.keys.entry(key.to_owned()).or_default().1 += u64::from(cost);
                        return Ok(Granted::new(cost).into());
                    }
                    Answer::Deny(retry_after) => return Ok(Denied::new(retry_after).into()),
                    Answer::Fail(error) => return Err(error),
                    Answer::Stall => {}
                }
            }
            changed.await;
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
}
