//! What a request was charged.

use std::collections::HashMap;
use std::sync::Arc;
use std::{fmt, iter};

use redisson_rate_limiter::{Decision, Ending, JointDecision, Limiter, Result, Rules, RulesGrant};

use crate::fields::Limit;
use crate::key::KeptKey;

/// What a request was charged. The layer puts it into the request's extensions, so that a handler
/// can read the decision, and can give the charge back or settle it. Clones are the same charge,
/// which is given back or settled once.
///
/// If several layers wrap a service, its handler gets one `Charged` with the charges of all.
/// [`decision`](Self::decision) and [`settle`](Self::settle) are about the innermost layer;
/// [`by_limiter`](Self::by_limiter), [`refund`](Self::refund) and
/// [`settle_each`](Self::settle_each) are about all layers.
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
pub struct Charged {
    by: By,
    /// The charge of the layers around this one.
    outer: Option<Arc<Self>>,
}

/// What decided the request, and the decision.
#[derive(Clone)]
enum By {
    One {
        limiter: Arc<dyn Limiter>,
        key: KeptKey,
        decision: Decision,
    },
    Rules {
        rules: Arc<Rules>,
        granted: RulesGrant,
    },
}

impl Charged {
    pub(crate) fn by_one(limiter: Arc<dyn Limiter>, key: KeptKey, decision: Decision) -> Self {
        Self::by(By::One {
            limiter,
            key,
            decision,
        })
    }

    /// The charge of rules that have decided. Rules that deny a request charge nothing.
    pub(crate) fn by_rules(rules: Arc<Rules>, decided: impl Into<RulesGrant>) -> Self {
        let granted = decided.into();
        Self::by(By::Rules { rules, granted })
    }

    fn by(by: By) -> Self {
        Self { by, outer: None }
    }

    /// Adds the charge of the layers around this one.
    pub(crate) fn inside(self, outer: Option<Self>) -> Self {
        Self {
            outer: outer.map(Arc::new),
            ..self
        }
    }

    /// The charge of the innermost layer alone.
    pub(crate) fn of_this_layer(&self) -> Self {
        Self::by(self.by.clone())
    }

    /// The charge of each layer, the innermost first.
    fn by_layer(&self) -> impl Iterator<Item = &By> {
        iter::successors(Some(self), |it| it.outer.as_deref()).map(|it| &it.by)
    }

    /// The decision; if several limiters decided, the strictest: see [`JointDecision::deciding`].
    /// `None` if all rules that apply are in [shadow mode](redisson_rate_limiter::Rule::in_shadow).
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// fn left(request: &http::Request<String>) -> Option<u64> {
    ///     Some(request.extensions().get::<Charged>()?.decision()?.remaining())
    /// }
    /// ```
    pub fn decision(&self) -> Option<&Decision> {
        match &self.by {
            By::One { decision, .. } => Some(decision),
            By::Rules { granted, .. } => Some(granted.decision()?.deciding().1),
        }
    }

    /// The name and decision of each limiter, and of each rule that applies and is enforced.
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// fn names(charged: &Charged) -> Vec<&str> {
    ///     charged.by_limiter().map(|(name, _)| name).collect()
    /// }
    /// ```
    pub fn by_limiter(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.by_layer().flat_map(|by| {
            let (one, joint) = match by {
                By::One {
                    limiter, decision, ..
                } => (Some((limiter.name(), decision)), None),
                By::Rules { granted, .. } => (None, granted.decision()),
            };
            one.into_iter()
                .chain(joint.into_iter().flat_map(JointDecision::by_limiter))
        })
    }

