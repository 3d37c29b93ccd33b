//! Who decides a request: one limiter, or rules.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use http::request::Parts;
use redisson_rate_limiter::{Decision, DecisionSource, Error, Limiter, Result, Rules, Verdict};
use tokio::time::{Instant, sleep};

use crate::charged::Charged;
use crate::key::{AsyncKey, KeptKey, Key, bounded, found};

/// The decision on a request, and its head, which the decision has needed.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each request that is decided at once"
)]
pub(crate) enum Deciding {
    Now(Parts, Answer),
    Later(Later),
}

pub(crate) type Later = Pin<Box<dyn Future<Output = (Parts, Answer)> + Send>>;

pub(crate) enum Answer {
    /// Nobody limits it.
    Free,
    Granted(Charged),
    Denied(Charged),
    Failed(Error),
}

pub(crate) mod sealed {
    use super::{Deciding, Duration, Parts};

    pub trait Decide: Send + Sync + 'static {
        /// Decides a request. It waits for a grant for up to `wait`.
        #[allow(private_interfaces, reason = "the trait is sealed")]
        fn decide(&self, request: Parts, wait: Duration) -> Deciding;
    }
}

/// The key of a request that has none.
const UNKNOWN: &str = "unknown";

pub(crate) type FindKey =
    dyn Fn(&Parts) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> + Send + Sync;
type Cost = dyn Fn(&Parts) -> u32 + Send + Sync;

/// One limiter decides: see [`RateLimitLayer::new`](crate::RateLimitLayer::new).
#[derive(Clone)]
pub struct OneLimiter {
    limiter: Arc<dyn Limiter>,
    key: KeyOf,
    pub(crate) cost: Option<Arc<Cost>>,
}

#[derive(Clone)]
enum KeyOf {
    Now(Arc<dyn Key>),
    Later(Arc<FindKey>),
}

impl OneLimiter {
    pub(crate) fn new(limiter: impl Limiter + 'static, key: impl Key) -> Self {
        Self::by(limiter, KeyOf::Now(Arc::new(key)))
    }

    pub(crate) fn with_async_key<F>(limiter: impl Limiter + 'static, key: F) -> Self
    where
        F: Fn(&Parts) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>>
            + Send
            + Sync
            + 'static,
    {
        Self::by(limiter, KeyOf::Later(Arc::new(key)))
    }

    fn by(limiter: impl Limiter + 'static, key: KeyOf) -> Self {
        Self {
            limiter: Arc::new(limiter),
            key,
            cost: None,
        }
    }

    fn answer(limiter: Arc<dyn Limiter>, key: KeptKey, decided: Result<Decision>) -> Answer {
        match decided {
            Ok(decision) => {
                let is_granted = decision.is_granted();
                let charged = Charged::by_one(limiter, key, decision);
                if is_granted {
                    Answer::Granted(charged)
                } else {
                    Answer::Denied(charged)
                }
            }
            Err(error) => Answer::Failed(error),
        }
    }
}

impl sealed::Decide for OneLimiter {
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn decide(&self, request: Parts, wait: Duration) -> Deciding {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(&request));
        if cost == 0 {
            return Deciding::Now(request, Answer::Free);
        }
        let limiter = Arc::clone(&self.limiter);
        match &self.key {
            KeyOf::Now(key) => {
                let key = found(&**key, &request).map_or(UNKNOWN.into(), bounded);
                let decided = limiter.check_now(&key, cost);
                let key = KeptKey::from(key);
                match decided {
                    Some(decided) if is_final(&decided, wait) => {
                        Deciding::Now(request, Self::answer(limiter, key, decided))
                    }
                    first => Deciding::Later(Box::pin(async move {
                        let decided = decide_in_time(&*limiter, &key, cost, wait, first).await;
                        (request, Self::answer(limiter, key, decided))
                    })),
                }
            }
            KeyOf::Later(key) => {
                let key = Arc::clone(key);
                Deciding::Later(Box::pin(async move {
                    let key = key(&request).await.filter(|it| !it.is_empty());
                    let key = key.map_or(UNKNOWN.into(), |it| bounded(it.into()));
                    let key = KeptKey::from(key);
                    let decided = decide_in_time(&*limiter, &key, cost, wait, None).await;
                    (request, Self::answer(limiter, key, decided))
                }))
            }
        }
    }
}

/// Whether a request has its answer by this decision.
fn is_final(decided: &Result<Decision>, wait: Duration) -> bool {
    match decided {
        Ok(Decision::Granted(granted)) => granted.delay.is_zero(),
        Ok(denied) => retry_in(denied, wait).is_none(),
        Err(_) => true,
    }
}

