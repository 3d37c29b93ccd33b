//! One limit, as header fields state it.

use std::borrow::Cow;
use std::time::Duration;

use redisson_rate_limiter::Decision;

/// One limit, as a server states it and a client reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit<'a> {
    /// The name of the limit; empty if it was read from fields that state no name.
    pub name: Cow<'a, str>,
    /// The most that a client can use in a window: `q`.
    pub limit: Option<u64>,
    /// The time in which the whole limit comes back: `w`.
    pub window: Option<Duration>,
    /// What is left of the limit: `r`.
    pub remaining: u64,
    /// The time until something is available: `t`. Zero if something is left.
    pub available_in: Option<Duration>,
    /// The time until the whole limit is available again.
    pub reset: Option<Duration>,
    /// What is counted: `qu`. `None` means requests; the draft also has `content-bytes` and
    /// `concurrent-requests`.
    pub unit: Option<Cow<'a, str>>,
    /// Whose limit it is, such as a user's: `pk`. The client gets this value, so it must contain
    /// no secret and nothing about other clients.
    pub partition_key: Option<Cow<'a, [u8]>>,
}

impl<'a> Limit<'a> {
    /// The limit of the limiter `name` after a decision. `None` if the decision does not state the
    /// limit, because a [`FailurePolicy`](redisson_rate_limiter::FailurePolicy) made it.
    ///
    /// ```
    /// use redisson_rate_limiter::{Decision, Granted, Quota};
    /// use redisson_rate_limiter_tower::fields::Limit;
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let decision = Granted::new(1).with_quota(Quota::new(100, minute)).with_remaining(99);
    /// let limit = Limit::of("user", &decision.into()).expect("the quota is known");
    /// assert_eq!((limit.limit, limit.window, limit.remaining), (Some(100), Some(minute), 99));
    /// assert_eq!(Limit::of("user", &Granted::new(1).into()), None);
    /// ```
    #[must_use]
    pub fn of(name: &'a str, decision: &Decision) -> Option<Self> {
        let known = decision.limit() > 0;
        known.then(|| Self {
            name: Cow::Borrowed(name),
            limit: Some(decision.limit()),
            window: Some(decision.window()).filter(|it| !it.is_zero()),
            remaining: decision.remaining(),
            available_in: Some(decision.available_in()),
            reset: Some(decision.reset()),
            unit: None,
            partition_key: None,
        })
    }

    /// Sets what is counted, such as `content-bytes`.
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::fields::Limit;
    /// assert_eq!(Limit::default().with_unit("content-bytes").unit.as_deref(), Some("content-bytes"));
    /// ```
    #[must_use]
    pub fn with_unit(self, unit: impl Into<Cow<'a, str>>) -> Self {
        Self {
            unit: Some(unit.into()),
            ..self
        }
    }

    /// Sets whose limit it is: see [`partition_key`](Self::partition_key).
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::fields::Limit;
    /// let limit = Limit::default().with_partition_key(&b"trial"[..]);
    /// assert_eq!(limit.partition_key.as_deref(), Some(&b"trial"[..]));
    /// ```
    #[must_use]
    pub fn with_partition_key(self, key: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            partition_key: Some(key.into()),
            ..self
        }
    }
}

/// The time in whole seconds, rounded up.
pub(super) fn seconds_up(time: Duration) -> u64 {
    let is_more = time.subsec_nanos() > 0;
    time.as_secs().saturating_add(u64::from(is_more))
}
