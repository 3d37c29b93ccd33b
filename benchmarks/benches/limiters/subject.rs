//! The limiters that are measured, with a rule that is soon used up and one that grants everything.

use std::sync::Arc;
use std::time::Duration;

use benchmarks::LARGEST_LOG;
use redisson_rate_limiter::{
    BoxFuture, Decision, FixedWindow, Gcra, LeakyBucket, Limiter, PenaltyTokenBucket, Policy,
    QuotaBucket, Rate, RateLimiter, RedissonClient, Result, SlidingWindowCounter, SlidingWindowLog,
    TokenBucket,
};

/// A limiter.
#[derive(Clone, Copy)]
pub struct Subject {
    pub name: &'static str,
    /// `None` for an RRateLimiter by its name, which has to be set up.
    make: Option<Make>,
}

type Make = fn(&RedissonClient, Rule) -> Result<Arc<dyn Limiter>>;

#[derive(Clone, Copy)]
pub enum Rule {
    /// So many at once, and hardly more within a minute.
    Scarce,
    /// More than anybody asks for, in windows of 10 ms, so that what was granted goes again.
    Plenty,
}

/// What a new target has under the scarce rule.
pub const SCARCE: u32 = 100;
pub const MINUTE: Duration = Duration::from_secs(60);
const PLENTY: u32 = 1_000_000;
const SHORT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

impl Subject {
    pub fn all() -> Vec<Self> {
        let subject = |name, make: Make| Self {
            name,
            make: Some(make),
        };
        vec![
            Self {
                name: "RRateLimiter",
                make: None,
            },
            subject("KeyedRateLimiter", |client, rule| {
                Ok(Arc::new(client.keyed_rate_limiter("", rule.rate())?))
            }),
            subject("SlidingWindowLog", |client, rule| {
                let (limit, window) = match rule {
                    Rule::Scarce => rule.window(),
                    Rule::Plenty => LARGEST_LOG,
                };
                of(client, SlidingWindowLog::new(limit, window))
            }),
            subject("SlidingWindowCounter, 10 periods", |client, rule| {
                let (limit, window) = rule.window();
                of(
                    client,
                    SlidingWindowCounter::new(limit, window).with_period(window / 10),
                )
            }),
            subject("FixedWindow", |client, rule| {
                let (limit, window) = rule.window();
                of(client, FixedWindow::new(limit, window))
            }),
            subject("Gcra", |client, rule| match rule {
                Rule::Scarce => of(client, Gcra::per_minute(1).with_burst(SCARCE)),
                Rule::Plenty => of(client, Gcra::per_second(PLENTY).with_burst(u32::MAX)),
            }),
            subject("TokenBucket", |client, rule| match rule {
                Rule::Scarce => of(client, TokenBucket::per_second(1).with_capacity(SCARCE)),
                Rule::Plenty => of(
                    client,
                    TokenBucket::per_second(100 * PLENTY).with_capacity(PLENTY),
                ),
            }),
            subject("QuotaBucket", |client, rule| match rule {
                Rule::Scarce => of(client, QuotaBucket::new(1, MINUTE).with_capacity(SCARCE)),
                Rule::Plenty => of(client, QuotaBucket::new(100 * PLENTY, SECOND)),
            }),
            subject("LeakyBucket", |client, rule| match rule {
                Rule::Scarce => of(
                    client,
                    LeakyBucket::new(1, MINUTE).with_capacity(SCARCE - 1),
                ),
                Rule::Plenty => of(client, LeakyBucket::new(PLENTY, SHORT)),
            }),
            subject("PenaltyTokenBucket", |client, rule| {
                let policy = match rule {
                    Rule::Scarce => PenaltyTokenBucket::new(1, MINUTE).with_capacity(SCARCE),
                    Rule::Plenty => PenaltyTokenBucket::new(PLENTY, SHORT),
                };
                Ok(Arc::new(
                    client.policy_limiter(policy)?.with_penalty(MINUTE)?,
                ))
            }),
        ]
    }

    /// A limiter for requests on one key. It combines the requests of its own callers only.
    pub async fn limiter(self, client: &RedissonClient, rule: Rule, key: &str) -> Arc<dyn Limiter> {
        let limiter = match self.make {
            Some(make) => make(client, rule),
            None => Named::set_up(client, rule, key).await,
        };
        limiter.expect("a limiter whose numbers are in their ranges")
    }
}

/// An RRateLimiter, by its name.
#[derive(Debug)]
pub struct Named(pub RateLimiter);

impl Named {
    async fn set_up(client: &RedissonClient, rule: Rule, name: &str) -> Result<Arc<dyn Limiter>> {
        let limiter = client.rate_limiter(name);
        limiter.try_set_rate(rule.rate()).await?;
        Ok(Arc::new(Self(limiter)))
    }
}

impl Limiter for Named {
    fn check<'a>(&'a self, _key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(self.0.check(cost))
    }
}

impl Rule {
    fn window(self) -> (u32, Duration) {
        match self {
            Self::Scarce => (SCARCE, MINUTE),
            Self::Plenty => (PLENTY, SHORT),
        }
    }

    fn rate(self) -> Rate {
        let (permits, interval) = self.window();
        Rate::overall(permits.into(), interval)
    }
}

fn of(client: &RedissonClient, policy: impl Policy) -> Result<Arc<dyn Limiter>> {
    Ok(Arc::new(client.policy_limiter(policy)?))
}
