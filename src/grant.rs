//! Permits that were taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::permit::CallId;

/// Permits that were taken. [`refund`](crate::RateLimiter::refund) gives them back if a limiter with a [`Rate`](crate::Rate)
/// granted them; the other limiters do not keep track of single grants. Dropping a grant gives nothing back: its permits
/// count as used until their window has passed.
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
/// A clone is the same grant: the first refund of it, or of one of its clones, is the only one, and the others give back 0. Only
/// if it failed without effect, as in an outage, can a clone be refunded later. After
/// [`Indeterminate`](crate::Error::Indeterminate) and [`NoRuntime`](crate::Error::NoRuntime) it cannot: it may have had an effect.
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
    /// Of a lease, by how many ms less its score may be once the lease is settled; else 0.
    pub(crate) span: i64,
    pub(crate) call_id: CallId,
    pub(crate) permits: u32,
    pub(crate) origin: Origin,
    /// Whether it was given back: what clones share, made with the first clone. The grants of one call share a member of
    /// the sorted set, so the store cannot tell a second refund of one from a refund of another.
    is_refunded: OnceLock<Arc<AtomicBool>>,
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
            is_refunded: OnceLock::new(),
        }
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

    /// A part of this grant, of at most `permits`, to [refund](crate::RateLimiter::refund): where a request has cost less than
    /// was taken for it. The rest stays taken: this grant's clones give back nothing any more.
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
        let is_used_up = !self.begin_refund() || permits == 0;
        Self {
            permits: permits.min(self.permits),
            is_refunded: Arc::new(AtomicBool::new(is_used_up)).into(),
            ..self
        }
    }

    /// This grant with other permits, of which a refund is one of this grant.
    pub(crate) fn with_permits(self, permits: u32) -> Self {
        Self { permits, ..self }
    }

    /// Whether none of its clones was given back. From here on it counts as given back.
    pub(crate) fn begin_refund(&self) -> bool {
        let is_refunded = self.is_refunded.get();
        is_refunded.is_none_or(|it| !it.swap(true, Ordering::Relaxed))
    }

    /// Ends a refund that has begun. One that failed without effect can be made again.
    pub(crate) fn end_refund<T>(&self, ended: &Result<T>) {
        // A call may go on without its caller's runtime.
        let may_have_run =
            |it: &Error| matches!(it, Error::Indeterminate { .. } | Error::NoRuntime);
        if let Err(error) = ended
            && !may_have_run(error)
            && let Some(is_refunded) = self.is_refunded.get()
        {
            is_refunded.store(false, Ordering::Relaxed);
        }
    }
}

impl Clone for Grant {
    fn clone(&self) -> Self {
        let is_refunded = self.is_refunded.get_or_init(Arc::default);
        Self {
            is_refunded: Arc::clone(is_refunded).into(),
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
