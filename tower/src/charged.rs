//! What a request was charged.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use redisson_rate_limiter::{Decision, JointDecision, Limiter, Result, Rules};

use crate::fields::Limit;

/// What a request was charged, in its extensions: a handler sees the decision, and can give the charge back or settle it.
/// Clones are the same charge.
///
/// ```
/// use http::{Request, Response};
/// use redisson_rate_limiter::{Rate, RedissonClient};
/// use redisson_rate_limiter_tower::key::Everyone;
/// use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.rate_limiter("api").with_rate(Rate::overall(10, Duration::from_secs(60)))?;
/// let handler = service_fn(|request: Request<String>| async move {
///     let charged = request.extensions().get::<Charged>().expect("the layer puts it there");
///     charged.refund().await.expect("the store is there"); // the answer was cached, say
///     Ok::<_, Infallible>(Response::new(String::new()))
/// });
/// let service = RateLimitLayer::new(limiter.clone(), Everyone).layer(handler);
/// let response = service.oneshot(Request::new(String::new())).await.expect("infallible");
/// assert_eq!(limiter.available_permits().await?, 10);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Charged(Arc<Inner>);

struct Inner {
    by: By,
    is_settled: AtomicBool,
}

enum By {
    One {
        limiter: Arc<dyn Limiter>,
        key: String,
        cost: u32,
        decision: Decision,
    },
    Rules {
        rules: Arc<Rules<Parts, ()>>,
        decision: JointDecision,
    },
}

impl Charged {
    pub(crate) fn by_one(
        limiter: Arc<dyn Limiter>,
        key: String,
        cost: u32,
        decision: Decision,
    ) -> Self {
        Self::by(By::One {
            limiter,
            key,
            cost,
            decision,
        })
    }

    pub(crate) fn by_rules(rules: Arc<Rules<Parts, ()>>, decision: JointDecision) -> Self {
        Self::by(By::Rules { rules, decision })
    }

    fn by(by: By) -> Self {
        Self(Arc::new(Inner {
            by,
            is_settled: AtomicBool::new(false),
        }))
    }

    /// The decision; of several limiters, the strictest one: see [`JointDecision::deciding`].
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// fn left(request: &http::Request<String>) -> Option<u64> {
    ///     Some(request.extensions().get::<Charged>()?.decision().remaining())
    /// }
    /// ```
    pub fn decision(&self) -> &Decision {
        match &self.0.by {
            By::One { decision, .. } => decision,
            By::Rules { decision, .. } => decision.deciding().1,
        }
    }

    /// Each limiter's name and its decision.
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// fn names(charged: &Charged) -> Vec<&str> {
    ///     charged.by_limiter().map(|(name, _)| name).collect()
    /// }
    /// ```
    pub fn by_limiter(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let (one, joint) = match &self.0.by {
            By::One {
                limiter, decision, ..
            } => (Some((limiter.name(), decision)), None),
            By::Rules { decision, .. } => (None, Some(decision)),
        };
        one.into_iter()
            .chain(joint.into_iter().flat_map(JointDecision::by_limiter))
    }

    /// Gives back what was charged, and returns how many permits. Limiters with a rate
    /// ([`RateLimiter`](redisson_rate_limiter::RateLimiter), [`KeyedRateLimiter`](redisson_rate_limiter::KeyedRateLimiter)) know
    /// single grants; of a policy nothing is given back. The first call of this or of [`settle`](Self::settle) counts, further
    /// ones do nothing.
    ///
    /// # Errors
    /// Those of [`RateLimiter::refund`](redisson_rate_limiter::RateLimiter::refund).
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have given it back.
    pub async fn refund(&self) -> Result<u64> {
        if self.begin() {
            return Ok(0);
        }
        match &self.0.by {
            By::One {
                limiter,
                key,
                decision,
                ..
            } => {
                let Some(grant) = decision.clone().into_grant() else {
                    return Ok(0);
                };
                limiter.refund(key, grant).await.map(u64::from)
            }
            By::Rules { rules, decision } => rules.refund(decision.clone()).await,
        }
    }

    /// Corrects the charge, once the cost is known: what was charged in excess is given back, as by [`refund`](Self::refund),
    /// and what is missing is charged, as far as the limiter has it: the request is done, so it cannot be denied any more.
    /// For a request that several limiters decided on, this does nothing: their costs differ.
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// async fn count_tokens(charged: &Charged, tokens: u32) -> redisson_rate_limiter::Result<()> {
    ///     charged.settle(tokens).await
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`refund`](Self::refund) and of the limiter's `check`.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have corrected it.
    pub async fn settle(&self, cost: u32) -> Result<()> {
        let By::One {
            limiter,
            key,
            cost: charged,
            decision,
        } = &self.0.by
        else {
            return Ok(());
        };
        let Some(grant) = decision.clone().into_grant() else {
            return Ok(());
        };
        if self.begin() {
            return Ok(());
        }
        if cost < *charged {
            limiter.refund(key, grant.part(charged - cost)).await?;
        } else if cost > *charged {
            let _ = limiter.check_up_to(key, cost - charged).await?;
        }
        Ok(())
    }

    /// Whether it is settled already. From here on it is.
    fn begin(&self) -> bool {
        self.0.is_settled.swap(true, Ordering::Relaxed)
    }

    /// What the header fields state, the strictest first.
    pub(crate) fn limits(&self) -> Limits<'_> {
        match &self.0.by {
            By::One {
                limiter, decision, ..
            } => Limits::One(Limit::of(limiter.name(), decision)),
            By::Rules { decision, .. } => {
                let (strictest, _) = decision.deciding();
                let mut limits: Vec<_> = decision
                    .by_limiter()
                    .filter_map(|(name, it)| Limit::of(name, it))
                    .collect();
                limits.sort_by_key(|it| it.name != strictest);
                Limits::Several(limits)
            }
        }
    }
}

/// Limits of a response, without an allocation where there is one.
pub(crate) enum Limits<'a> {
    One(Option<Limit<'a>>),
    Several(Vec<Limit<'a>>),
}

impl<'a> Limits<'a> {
    pub(crate) fn as_slice(&self) -> &[Limit<'a>] {
        match self {
            Self::One(limit) => limit.as_slice(),
            Self::Several(limits) => limits,
        }
    }
}

impl fmt::Debug for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limiters: Vec<_> = self.by_limiter().collect();
        f.debug_struct("Charged")
            .field("limiters", &limiters)
            .finish_non_exhaustive()
    }
}
