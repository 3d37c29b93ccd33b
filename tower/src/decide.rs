//! Who decides a request: one limiter, or rules.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use redisson_rate_limiter::{
    BoxFuture, Decision, DecisionSource, Error, Limiter, Result, Rules, Verdict,
};
use tokio::time::{Instant, sleep};

use crate::attributes::{Awaited, Found, Seen};
use crate::charged::Charged;
use crate::key::{FindKey, KeptKey, Key, bounded, found};

/// The decision on a request, and its head, which the decision has needed.
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
    /// Nobody limits it.
    Free,
    Granted(Charged),
    Denied(Charged),
    Failed {
        error: Error,
        /// The name of the limiter, if it is one and no rules.
        limiter: Option<String>,
    },
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
        F: Fn(&Parts) -> BoxFuture<'_, Option<String>> + Send + Sync + 'static,
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
                let key = KeptKey::from(key);
                decide(AskedOne { limiter, key, cost }, request, wait)
            }
            KeyOf::Later(key) => {
                let key = Arc::clone(key);
                Deciding::Later(Box::pin(async move {
                    let key = key(&request).await.filter(|it| !it.is_empty());
                    let key = key.map_or(UNKNOWN.into(), |it| bounded(it.into()));
                    let key = KeptKey::from(key);
                    let asked = AskedOne { limiter, key, cost };
                    let answer = decide_in_time(asked, &request, wait, None).await;
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
    pub(crate) found: Arc<Found>,
}

impl ByRules {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            found: Arc::default(),
        }
    }
}

impl sealed::Decide for ByRules {
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn decide(&self, request: Parts, wait: Duration) -> Deciding {
        let mut asked = AskedRules {
            by: self.clone(),
            awaited: Awaited::new(),
        };
        if self.found.awaited.is_empty() {
            return decide(asked, request, wait);
        }
        Deciding::Later(Box::pin(async move {
            asked.awaited = asked.by.found.awaited(&request).await;
            let answer = decide_in_time(asked, &request, wait, None).await;
            (request, answer)
        }))
    }
}

impl fmt::Debug for ByRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRules").finish_non_exhaustive()
    }
}

/// Who is asked about one request.
trait Asked: Sized + Send + Sync + 'static {
    type Decided: Send;

    /// The decision, if it needs no call and waits for nobody.
    fn check_now(&self, request: &Parts) -> Option<Result<Self::Decided>>;

    fn check(&self, request: &Parts) -> impl Future<Output = Result<Self::Decided>> + Send;

    /// The answer of the limiter that decides; `None` if none limits the request.
    fn deciding(decided: &Self::Decided) -> Option<&Decision>;

    fn answer(self, decided: Self::Decided) -> Answer;

    fn failed(&self, error: Error) -> Answer;
}

fn decide<A: Asked>(asked: A, request: Parts, wait: Duration) -> Deciding {
    match asked.check_now(&request) {
        Some(Err(error)) => Deciding::Now(request, asked.failed(error)),
        Some(Ok(decided)) if retry_in::<A>(&decided, wait).is_none() => {
            Deciding::Now(request, asked.answer(decided))
        }
        first => Deciding::Later(Box::pin(async move {
            let answer = decide_in_time(asked, &request, wait, first).await;
            (request, answer)
        })),
    }
}

/// Asks until the request is granted, or would be only after `wait`. Nothing is in flight while it
/// waits. `first` is the first decision, if it is made.
async fn decide_in_time<A: Asked>(
    asked: A,
    request: &Parts,
    wait: Duration,
    first: Option<Result<A::Decided>>,
) -> Answer {
    let start = Instant::now();
    let mut decided = match first {
        Some(first) => first,
        None => asked.check(request).await,
    };
    loop {
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => return asked.failed(error),
        };
        // Times are compared, not points in time: a sum with the longest one overflows.
        let left = wait.checked_sub(start.elapsed());
        let Some(pause) = left.and_then(|left| retry_in::<A>(&decision, left)) else {
            return asked.answer(decision);
        };
        drop(decision);
        sleep(pause).await;
        decided = asked.check(request).await;
    }
}

/// A limiter may say that a retry is worth it at once, as often as it is asked.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// When to ask again. `None` if there is not as much time left, and if the request was granted, or
/// was not denied by the limiter.
fn retry_in<A: Asked>(decided: &A::Decided, left: Duration) -> Option<Duration> {
    let decision = A::deciding(decided)?;
    if matches!(
        decision.source(),
        DecisionSource::FailurePolicy | DecisionSource::Rule
    ) {
        return None;
    }
    let pause = decision.retry_after()?.max(SHORTEST_PAUSE);
    (pause <= left).then_some(pause)
}

/// One limiter, about one key.
struct AskedOne {
    limiter: Arc<dyn Limiter>,
    key: KeptKey,
    cost: u32,
}

impl Asked for AskedOne {
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

/// Rules, about one request.
struct AskedRules {
    by: ByRules,
    awaited: Awaited,
}

impl AskedRules {
    fn seen<'a>(&'a self, request: &'a Parts) -> Seen<'a> {
        Seen {
            request,
            found: &self.by.found,
            awaited: &self.awaited,
        }
    }
}

impl Asked for AskedRules {
    type Decided = Verdict;

    fn check_now(&self, request: &Parts) -> Option<Result<Verdict>> {
        self.by.rules.check_now(&self.seen(request))
    }

    async fn check(&self, request: &Parts) -> Result<Verdict> {
        self.by.rules.check(&self.seen(request)).await
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
