//! What every limiter can do.

use std::cmp::Ordering;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::box_future::BoxFuture;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::grant::Grant;

/// A limiter that decides by a key and a cost: those of this crate, and your own. The limiters of
/// this crate have [`check`](crate::PolicyLimiter::check) as an inherent method, so that only code
/// for any limiter needs this trait.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, Limiter, RedissonClient, TokenBucket};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiters: [Arc<dyn Limiter>; 2] = [
///     Arc::new(client.policy_limiter(FixedWindow::new(2, Duration::from_secs(60)))?),
///     Arc::new(client.policy_limiter(TokenBucket::per_second(1).with_capacity(2))?),
/// ];
/// for (i, limiter) in limiters.iter().enumerate() {
///     let user = format!("limiter{i}:user:123");
///     assert!(limiter.check(&user, 2).await?.is_granted());
///     assert!(!limiter.check(&user, 1).await?.is_granted());
/// }
/// # Ok(()) }
/// ```
pub trait Limiter: fmt::Debug + Send + Sync {
    /// The limiter's name, for metrics: never part of a key. Empty for a limiter that has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?.with_name("logins");
    /// let limiters: [&dyn Limiter; 2] = [&logins, &client.rate_limiter("orders:api")];
    /// assert_eq!(limiters.map(Limiter::name), ["logins", "orders:api"]);
    /// # Ok(()) }
    /// ```
    fn name(&self) -> &str {
        ""
    }

    /// Decides a request of `cost` (at least 1) for the target `key`, and charges the target if it
    /// is granted. A granted request may proceed when this returns: a
    /// [`LeakyBucket`](crate::LeakyBucket) makes it wait for its turn first. The limiters of this
    /// crate accept any text as a key: see
    /// [`PolicyLimiter`](crate::PolicyLimiter#keys-from-outside). A
    /// [`RateLimiter`](crate::RateLimiter) ignores the key: all keys share its permits.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// #[derive(Debug)]
    /// struct Closed;
    ///
    /// impl Limiter for Closed {
    ///     fn check<'a>(&'a self, _key: &'a str, _cost: u32) -> BoxFuture<'a, Result<Decision>> {
    ///         Box::pin(async { Ok(Denied::new(Duration::from_secs(3600)).into()) })
    ///     }
    /// }
    ///
    /// assert!(!Closed.check("user:123", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// For the limiters of this crate, those of
    /// [`PolicyLimiter::check`](crate::PolicyLimiter::check).
    ///
    /// # Cancel safety
    /// As [`PolicyLimiter::check`](crate::PolicyLimiter::check) for the limiters of this crate.
    fn check<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>>;