/// Asks until the request is granted, or would be only after `wait`. Nothing is in flight while it waits. `first` is the
/// first decision, if it is made.
async fn decide_in_time(
    limiter: &dyn Limiter,
    key: &str,
    cost: u32,
    wait: Duration,
    first: Option<Result<Decision>>,
) -> Result<Decision> {
    let start = Instant::now();
    let mut decision = match first {
        Some(first) => first?,
        None => limiter.check(key, cost).await?,
    };
    while let Some(pause) = left(start, wait).and_then(|left| retry_in(&decision, left)) {
        sleep(pause).await;
        decision = limiter.check(key, cost).await?;
    }
    if let Decision::Granted(granted) = &mut decision {
        // What it says is of the time at which it may proceed.
        let delay = mem::take(&mut granted.delay);
        sleep(delay).await;
        granted.reset = granted.reset.saturating_sub(delay);
    }
    Ok(decision)
}

/// The same, by rules.
async fn apply_in_time(
    rules: &Rules<Parts, ()>,
    request: &Parts,
    wait: Duration,
    first: Option<Result<Verdict<()>>>,
) -> Result<Verdict<()>> {
    let start = Instant::now();
    let mut verdict = match first {
        Some(first) => first?,
        None => rules.check(request).await?,
    };
    while let Some(pause) = left(start, wait).and_then(|left| rejected_for(&verdict, left)) {
        sleep(pause).await;
        verdict = rules.check(request).await?;
    }
    Ok(verdict)
}

/// When to ask again, as [`retry_in`].
fn rejected_for(verdict: &Verdict<()>, left: Duration) -> Option<Duration> {
    match verdict {
        Verdict::Granted(_) => None,
        Verdict::Rejected((), joint) => retry_in(joint.deciding().1, left),
    }
}

/// What is left of the time to wait. Times are compared, not points in time: a sum with the longest one overflows.
fn left(start: Instant, wait: Duration) -> Option<Duration> {
    wait.checked_sub(start.elapsed())
}

/// A limiter may say that a retry is worth it at once, as often as it is asked.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// When to ask again. `None` if there is not as much time left, and if the request was granted, or was not denied by the limiter.
fn retry_in(decision: &Decision, left: Duration) -> Option<Duration> {
    if matches!(
        decision.source(),
        DecisionSource::FailurePolicy | DecisionSource::Rule
    ) {
        return None;
    }
    let pause = decision.retry_after()?.max(SHORTEST_PAUSE);
    (pause <= left).then_some(pause)
}

impl fmt::Debug for OneLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneLimiter")
            .field("limiter", &self.limiter.name())
            .finish_non_exhaustive()
    }
}

/// Rules decide: see [`RateLimitLayer::by_rules`](crate::RateLimitLayer::by_rules).
#[derive(Clone)]
pub struct ByRules {
    rules: Arc<Rules<Parts, ()>>,
    /// Finds the key of [`AsyncKey`].
    key: Option<Arc<FindKey>>,
}

impl ByRules {
    pub(crate) fn new(rules: Arc<Rules<Parts, ()>>) -> Self {
        Self { rules, key: None }
    }

    pub(crate) fn with_async_key<F>(rules: Arc<Rules<Parts, ()>>, key: F) -> Self
    where
        F: Fn(&Parts) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>>
            + Send
            + Sync
            + 'static,
    {
        Self {
            rules,
            key: Some(Arc::new(key)),
        }
    }

    fn answer(rules: Arc<Rules<Parts, ()>>, verdict: Result<Verdict<()>>) -> Answer {
        match verdict {
            Ok(Verdict::Granted(None)) => Answer::Free,
            Ok(Verdict::Granted(Some(joint))) => Answer::Granted(Charged::by_rules(rules, joint)),
            Ok(Verdict::Rejected((), joint)) => Answer::Denied(Charged::by_rules(rules, joint)),
            Err(error) => Answer::Failed(error),
        }
    }
}

impl sealed::Decide for ByRules {
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn decide(&self, mut request: Parts, wait: Duration) -> Deciding {
        let rules = Arc::clone(&self.rules);
        if let Some(key) = &self.key {
            let key = Arc::clone(key);
            return Deciding::Later(Box::pin(async move {
                let outer = AsyncKey::set(key(&request).await, &mut request);
                let verdict = apply_in_time(&rules, &request, wait, None).await;
                AsyncKey::set(outer, &mut request);
                (request, Self::answer(rules, verdict))
            }));
        }
        match rules.check_now(&request) {
            Some(Ok(verdict)) if rejected_for(&verdict, wait).is_none() => {
                Deciding::Now(request, Self::answer(rules, Ok(verdict)))
            }
            first => Deciding::Later(Box::pin(async move {
                let verdict = apply_in_time(&rules, &request, wait, first).await;
                (request, Self::answer(rules, verdict))
            })),
        }
    }
}

impl fmt::Debug for ByRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRules").finish_non_exhaustive()
    }
}
