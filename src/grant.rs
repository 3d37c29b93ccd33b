//! A grant: permits that were taken, and whether they were given back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::name_hash::NameHash;
use crate::permit::CallId;

/// Permits that were taken. [`RateLimiter::refund`](crate::RateLimiter::refund) gives them back,
/// and for a limiter of any algorithm [`Limiter::refund`](crate::Limiter::refund). Dropping a grant
/// gives nothing back: its permits count as used until their window has passed.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
/// let grant = limiter.check(3).await?.into_grant().expect("granted");
/// assert_eq!(grant.permits(), 3);
/// assert_eq!(limiter.refund(grant).await?, 3);
/// assert_eq!(limiter.available_permits().await?, 5);
/// # Ok(()) }
/// ```
///
/// A clone is the same grant: the first refund or settlement of it, or of one of its clones, is the
/// only one, whichever limiter granted it, and the others change nothing. Only if it failed without
/// effect, as in an outage, can a clone be refunded or settled later. After
/// [`Indeterminate`](crate::Error::Indeterminate) and [`NoRuntime`](crate::Error::NoRuntime) it
/// cannot: it may have had an effect.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
/// let grant = limiter.check(3).await?.into_grant().expect("granted");
/// assert_eq!(limiter.refund(grant.clone()).await?, 3);
/// assert_eq!(limiter.refund(grant).await?, 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Grant {
    /// When it was made, in ms of the clock that scored it.
    pub(crate) score: i64,
    /// By how many ms the score may be reduced when the grant is settled, if it is a lease; else 0.
    pub(crate) span: i64,
    pub(crate) call_id: CallId,
    pub(crate) permits: u32,
    pub(crate) origin: Origin,
    /// The target of a policy that was charged: a grant is given back only there. An RRateLimiter
    /// finds its own by score and call.
    target: NameHash,
    /// Whether it was refunded or settled. Clones share this, which is made with the first clone.
    /// The grants of one call share a member of the sorted set, so the store cannot tell a second
    /// refund of one grant from a refund of another.
    is_spent: OnceLock<Arc<AtomicBool>>,
}

/// Where a grant was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Store,
    /// The limiter that a failure policy uses in this process.
    Local,
    /// Nothing was taken anywhere.
    Nowhere,
}

impl Grant {
    /// A grant by the store.
    #[inline]
    pub(crate) fn new(score: i64, call_id: CallId, permits: u32) -> Self {
        Self {
            score,
            span: 0,
            call_id,
            permits,
            origin: Origin::Store,
            target: NameHash::OF_NOTHING,
            is_spent: OnceLock::new(),
        }
    }

    /// What a policy has charged a target; `mark` is the one in the policy's answer.
    #[inline]
    pub(crate) fn charged(mark: i64, call_id: CallId, permits: u32, target: NameHash) -> Self {
        Self {
            target,
            ..Self::new(mark, call_id, permits)
        }
    }

    /// Whether it was charged to this target of a policy.
    pub(crate) fn is_of(&self, target: &str) -> bool {
        self.target == NameHash::of(target)
    }

    /// A grant that is a lease, or a part of one.
    pub(crate) fn with_span(self, span: i64) -> Self {
        Self { span, ..self }
    }

    /// A grant by a limiter that does not know single grants: a refund does not find it.
    #[inline]
    pub(crate) fn forgotten(permits: u32) -> Self {
        Self::new(i64::MIN, CallId::default(), permits)
    }

    /// A grant that takes nothing.
    pub(crate) fn of_nothing(permits: u32) -> Self {
        Self {
            origin: Origin::Nowhere,
            ..Self::forgotten(permits)
        }
    }

    /// How many permits were taken.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// A part of this grant, of at most `permits`, to [refund](crate::RateLimiter::refund): where a
    /// request has cost less than was taken for it. The rest stays taken: this grant's clones give
    /// back nothing any more.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
    /// let grant = limiter.check(3).await?.into_grant().expect("granted");
    /// assert_eq!(limiter.refund(grant.part(2)).await?, 2);
    /// assert_eq!(limiter.available_permits().await?, 4);
    /// # Ok(()) }
    /// ```
    #[must_use = "the rest of the grant cannot be given back"]
    pub fn part(self, permits: u32) -> Self {
        let is_spent = self.begin_spending() || permits == 0;
        Self {
            permits: permits.min(self.permits),
            is_spent: Arc::new(AtomicBool::new(is_spent)).into(),
            ..self
        }
    }

    /// This grant with other permits.
    pub(crate) fn with_permits(self, permits: u32) -> Self {
        Self { permits, ..self }
    }

    /// Makes a change that spends this grant, unless it or a clone was spent: then the result is
    /// the default. Every limiter's refunds and settlements pass here. The change gets the grant as
    /// one that has no clones.
    ///
    /// A change that failed without effect does not spend the grant. One that is dropped does,
    /// because it may go on.
    pub(crate) async fn spend<T, F>(self, change: impl FnOnce(Self) -> F) -> Result<T>
    where
        T: Default,
        F: Future<Output = Result<T>>,
    {
        if self.begin_spending() {
            return Ok(T::default());
        }
        let alone = Self {
            is_spent: OnceLock::new(),
            ..self
        };
        let changed = change(alone).await;
        // A call may go on without its caller's runtime.
        let may_have_run =
            |it: &Error| matches!(it, Error::Indeterminate { .. } | Error::NoRuntime);
        if let Err(error) = &changed
            && !may_have_run(error)
            && let Some(is_spent) = self.is_spent.get()
        {
            is_spent.store(false, Ordering::Relaxed);
        }
        changed
    }

    /// Spends this grant and returns it, to be given back in the background; `None` if it or a
    /// clone was spent before.
    pub(crate) fn spend_now(self) -> Option<Self> {
        (!self.begin_spending()).then_some(self)
    }

    /// Spends this grant at a limiter that gives nothing back.
    pub(crate) fn spend_in_vain(self) -> Result<u32> {
        self.begin_spending();
        Ok(0)
    }

    /// Marks this grant and its clones as spent, and returns whether they were before.
    fn begin_spending(&self) -> bool {
        let is_spent = self.is_spent.get();
        is_spent.is_some_and(|it| it.swap(true, Ordering::Relaxed))
    }
}

impl Clone for Grant {
    fn clone(&self) -> Self {
        let is_spent = self.is_spent.get_or_init(Arc::default);
        Self {
            is_spent: Arc::clone(is_spent).into(),
            ..*self
        }
    }
}

impl PartialEq for Grant {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.score, it.call_id, it.permits, it.origin);
        parts(self) == parts(other)
    }
}

impl Eq for Grant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_grant_whose_change_may_have_been_made_is_spent() {
        for (error, is_spent) in [
            (Error::Indeterminate { source: None }, true),
            (Error::NoRuntime, true),
            (Error::Closed, false),
        ] {
            let grant = Grant::new(0, CallId::default(), 1);
            let failed = grant.clone().spend(|_| async { Err::<u32, _>(error) });
            let error = failed.await.unwrap_err();
            let again = grant.spend(|grant| async move { Ok(grant.permits()) });
            assert_eq!(again.await.unwrap() == 0, is_spent, "{error:?}");
        }
    }
}