    /// Decides as [`check`](Self::check), and returns at once: the caller waits for the
    /// [`delay`](crate::Granted::delay) of a granted request. See
    /// [`PolicyLimiter::check_without_waiting`](crate::PolicyLimiter::check_without_waiting). A
    /// limiter that gives no delays needs no such method of its own.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter: &dyn Limiter = &client.policy_limiter(LeakyBucket::new(1, Duration::from_secs(1)))?;
    /// assert!(limiter.check("orders:api", 1).await?.is_granted());
    /// let Decision::Granted(granted) = limiter.check_without_waiting("orders:api", 1).await? else { panic!() };
    /// assert_eq!(granted.delay, Duration::from_secs(1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    fn check_without_waiting<'a>(
        &'a self,
        key: &'a str,
        cost: u32,
    ) -> BoxFuture<'a, Result<Decision>> {
        self.check(key, cost)
    }

    /// Decides as [`check`](Self::check) if that needs no call and waits for nobody: in memory,
    /// unless the limiter may make the request wait for its turn. Otherwise returns `None`, and
    /// charges nothing. It is for middleware that has no task to wait in, or that would allocate
    /// one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let decided = limiter.check_now("user:123", 1).expect("it is in memory")?;
    /// assert!(decided.is_granted());
    /// # Ok(()) }
    /// ```
    fn check_now(&self, key: &str, cost: u32) -> Option<Result<Decision>> {
        let _ = (key, cost);
        None
    }

    /// Charges as much of `cost` as there is, as [`check`](Self::check) does: the grant of a
    /// granted decision says [how much](Grant::permits), and the request is denied only if nothing
    /// is left. If less than the cost is left, the first check is denied and a second one asks for
    /// what is left. So this takes one call more, and a
    /// [penalty](crate::PolicyLimiter::with_penalty) begins.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(5, Duration::from_secs(60)))?;
    /// let mut charged = Vec::new();
    /// for cost in [3, 9, 1] {
    ///     let decision = limiter.check_up_to("user:123", cost).await?;
    ///     charged.push(decision.into_grant().map(|it| it.permits()));
    /// }
    /// assert_eq!(charged, [Some(3), Some(2), None]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check), except [`Error::ExceedsLimit`].
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    fn check_up_to<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(up_to(cost, move |cost| self.check(key, cost)))
    }

    /// Gives back what `key` was granted, and returns how many permits. Never more than was charged
    /// and still counts, so that no window has more than its limit:
    ///
    /// - a [`Rate`](crate::Rate): what still counts, see
    ///   [`RateLimiter::refund`](crate::RateLimiter::refund);
    /// - a [`SlidingWindowLog`](crate::SlidingWindowLog): what still counts;
    /// - a [`FixedWindow`](crate::FixedWindow): the cost until its window ends, but nothing from a
    ///   window of up to 200 ms, because two calls may not see its end at the same time;
    /// - a [`SlidingWindowCounter`](crate::SlidingWindowCounter): the cost while its period counts;
    /// - a [`TokenBucket`](crate::TokenBucket), [`PenaltyTokenBucket`](crate::PenaltyTokenBucket),
    ///   [`QuotaBucket`](crate::QuotaBucket) and [`Gcra`](crate::Gcra): the cost less what has
    ///   flowed in since;
    /// - a [`LeakyBucket`](crate::LeakyBucket): nothing, because later requests already have their
    ///   turns behind it;
    /// - a limiter of your own: nothing, unless it has this method.
    ///
    /// A refund to an algorithm other than a `Rate` is sent once. If its answer is lost, it may
    /// have had no effect, and is not repeated. What a limiter granted in this process during an
    /// outage, as its [`FailurePolicy`](crate::FailurePolicy) says, does not come back, except of
    /// a `Rate`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let client = RedissonClient::in_memory();
    /// let limiters: [Box<dyn Limiter>; 2] = [
    ///     Box::new(client.keyed_rate_limiter("mail:", Rate::overall(5, minute))?),
    ///     Box::new(client.policy_limiter(FixedWindow::new(5, minute))?),
    /// ];
    /// let mut refunded = Vec::new();
    /// for limiter in limiters {
    ///     let grant = limiter.check("alice", 2).await?.into_grant().expect("granted");
    ///     refunded.push(limiter.refund("alice", grant).await?);
    /// }
    /// assert_eq!(refunded, [2, 2]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RateLimiter::refund`](crate::RateLimiter::refund).
    ///
    /// # Cancel safety
    /// As [`RateLimiter::refund`](crate::RateLimiter::refund).
    fn refund<'a>(&'a self, key: &'a str, grant: Grant) -> BoxFuture<'a, Result<u32>> {
        let _ = key;
        Box::pin(async move { grant.spend_in_vain() })
    }

    /// Gives back what `key` was granted to a request that is gone, as [`refund`](Self::refund), in
    /// the background: for a [`Drop`], which cannot wait.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().keyed_rate_limiter("mail:", Rate::overall(5, Duration::from_secs(60)))?;
    /// let grant = limiter.check("alice", 2).await?.into_grant().expect("granted");
    /// limiter.refund_in_background("alice", grant);
    /// assert_eq!(limiter.rate_limiter("alice").available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    fn refund_in_background(&self, key: &str, grant: Grant) {
        let _ = (key, grant);
    }

    /// Corrects the charge of a request that was an estimate, once its cost is known: see
    /// [`RateLimiter::settle`](crate::RateLimiter::settle). Other algorithms give back what was too
    /// much as by [`refund`](Self::refund), and take what is missing as far as they have it, as by
    /// [`check_up_to`](Self::check_up_to), but without waiting for a turn. A grant that was given
    /// back or settled before stays as it is.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let client = RedissonClient::in_memory();
    /// let limiters: [Box<dyn Limiter>; 2] = [
    ///     Box::new(client.keyed_rate_limiter("mail:", Rate::overall(5, minute))?),
    ///     Box::new(client.policy_limiter(FixedWindow::new(5, minute))?),
    /// ];
    /// for limiter in limiters {
    ///     let estimate = limiter.check("alice", 2).await?.into_grant().expect("granted");
    ///     limiter.settle("alice", estimate, 4).await?;
    ///     assert_eq!(limiter.check("alice", 1).await?.remaining(), 0);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RateLimiter::settle`](crate::RateLimiter::settle) and [`check`](Self::check).
    ///
    /// # Cancel safety
    /// As [`RateLimiter::settle`](crate::RateLimiter::settle).
    fn settle<'a>(&'a self, key: &'a str, grant: Grant, cost: u32) -> BoxFuture<'a, Result<()>> {
        // The request is done, so nobody waits for its turn.
        let take = move |cost| self.check_without_waiting(key, cost);
        Box::pin(settle_by_check(self, key, grant, cost, u32::MAX, take))
    }
}

