//! Faults of a store in memory, which tests switch on and off: what an application sees of a Redis
//! that is lost, silent or used up by others.
//!
//! To a client with faults the store is a distant one: requests take the same path as those to
//! Redis, through the failure policy, the queues and the circuit breaker. Each call then waits in
//! [`Faults::reached`] before it reaches the limiters, where it is executed and answered in one
//! step. So no call takes permits that its caller does not learn of. Calls reach the limiters in
//! the order in which they were made, as calls over a connection do.

mod denial;
mod limiter;
#[cfg(test)]
mod network_tests;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::breaker::Breaker;
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::store::OnFreed;
use denial::Denial;
#[cfg(test)]
pub(crate) use network_tests::{Loss, Network};
pub(crate) use store::FaultyStore;

/// Switches for tests, with the feature `test-util`, that make the store of some clients fail,
/// stall or deny: of those that were made [with
/// them](crate::RedissonClientBuilder::in_memory_with_faults). Clones are the same switches.
///
/// Each method replaces what was switched on before. It applies to all calls of the client: by
/// limiters of any kind, rules and joint decisions, by waiting requests, and to set or read a
/// limiter's state.
///
/// ```
/// use redisson_rate_limiter::{FailurePolicy, Faults, FixedWindow, LimiterOptions, MemoryStore, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let faults = Faults::new();
/// let client = RedissonClient::builder()
///     .default_options(LimiterOptions::new().failure_policy(FailurePolicy::Allow))
///     .in_memory_with_faults(&MemoryStore::new(), &faults);
/// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
/// assert!(!logins.check("alice", 1).await?.is_by_failure_policy());
/// faults.lose_store();
/// assert!(logins.check("alice", 1).await?.is_by_failure_policy());
/// faults.end();
/// assert!(!logins.check("alice", 1).await?.is_granted());
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Faults(Arc<Switches>);

#[derive(Default)]
struct Switches {
    fault: Lock<Fault>,
    /// Wakes waiting calls, in the order in which they came.
    changed: Notify,
    /// The circuit breakers of the clients, which open when the store is lost.
    breakers: Lock<Vec<Weak<Breaker>>>,
    /// Called when a denial ends, for waiting requests.
    waiting: Lock<Vec<Weak<OnFreed>>>,
    #[cfg(test)]
    network: Network,
}

#[derive(Default)]
enum Fault {
    #[default]
    None,
    Lost,
    Stalled,
    Denies(Arc<Denial>),
}

