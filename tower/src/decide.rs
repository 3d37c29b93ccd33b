//! The decision on a request, by one limiter or by rules.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use redisson_rate_limiter::{
    BoxFuture, Decision, DecisionSource, Error, Limiter, Result, Rules, Verdict,
};
use tokio::time::{Instant, sleep};

use crate::attributes::{AsyncValues, AttributeSources, RequestAttributes};
use crate::charged::Charged;
use crate::key::{FindKey, KeptKey, Key, bounded, non_empty_key};

/// The decision on a request. It comes with the head of the request, which was needed to decide.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each request that is decided at once"
)]
pub(crate) enum Deciding {
    Now(Parts, Answer),
    Later(Later),
}

pub(crate) type Later = BoxFuture<'static, (Parts, Answer)>;

pub(crate) enum Answer {
    /// No limiter applies to the request.
    Free,
    Granted(Charged),
    Denied(Charged),
    Failed {
        error: Error,
        /// The name of the limiter. `None` if rules decide: their errors name the rule.
        limiter: Option<String>,
    },
}

pub(crate) mod sealed {
    use super::{Deciding, Duration, Parts};

    pub trait Decide: Send + Sync + 'static {
        /// Decides a request, and waits for a grant for up to `wait`.
        #[allow(private_interfaces, reason = "the trait is sealed")]
        fn decide(&self, request: Parts, wait: Duration) -> Deciding;
    }
}

/// The key that all requests without a key share.
const UNKNOWN: &str = "unknown";

type Cost = dyn Fn(&Parts) -> u32 + Send + Sync;

/// One limiter decides: see [`RateLimitLayer::new`](crate::RateLimitLayer::new).
#[derive(Clone)]
pub struct OneLimiter {
    limiter: Arc<dyn Limiter>,
    key: KeySource,
    pub(crate) cost: Option<Arc<Cost>>,
}

#[derive(Clone)]
enum KeySource {
    Now(Arc<dyn Key>),
    Later(Arc<FindKey>),
}

impl OneLimiter {
    pub(crate) fn new(limiter: impl Limiter + 'static, key: impl Key) -> Self {
        Self::by(limiter, KeySource::Now(Arc::new(key)))
    }

    pub(crate) fn with_async_key<F>(limiter: impl Limiter + 'static, key: F) -> Self
    where
        F: Fn(&Parts) -> BoxFuture<'_, Option<String>> + Send + Sync + 'static,
    {
        Self::by(limiter, KeySource::Later(Arc::new(key)))
    }

    fn by(limiter: impl Limiter + 'static, key: KeySource) -> Self {
        Self {
            limiter: Arc::new(limiter),
            key,
            cost: None,
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
            KeySource::Now(key) => {
                let key = non_empty_key(&**key, &request).map_or(UNKNOWN.into(), bounded);
                let key = KeptKey::from(key);
                decide(LimiterWithKey { limiter, key, cost }, request, wait)
            }
            KeySource::Later(key) => {
                let key = Arc::clone(key);
                Deciding::Later(Box::pin(async move {
                    let key = key(&request).await.filter(|it| !it.is_empty());
                    let key = key.map_or(UNKNOWN.into(), |it| bounded(it.into()));
                    let key = KeptKey::from(key);
                    let decider = LimiterWithKey { limiter, key, cost };
                    let answer = decide_in_time(decider, &request, wait, None).await;
                    (request, answer)
                }))
            }
        }
    }
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
    rules: Arc<Rules>,
    pub(crate) sources: Arc<AttributeSources>,
}

impl ByRules {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            sources: Arc::default(),
        }
    }
}

impl sealed::Decide for ByRules {
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn decide(&self, request: Parts, wait: Duration) -> Deciding {
        let mut decider = RulesForRequest {
            by: self.clone(),
            async_values: AsyncValues::new(),
        };
        if self.sources.async_keys.is_empty() {
            return decide(decider, request, wait);
        }
        Deciding::Later(Box::pin(async move {
            decider.async_values = decider.by.sources.find_async(&request).await;
            let answer = decide_in_time(decider, &request, wait, None).await;
            (request, answer)
        }))
    }
}

impl fmt::Debug for ByRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRules").finish_non_exhaustive()
    }
}

/// What decides one request: a limiter with the key, or rules with the attributes.
trait Decider: Sized + Send + Sync + 'static {
    type Decided: Send;

    /// Decides at once, if that needs no call to the store and no wait for other requests.
    fn check_now(&self, request: &Parts) -> Option<Result<Self::Decided>>;

    fn check(&self, request: &Parts) -> impl Future<Output = Result<Self::Decided>> + Send;

    /// The strictest limiter's decision; `None` if no limiter applies to the request.
    fn deciding(decided: &Self::Decided) -> Option<&Decision>;

    fn answer(self, decided: Self::Decided) -> Answer;

    fn failed(&self, error: Error) -> Answer;
}