/// Forwards to the limiter behind the pointer.
impl<L: Limiter + ?Sized> Limiter for Arc<L> {
    fn name(&self) -> &str {
        L::name(self)
    }

    fn check<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        L::check(self, key, cost)
    }

    fn check_without_waiting<'a>(
        &'a self,
        key: &'a str,
        cost: u32,
    ) -> BoxFuture<'a, Result<Decision>> {
        L::check_without_waiting(self, key, cost)
    }

    fn check_now(&self, key: &str, cost: u32) -> Option<Result<Decision>> {
        L::check_now(self, key, cost)
    }

    fn check_up_to<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        L::check_up_to(self, key, cost)
    }

    fn refund<'a>(&'a self, key: &'a str, grant: Grant) -> BoxFuture<'a, Result<u32>> {
        L::refund(self, key, grant)
    }

    fn refund_in_background(&self, key: &str, grant: Grant) {
        L::refund_in_background(self, key, grant);
    }

    fn settle<'a>(&'a self, key: &'a str, grant: Grant, cost: u32) -> BoxFuture<'a, Result<()>> {
        L::settle(self, key, grant, cost)
    }
}

/// Settles a grant by a refund of what was too much, or by requests for what is missing: `take`
/// makes one, which costs at most `largest`.
pub(super) async fn settle_by_check<L, F>(
    limiter: &L,
    key: &str,
    grant: Grant,
    cost: u32,
    largest: u32,
    take: impl Fn(u32) -> F,
) -> Result<()>
where
    L: Limiter + ?Sized,
    F: Future<Output = Result<Decision>>,
{
    let take = &take;
    // The inner result is that of later parts: the grant is spent by the first one, which must not
    // be taken again.
    let settle = |grant: Grant| async move {
        let granted = grant.permits();
        let later: Result<()> = match cost.cmp(&granted) {
            Ordering::Less => {
                let excess = grant.with_permits(granted - cost);
                limiter.refund(key, excess).await.map(|_| Ok(()))?
            }
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let mut missing = cost - granted;
                let mut taken = Ok(up_to(missing.min(largest), take).await?);
                while let Ok(Decision::Granted(part)) = &taken
                    && part.grant.permits() == missing.min(largest)
                    && part.grant.permits() < missing
                {
                    missing -= part.grant.permits();
                    taken = up_to(missing.min(largest), take).await;
                }
                taken.map(|_| ())
            }
        };
        Ok(Some(later))
    };
    grant.spend(settle).await?.unwrap_or(Ok(()))
}

/// Checks a request of `cost`. While it is denied and something is left, checks for what is left.
async fn up_to<F>(mut cost: u32, check: impl Fn(u32) -> F) -> Result<Decision>
where
    F: Future<Output = Result<Decision>>,
{
    loop {
        let decided = check(cost).await;
        let left = match &decided {
            Ok(Decision::Denied(denied)) => denied.remaining,
            Err(Error::ExceedsLimit { limit, .. }) => *limit,
            _ => return decided,
        };
        // Each further request is for less, so that they come to an end.
        match u32::try_from(left) {
            Ok(left) if 0 < left && left < cost => cost = left,
            _ => return decided,
        }
    }
}

/// Polls a future once, and returns its output if it did not have to wait.
pub(super) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