impl Faults {
    /// Switches that are off.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &Faults::new());
    /// assert!(client.health().is_healthy());
    /// client.ping().await
    /// # }
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the clients lose their connection to the store, and fail to make another one: their
    /// circuit breakers open, and failure policies decide. Calls that are under way, and calls that
    /// may wait for the store, end at their response timeout.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let faults = Faults::new();
    /// let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &faults);
    /// let orders = client.rate_limiter("orders").with_rate(Rate::overall(1, Duration::from_secs(60)))?;
    /// faults.lose_store();
    /// assert!(!client.health().is_healthy());
    /// let lost = orders.try_acquire(1).await; // after 3 s of paused time
    /// assert!(matches!(lost, Err(Error::StoreUnavailable { .. })));
    /// faults.end();
    /// assert!(orders.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    pub fn lose_store(&self) {
        self.set(Fault::Lost);
    }

    /// Leaves calls without an answer, as a stopped Redis does. Calls that still wait when this
    /// [ends](Self::end) are executed then. A call whose response timeout passes first fails, and
    /// is never executed. A request that is dropped ends as its method says of one in flight.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let faults = Faults::new();
    /// let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &faults);
    /// let orders = client.rate_limiter("orders").with_rate(Rate::overall(1, Duration::from_secs(60)))?;
    /// faults.stall();
    /// let after_a_second = async {
    ///     tokio::time::sleep(Duration::from_secs(1)).await;
    ///     faults.end();
    /// };
    /// let (acquired, ()) = tokio::join!(orders.try_acquire(1), after_a_second);
    /// assert!(acquired?);
    /// # Ok(()) }
    /// ```
    pub fn stall(&self) {
        self.set(Fault::Stalled);
    }

    /// Denies requests for the names that `is_denied` returns `true` for, as if others took each
    /// permit as it comes back; `|_| true` denies all. The name is the one that the store knows the
    /// limiter by, after the name mapper; for limiters with keys it is the prefix and the key. A
    /// denied request may be tried again after `retry_after`, in whole milliseconds, and is charged
    /// nowhere. A request for more than the limit, or to a limiter without a rate, fails as
    /// usual.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let (faults, minute) = (Faults::new(), Duration::from_secs(60));
    /// let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &faults);
    /// let users = client.policy_limiter(FixedWindow::new(10, minute))?.with_prefix("user:");
    /// faults.deny(Duration::from_secs(7), |name| name == "user:alice");
    /// let denied = users.check("alice", 1).await?;
    /// assert_eq!((denied.retry_after(), denied.remaining()), (Some(Duration::from_secs(7)), 0));
    /// assert!(users.check("bob", 1).await?.is_granted());
    /// faults.end();
    /// assert_eq!(users.check("alice", 1).await?.remaining(), 9); // it was not charged
    /// # Ok(()) }
    /// ```
    pub fn deny(
        &self,
        retry_after: Duration,
        is_denied: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) {
        self.set(Fault::Denies(Arc::new(Denial::new(
            retry_after,
            Box::new(is_denied),
        ))));
    }

    /// Switches everything off. Circuit breakers close with the next answer.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let faults = Faults::new();
    /// let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &faults);
    /// faults.lose_store();
    /// assert!(client.ping().await.is_err());
    /// faults.end();
    /// client.ping().await?;
    /// assert!(client.health().is_healthy());
    /// # Ok(()) }
    /// ```
    pub fn end(&self) {
        self.set(Fault::None);
    }

    fn set(&self, fault: Fault) {
        let is_lost = fault.is_lost();
        let before = std::mem::replace(&mut *self.0.fault.lock(), fault);
        self.0.changed.notify_waiters();
        if before.is_lost() != is_lost {
            self.set_breakers();
        }
        if matches!(before, Fault::Denies(_)) {
            for on_freed in live(&self.0.waiting) {
                on_freed(i64::MAX); // as many as they wait for
            }
        }
    }

    /// Opens or closes the breakers as the store is lost or not. A breaker calls the application's
    /// handler of events, so no lock is held. If the store is lost or found again meanwhile, all
    /// breakers are set again, so that they end in the state that holds.
    fn set_breakers(&self) {
        loop {
            let is_lost = self.is_lost();
            for breaker in live(&self.0.breakers) {
                match is_lost {
                    true => breaker.disconnected(&refused()),
                    false => breaker.connected(),
                }
            }
            if self.is_lost() == is_lost {
                return;
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.0.fault.lock().is_lost()
    }

    /// Adds the breaker of a new client.
    fn add_breaker(&self, breaker: &Arc<Breaker>) {
        add(&self.0.breakers, breaker);
        if self.is_lost() {
            self.set_breakers();
        }
    }

    /// Calls `on_freed`, as long as it lives, when permits are no longer denied.
    fn watch(&self, on_freed: &Arc<OnFreed>) {
        add(&self.0.waiting, on_freed);
    }

    fn denial(&self) -> Option<Arc<Denial>> {
        match &*self.0.fault.lock() {
            Fault::Denies(denial) => Some(Arc::clone(denial)),
            _ => None,
        }
    }

    /// Waits until the store takes calls, or fails at `deadline`.
    async fn reached(&self, deadline: Instant) -> Result<()> {
        let mut is_sent = false;
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            match &*self.0.fault.lock() {
                Fault::Lost => {}
                Fault::Stalled => is_sent = true,
                Fault::None | Fault::Denies(_) => return Ok(()),
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Err(match is_sent {
                    true => Error::Indeterminate { source: None },
                    false => refused(),
                });
            }
        }
    }
}

/// Lets all other tasks run first that are ready now. Tasks that yield together go on in the order
/// in which they yielded, unlike with [`tokio::task::yield_now`].
async fn yield_in_order() {
    let mut is_first_poll = true;
    poll_fn(|context| {
        if std::mem::take(&mut is_first_poll) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

impl Fault {
    fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }
}

/// The error of a call that found no connection.
fn refused() -> Error {
    Error::unavailable(Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused)))
}

fn live<T: ?Sized>(held: &Lock<Vec<Weak<T>>>) -> Vec<Arc<T>> {
    held.lock().iter().filter_map(Weak::upgrade).collect()
}

fn add<T: ?Sized>(held: &Lock<Vec<Weak<T>>>, new: &Arc<T>) {
    let mut held = held.lock();
    held.retain(|it| it.strong_count() > 0);
    held.push(Arc::downgrade(new));
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0.fault.lock() {
            Fault::None => "Faults::end",
            Fault::Lost => "Faults::lose_store",
            Fault::Stalled => "Faults::stall",
            Fault::Denies(_) => "Faults::deny",
        })
    }
}
