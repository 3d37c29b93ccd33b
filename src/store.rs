//! Where limiters are kept. A [`Store`] holds one client's limiters; a [`LimiterStore`] is one
//! limiter, and each of its methods is one atomic step.

#[cfg_attr(
    not(any(feature = "redis", test)),
    expect(dead_code, reason = "no call in memory has several attempts")
)]
pub(crate) mod acquire_call;
pub(crate) mod left_rates;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "redis", feature = "test-util", test))]
mod unsettled;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use acquire_call::AcquireCall;
use memory::MemoryClient;

use crate::box_future::BoxFuture;
use crate::breaker::Breaker;
use crate::error::Result;
use crate::grant::Grant;
use crate::health::ServerHealth;
use crate::keys::Keys;
use crate::permit::CallId;
use crate::policies::call::{Answers, Call};
use crate::rate::Rate;
use crate::window::{Acquired, Condition, Expiry, SetUp, Settings, Settlement};

/// What happens to the permits in use when the rate changes. An argument of
/// [`set_rate_with`](crate::RateLimiter::set_rate_with) and
/// [`update_rate`](crate::RateLimiter::update_rate).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// let rate = Rate::overall(10, Duration::from_secs(60));
/// limiter.set_rate(rate).await?;
/// limiter.acquire(3).await?;
/// limiter.update_rate(rate, PermitsInUse::Keep).await?;
/// assert_eq!(limiter.available_permits().await?, 7);
/// limiter.update_rate(rate, PermitsInUse::Reset).await?;
/// assert_eq!(limiter.available_permits().await?, 10);
/// # Ok(()) }
/// ```
#[doc(alias = "keepState")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PermitsInUse {
    /// They stay in use: the new rate leaves only the permits beyond them. A change of the type
    /// resets them.
    Keep,
    /// They are forgotten: the whole new rate is available at once.
    Reset,
}

/// How long a limiter lives. The answer of
/// [`remain_time_to_live`](crate::RateLimiter::remain_time_to_live).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
/// limiter.expire(Duration::from_secs(60)).await?;
/// let left = match limiter.remain_time_to_live().await? {
///     TimeToLive::Remaining(left) => Some(left),
///     _ => None,
/// };
/// assert_eq!(left, Some(Duration::from_secs(60)));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeToLive {
    /// There is no limiter of this name.
    Missing,
    /// It has no time to live.
    Unlimited,
    /// It expires after this time, unless a call renews it.
    Remaining(std::time::Duration),
}

/// What an update does if there is no limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Create,
    DoNothing,
}

/// A change of a limiter's settings, or of the time at which it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimiterChange {
    /// Sets the rate of a limiter that has none.
    TrySetRate(Settings),
    /// Sets the rate, and forgets the permits in use.
    SetRate(Settings),
    UpdateRate(Settings, PermitsInUse, IfMissing),
    Expire(Expiry, Condition),
    ClearExpire,
}

impl LimiterChange {
    pub(crate) const DELETE: Self = Self::Expire(Expiry::In(0), Condition::Always);
}

/// The limiters of one client.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Whether the keys of a limiter must share a hash slot.
    fn is_cluster(&self) -> bool;

    /// The breaker of the server that holds a key; `None` for a store that needs none.
    fn breaker(&self, _key: &str) -> Option<Arc<Breaker>> {
        None
    }

    /// Whether all breakers are closed and count no failures: then none has to be looked up.
    fn is_healthy(&self) -> bool {
        true
    }

    /// What is known about each server.
    fn health(&self) -> Vec<ServerHealth> {
        Vec::new()
    }

    /// Asks each server for an answer.
    fn ping(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Ends what serves only waiting requests: there will be none.
    fn close(&self) {}

    /// Waits until all permits of callers that are gone have been given back, as far as they can
    /// be. Returns whether none are missing.
    fn given_back(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }

    /// Runs a task that may give permits back, also after the end of the caller's runtime.
    /// [`given_back`](Self::given_back) waits for the task, except in memory: there it is polled
    /// once, and only what it has spawned by then goes on.
    fn give_back_in_background(&self, task: GivingBack) {
        give_back_at_once(task);
    }

    /// Returns the limiter with these keys, whether it exists or not. Sends nothing.
    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore>;

    /// Decides a list of requests by limiters of any policy, or says what it would decide. Returns
    /// by `deadline`.
    fn check<'a>(
        &'a self,
        call: &'a Arc<Call>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answers>>;

    /// Deletes what the target of this call has used, or gives back what it was charged, and
    /// returns how many keys or permits. Returns by `deadline`.
    fn undo<'a>(&'a self, call: &'a Arc<Call>, deadline: Instant) -> BoxFuture<'a, Result<u32>>;

    /// The store itself, if it is in memory and so decides without waiting.
    fn in_memory(&self) -> Option<&MemoryClient> {
        None
    }

    /// The store itself, if it is in Redis and so has servers.
    #[cfg(feature = "redis")]
    fn redis(&self) -> Option<&redis::RedisStore> {
        None
    }

    /// The latest time at which a call that starts now returns.
    fn call_deadline(&self) -> Instant;
}

/// A task of a store that does not depend on a caller's runtime.
pub(crate) type Task = BoxFuture<'static, ()>;

