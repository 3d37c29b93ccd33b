//! Faults of a store in memory, which tests switch on and off: what an application sees of a Redis
//! that is lost, silent or used up by others.
//!
//! A client with faults is one of a distant store: its requests take the same way as those to
//! Redis, through the failure policy, the queues and the circuit breaker. Each call then comes here
//! ([`Faults::reached`]) before it reaches the limiters, and is executed and answered in one step.
//! So no call takes permits that its caller does not learn of. Calls reach the limiters in the
//! order in which they were made, as those over a connection do.

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

/// Switches by which a test takes the store from the clients that were made [with
/// them](crate::RedissonClientBuilder::in_memory_with_faults), for the feature `test-util`: it is
/// lost, stalls or denies. Clones are the same switches.
///
/// Each method replaces what was switched on before. Whatever the client decides by is concerned:
/// limiters of any kind, rules and joint decisions, requests that wait, and what sets or reads a
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
    /// Wakes the calls that wait in the order in which they came.
    changed: Notify,
    /// Those of the clients, which open when the store is lost.
    breakers: Lock<Vec<Weak<Breaker>>>,
    /// Who waits for permits.
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

    /// Has the clients lose their connection to the store, and fail to make another one: their
    /// circuit breakers open, and failure policies decide. Calls that are under way, and those that
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

    /// Leaves calls without an answer, as a Redis that is stopped does, until this ends: then those
    /// are executed that still wait. A call whose response timeout passes first fails, and is never
    /// executed. A request that is dropped ends as its method says of one in flight.
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
    /// permit as it comes back; `|_| true` denies all. A name is what the store knows a limiter by:
    /// of a limiter for keys its prefix and the key, as a name mapper has mapped it. A denied
    /// request may come again after `retry_after`, in whole milliseconds; it is charged nowhere.
    /// One for more than the limit fails as ever, and so does one to a limiter without a rate.
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
            self.tell_breakers(&self.0.breakers);
        }
        if matches!(before, Fault::Denies(_)) {
            for on_freed in live(&self.0.waiting) {
                on_freed(i64::MAX); // as many as they wait for
            }
        }
    }

    /// A breaker of these tells the application of its change, so no lock is held. If the store was
    /// lost or found again in the meantime, all are told again, so that
    /// the last call reports the state that holds.
    fn tell_breakers(&self, breakers: &Lock<Vec<Weak<Breaker>>>) {
        loop {
            let is_lost = self.is_lost();
            for breaker in live(breakers) {
                tell(&breaker, is_lost);
            }
            if self.is_lost() == is_lost {
                return;
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.0.fault.lock().is_lost()
    }

    /// The breaker of a new client.
    fn add_breaker(&self, breaker: &Arc<Breaker>) {
        add(&self.0.breakers, breaker);
        if self.is_lost() {
            self.tell_breakers(&Lock::new(vec![Arc::downgrade(breaker)]));
        }
    }

    /// Has `on_freed` called when permits are not denied any more.
    fn watch(&self, on_freed: &Arc<OnFreed>) {
        add(&self.0.waiting, on_freed);
    }

    fn denial(&self) -> Option<Arc<Denial>> {
        match &*self.0.fault.lock() {
            Fault::Denies(denial) => Some(Arc::clone(denial)),
            _ => None,
        }
    }

    /// Waits until a call reaches the store, or fails at `deadline`.
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

/// Lets all others go first that are ready now. Unlike tokio's function of this kind, which wakes
/// those that yield together in the opposite order, it keeps their order.
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

/// Why there is no connection.
fn refused() -> Error {
    Error::unavailable(Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused)))
}

fn tell(breaker: &Arc<Breaker>, is_lost: bool) {
    match is_lost {
        true => breaker.disconnected(&refused()),
        false => breaker.connected(),
    }
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