fn decide<A: Decider>(decider: A, request: Parts, wait: Duration) -> Deciding {
    match decider.check_now(&request) {
        Some(Err(error)) => Deciding::Now(request, decider.failed(error)),
        Some(Ok(decided)) if retry_in::<A>(&decided, wait).is_none() => {
            Deciding::Now(request, decider.answer(decided))
        }
        first => Deciding::Later(Box::pin(async move {
            let answer = decide_in_time(decider, &request, wait, first).await;
            (request, answer)
        })),
    }
}

/// Asks until the request is granted, or its next try would come after `wait`. No call is in
/// flight during its pauses. `first` is the result of the first try, if that was made already.
async fn decide_in_time<A: Decider>(
    decider: A,
    request: &Parts,
    wait: Duration,
    first: Option<Result<A::Decided>>,
) -> Answer {
    let start = Instant::now();
    let mut decided = match first {
        Some(first) => first,
        None => decider.check(request).await,
    };
    loop {
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => return decider.failed(error),
        };
        // Durations are compared, because `start + wait` overflows if `wait` is Duration::MAX.
        let time_left = wait.checked_sub(start.elapsed());
        let Some(pause) = time_left.and_then(|time| retry_in::<A>(&decision, time)) else {
            return decider.answer(decision);
        };
        drop(decision);
        sleep(pause).await;
        decided = decider.check(request).await;
    }
}

/// The pause before a retry of a denial whose `retry_after` is shorter, such as zero: it keeps a
/// limiter that always denies so from being asked in a busy loop.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The pause before the next try. `None` if the request was granted, if a failure policy or a rule
/// that blocks denied it, or if the pause is longer than `time_left`.
fn retry_in<A: Decider>(decided: &A::Decided, time_left: Duration) -> Option<Duration> {
    let decision = A::deciding(decided)?;
    if matches!(
        decision.source(),
        DecisionSource::FailurePolicy | DecisionSource::Rule
    ) {
        return None;
    }
    let pause = decision.retry_after()?.max(SHORTEST_PAUSE);
    (pause <= time_left).then_some(pause)
}

/// One limiter, and the key and cost of the request.
struct LimiterWithKey {
    limiter: Arc<dyn Limiter>,
    key: KeptKey,
    cost: u32,
}

impl Decider for LimiterWithKey {
    type Decided = Decision;

    fn check_now(&self, _request: &Parts) -> Option<Result<Decision>> {
        self.limiter.check_now(&self.key, self.cost)
    }

    async fn check(&self, _request: &Parts) -> Result<Decision> {
        self.limiter.check(&self.key, self.cost).await
    }

    fn deciding(decided: &Decision) -> Option<&Decision> {
        Some(decided)
    }

    fn answer(self, decided: Decision) -> Answer {
        let answer = match decided.is_granted() {
            true => Answer::Granted,
            false => Answer::Denied,
        };
        answer(Charged::by_one(self.limiter, self.key, decided))
    }

    fn failed(&self, error: Error) -> Answer {
        let limiter = Some(self.limiter.name().to_owned());
        Answer::Failed { error, limiter }
    }
}

/// Rules, and the values of the request's attributes that were found asynchronously.
struct RulesForRequest {
    by: ByRules,
    async_values: AsyncValues,
}

impl RulesForRequest {
    fn attributes<'a>(&'a self, request: &'a Parts) -> RequestAttributes<'a> {
        RequestAttributes {
            request,
            sources: &self.by.sources,
            async_values: &self.async_values,
        }
    }
}

impl Decider for RulesForRequest {
    type Decided = Verdict;

    fn check_now(&self, request: &Parts) -> Option<Result<Verdict>> {
        self.by.rules.check_now(&self.attributes(request))
    }

    async fn check(&self, request: &Parts) -> Result<Verdict> {
        self.by.rules.check(&self.attributes(request)).await
    }

    fn deciding(decided: &Verdict) -> Option<&Decision> {
        Some(decided.decision()?.deciding().1)
    }

    fn answer(self, decided: Verdict) -> Answer {
        let rules = self.by.rules;
        match decided {
            Verdict::Granted(granted) if granted.is_empty() => Answer::Free,
            Verdict::Granted(granted) => Answer::Granted(Charged::by_rules(rules, granted)),
            Verdict::Denied(joint) => Answer::Denied(Charged::by_rules(rules, joint)),
        }
    }

    fn failed(&self, error: Error) -> Answer {
        let limiter = None;
        Answer::Failed { error, limiter }
    }
}