/// A task that may give permits back. Returns for how long the permits that it could not give back
/// are missing; zero if there are none.
pub(crate) type GivingBack = BoxFuture<'static, Duration>;

/// Polls a task once. Where it uses a store in memory, all its steps are then done.
fn give_back_at_once(mut task: GivingBack) {
    let _ = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// Runs when a background task is done, which may have freed permits.
pub(crate) type OnDone = Box<dyn FnOnce() + Send>;

/// Called when another client has freed permits of a limiter, with the number that is available.
pub(crate) type OnFreed = dyn Fn(i64) + Send + Sync;

/// One limiter of a [`Store`].
pub(crate) trait LimiterStore: fmt::Debug + Send + Sync {
    fn keys(&self) -> &Keys;

    /// The store of the client that calls the limiter.
    fn client(&self) -> &dyn Store;

    /// The latest time at which a call that starts now returns.
    fn call_deadline(&self) -> Instant {
        self.client().call_deadline()
    }

    /// The breaker of the server that holds the limiter; `None` for a store that needs none.
    fn breaker(&self) -> Option<Arc<Breaker>> {
        self.client().breaker(&self.keys().name)
    }

    /// The breaker of the server that holds the limiter, unless all breakers of the client are
    /// healthy: then it does not have to be looked up.
    fn unhealthy_breaker(&self) -> Option<Arc<Breaker>> {
        let is_healthy = self.client().is_healthy();
        (!is_healthy).then(|| self.breaker()).flatten()
    }

    /// The longest time that a call takes.
    fn response_timeout(&self) -> Duration {
        Duration::MAX
    }

    /// Whether other clients may wait for permits of the same limiter.
    fn may_have_peers(&self) -> bool {
        true
    }

    /// The time in ms since the epoch, by the clock that scores the grants, or by this machine's if
    /// that one is another machine's.
    fn wall_millis(&self) -> i64;

    /// A count that rises when the limiter may have been changed otherwise than through this
    /// client's queue. In memory it counts the changes of the limiter's settings by any client, on
    /// Redis the audits of this client.
    fn changes(&self) -> u64 {
        0
    }

    /// Calls `on_freed`, as long as it lives, when another client frees permits otherwise than by
    /// the passing of time. A call may be lost or late, or pass more or less than is available. The
    /// store keeps only a weak reference.
    fn watch(&self, _on_freed: &Arc<OnFreed>) {}

    /// Notes that a driver of this client has started, for a store that counts who waits.
    fn driver_started(&self) {}

    /// Notes that a driver of this client has ended.
    fn driver_ended(&self) {}

    /// Decides a call, by `deadline`. The same call may be passed again after an error, or several
    /// times at once: it is granted at most once.
    fn acquire<'a>(
        &'a self,
        call: &'a AcquireCall,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Acquired>>;

    /// Whether the future of [`acquire`](Self::acquire) is ready when it is first polled, also
    /// outside of a runtime.
    fn decides_at_once(&self) -> bool {
        false
    }

    /// Decides one request and returns the call's id and the answer; `None` if the store cannot
    /// decide without waiting.
    fn acquire_now(
        &self,
        _permits: u32,
        _set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        Ok(None)
    }

    /// Decides one request and returns whether it was granted; `None` if the store cannot decide
    /// without waiting. The grant cannot be refunded.
    fn try_acquire_now(&self, _permits: u32) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Gives back a grant that nobody has taken over. No caller waits for this, and it needs no
    /// caller's runtime.
    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone);

    /// Gives back what a call took, if its caller is gone, once no attempt of the call can still
    /// arrive. Does nothing if the call's outcome is claimed before.
    fn reclaim(self: Arc<Self>, call: Arc<AcquireCall>, on_done: OnDone);

    /// Runs a task of the wait queue that ends calls whose own runtime makes no progress.
    fn run_in_background(&self, task: Task);

    /// See [`Store::give_back_in_background`].
    fn give_back_in_background(&self, task: GivingBack) {
        self.client().give_back_in_background(task);
    }

    /// Gives a grant back, and returns how many permits came back: none if its window has passed.
    fn refund<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<u32>>;

    /// Gives back the unused permits of a lease, and counts the others as used at the time of the
    /// last use: the score of the grant falls by [`early`](Settlement::early) ms. Returns how
    /// many permits came back. A lease is settled once, however often and however late this is
    /// called.
    fn settle<'a>(&'a self, lease: &'a Grant, settlement: Settlement)
    -> BoxFuture<'a, Result<u32>>;

    /// Gives permits back without naming their grants: the oldest grants lose them.
    fn release(&self, permits: u32) -> BoxFuture<'_, Result<()>>;

    /// Takes all permits for this many ms, or until the limiter expires, by a grant with this id.
    /// Returns `false`, and takes nothing, if the rate is more than a grant can hold.
    fn hold(&self, millis: i64, call_id: CallId) -> BoxFuture<'_, Result<bool>>;

    fn available_permits(&self) -> BoxFuture<'_, Result<i64>>;

    /// Makes a change, and returns whether it was made. It may free permits.
    fn change(&self, change: LimiterChange) -> BoxFuture<'_, Result<bool>>;

    fn config(&self) -> BoxFuture<'_, Result<Option<Rate>>>;

    fn remain_time_to_live(&self) -> BoxFuture<'_, Result<TimeToLive>>;
}