    /// The names of the limiters and rules that have charged the request. Rules in shadow mode are
    /// among them, because their costs are settled too.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_layer().flat_map(|by| {
            let (one, several) = match by {
                By::One { limiter, .. } => (Some(limiter.name()), None),
                By::Rules { granted, .. } => (None, Some(granted)),
            };
            let several = several.into_iter().flat_map(RulesGrant::rules);
            one.into_iter().chain(several)
        })
    }

    /// Gives back what was charged, and returns the number of permits that came back:
    /// [`Limiter::refund`] says how many each algorithm gives back. A charge that was
    /// [settled](Self::settle) stays.
    ///
    /// # Errors
    /// The first error of [`RateLimiter::refund`](redisson_rate_limiter::RateLimiter::refund),
    /// after every charge was tried.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have given the charge back.
    pub async fn refund(&self) -> Result<u64> {
        let (mut given_back, mut failure) = (0, None);
        for by in self.by_layer().cloned() {
            match by.refund().await {
                Ok(permits) => given_back += permits,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(given_back), Err)
    }

    /// Gives back in the background what this layer has charged, for a request that was dropped.
    pub(crate) fn refund_in_background(self) {
        match self.by {
            By::One {
                limiter,
                key,
                decision,
            } => {
                if let Some(grant) = decision.into_grant() {
                    limiter.refund_in_background(&key, grant);
                }
            }
            By::Rules { rules, granted } => rules.refund_in_background(granted),
        }
    }

    /// Corrects the charge when the cost is known. An excess is given back, as by
    /// [`refund`](Self::refund). What is missing is charged, as by [`Limiter::settle`], and never
    /// denied, because the request is done. A charge that was settled or given back before stays
    /// as it is. All limiters that decided are settled with the same cost; for rules whose costs
    /// differ, see [`settle_each`](Self::settle_each).
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// async fn count_tokens(charged: &Charged, tokens: u32) -> redisson_rate_limiter::Result<()> {
    ///     charged.settle(tokens).await
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Limiter::settle`].
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have corrected the charge.
    pub async fn settle(&self, cost: u32) -> Result<()> {
        self.by.clone().settle(|_| Some(cost)).await
    }

    /// Corrects the charge of each limiter by the cost that `cost` returns for its name, as
    /// [`settle`](Self::settle) does for one cost. `None` leaves a charge as it is.
    ///
    /// ```
    /// # use redisson_rate_limiter_tower::Charged;
    /// async fn count_tokens(charged: &Charged, tokens: u32) -> redisson_rate_limiter::Result<()> {
    ///     charged.settle_each(|rule| (rule == "tokens").then_some(tokens)).await
    /// }
    /// ```
    ///
    /// # Errors
    /// The first error of [`Limiter::settle`], after every charge was tried.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have corrected some of the charges.
    pub async fn settle_each(&self, cost: impl Fn(&str) -> Option<u32> + Send) -> Result<()> {
        // All costs are computed before the first await, so that `cost` need not be `Sync`.
        let names = self.names();
        let costs = names.filter_map(|limiter| Some((limiter.to_owned(), cost(limiter)?)));
        let costs: HashMap<_, _> = costs.collect();
        let mut settled = Ok(());
        for by in self.by_layer().cloned() {
            let cost = |limiter: &str| costs.get(limiter).copied();
            settled = settled.and(by.settle(cost).await);
        }
        settled
    }

    /// Whether the success or failure of the response decides which charges stay.
    pub(crate) fn depends_on_ending(&self) -> bool {
        matches!(&self.by, By::Rules { granted, .. } if granted.depends_on_ending())
    }

    /// Whether the charge of this layer's limiter or rule `limiter` stays if the request ends with
    /// `ending`.
    pub(crate) fn counts(&self, limiter: &str, ending: Ending) -> bool {
        match &self.by {
            By::One { .. } => true,
            By::Rules { granted, .. } => granted.counts(limiter, ending),
        }
    }

    /// The limits of this layer that the header fields state, the strictest first.
    pub(crate) fn limits(&self) -> Limits<'_> {
        match &self.by {
            By::One {
                limiter, decision, ..
            } => Limits::One(Limit::of(limiter.name(), decision)),
            By::Rules { granted, .. } => {
                let Some(decision) = granted.decision() else {
                    return Limits::One(None);
                };
                let (strictest, decided) = decision.deciding();
                if decision.decisions().len() == 1 {
                    return Limits::One(Limit::of(strictest, decided));
                }
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

impl By {
    async fn refund(self) -> Result<u64> {
        match self {
            Self::One {
                limiter,
                key,
                decision,
            } => match decision.into_grant() {
                Some(grant) => limiter.refund(&key, grant).await.map(u64::from),
                None => Ok(0),
            },
            Self::Rules { rules, granted } => rules.refund(granted).await,
        }
    }

    async fn settle(self, cost: impl Fn(&str) -> Option<u32> + Send) -> Result<()> {
        match self {
            Self::One {
                limiter,
                key,
                decision,
            } => match (decision.into_grant(), cost(limiter.name())) {
                (Some(grant), Some(cost)) => limiter.settle(&key, grant, cost).await,
                _ => Ok(()),
            },
            Self::Rules { rules, granted } => {
                rules.settle(granted, move |rule, _| cost(rule)).await
            }
        }
    }
}

/// The limits that a response states. A single limit needs no allocation.
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
