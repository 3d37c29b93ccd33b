//! Callers of an RRateLimiter that record what they hold, and how long each call took.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redisson_rate_limiter::{Decision, Grant, Granted, KeyedRateLimiter, RateLimiter, Result};
use tokio::time::timeout;

use crate::fault::Plan;
use crate::lags::Lags;
use crate::ledger::Ledger;
use crate::seeded::Seeded;

/// The most permits that one request asks for.
const MOST_PERMITS: u64 = 5;

/// How much longer than its response timeout and the delays of the machine a call may take.
const SLACK: Duration = Duration::from_millis(500);

/// A call that takes this long hangs.
const HANG: Duration = Duration::from_secs(60);

/// Measures calls.
#[derive(Clone)]
pub struct Watch {
    pub response_timeout: Duration,
    pub lags: Arc<Lags>,
    pub round: String,
}

impl Watch {
    /// Makes a call. Asserts that it ends within its response timeout and the time that it waits
    /// for permits.
    pub async fn call<T>(&self, waits: Duration, call: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let answer = timeout(HANG, call).await;
        let took = start.elapsed();
        let answer = answer.unwrap_or_else(|_| panic!("a call hangs, {}", self.round));
        let behind = self.lags.since(start);
        let most = self.response_timeout + waits + SLACK + behind * 3;
        assert!(
            took <= most,
            "a call took {took:?}, its response timeout is {:?}, it waits {waits:?}, and the machine was {behind:?} \
             behind: {}",
            self.response_timeout,
            self.round
        );
        answer
    }
}

/// What the requests go to.
#[derive(Clone)]
pub enum Subject {
    Limiter(RateLimiter),
    Keyed(KeyedRateLimiter, String),
}

impl Subject {
    async fn try_acquire(&self, permits: u32) -> Result<bool> {
        match self {
            Self::Limiter(limiter) => limiter.try_acquire(permits).await,
            Self::Keyed(limiter, key) => limiter.try_acquire(key, permits).await,
        }
    }

    async fn check(&self, permits: u32) -> Result<Decision> {
        match self {
            Self::Limiter(limiter) => limiter.check(permits).await,
            Self::Keyed(limiter, key) => limiter.check(key, permits).await,
        }
    }

    async fn acquire(&self, permits: u32) -> Result<()> {
        match self {
            Self::Limiter(limiter) => limiter.acquire(permits).await,
            Self::Keyed(limiter, key) => limiter.acquire(key, permits).await,
        }
    }

    async fn try_acquire_timeout(&self, permits: u32, wait: Duration) -> Result<bool> {
        match self {
            Self::Limiter(limiter) => limiter.try_acquire_timeout(permits, wait).await,
            Self::Keyed(limiter, key) => limiter.try_acquire_timeout(key, permits, wait).await,
        }
    }

    /// The limiter that a grant of this subject goes back to.
    fn limiter(&self) -> RateLimiter {
        match self {
            Self::Limiter(limiter) => limiter.clone(),
            Self::Keyed(limiter, key) => limiter.rate_limiter(key),
        }
    }
}

/// One caller and what it holds.
pub struct Caller {
    pub subject: Subject,
    pub random: Seeded,
    pub watch: Watch,
    /// Whether its limiter has permits set aside for releases, which take the oldest ones of any
    /// caller.
    pub releases: bool,
    /// Whether it leaves some calls before they have ended.
    pub leaves: bool,
    /// What it was granted without a [`Grant`] and has not released.
    loose: u32,
    ledger: Ledger,
    grants: Vec<Grant>,
}

impl Caller {
    pub fn new(subject: Subject, random: Seeded, watch: Watch) -> Self {
        Self {
            subject,
            random,
            watch,
            releases: false,
            leaves: true,
            loose: 0,
            ledger: Ledger::default(),
            grants: Vec::new(),
        }
    }

    /// Makes one request after the other until all faults have happened.
    pub async fn work(mut self, plan: &Plan) -> Ledger {
        while !plan.is_over() {
            self.step().await;
        }
        self.ledger
    }

    async fn step(&mut self) {
        let permits = self.random.below(MOST_PERMITS) as u32 + 1;
        let patience = Duration::from_micros(self.random.below(200_000));
        let (subject, watch) = (self.subject.clone(), self.watch.clone());
        let choice = match self.random.below(12) {
            // So that permits are available from time to time.
            choice @ 6..=9 if !self.leaves => 10 + choice % 2,
            choice => choice,
        };
        match choice {
            0..=2 => {
                let answer = watch
                    .call(Duration::ZERO, subject.try_acquire(permits))
                    .await;
                self.note(permits, Some(answer));
            }
            3..=5 => match watch.call(Duration::ZERO, subject.check(permits)).await {
                Ok(Decision::Granted(Granted { grant, .. })) => {
                    self.ledger.grant(permits);
                    self.grants.push(grant);
                }
                Ok(_) => {}
                Err(error) => self.ledger.fail(permits, &error),
            },
            6 => {
                let waiting = subject.try_acquire_timeout(permits, patience);
                let answer = watch.call(patience, waiting).await;
                // If its timeout passed, it may have left in the middle of a call.
                let answer = Some(answer).filter(|answer| !matches!(answer, Ok(false)));
                self.note(permits, answer);
            }
            7 | 8 => {
                // The caller leaves, mostly in the middle of a call.
                let answer = timeout(patience / 10, subject.acquire(permits)).await;
                self.note(permits, answer.ok().map(|it| it.map(|()| true)));
            }
            9 => {
                let answer = timeout(patience, subject.check(permits)).await;
                self.note(permits, answer.ok().map(|it| it.map(|it| it.is_granted())));
            }
            10 if self.releases && self.loose > 0 => {
                let permits = permits.min(self.loose);
                let limiter = subject.limiter();
                let answer = watch.call(Duration::ZERO, limiter.release(permits)).await;
                self.loose -= permits;
                self.ledger.give_back(permits, answer.map(|()| permits));
            }
            _ => {
                if let Some(grant) = self.grants.pop() {
                    let permits = grant.permits();
                    let limiter = subject.limiter();
                    let answer = watch.call(Duration::ZERO, limiter.refund(grant)).await;
                    self.ledger.give_back(permits, answer);
                }
            }
        }
    }

    /// Notes the answer to a request; `None` where its caller has left.
    fn note(&mut self, permits: u32, answer: Option<Result<bool>>) {
        match answer {
            Some(Ok(true)) => {
                self.loose += permits;
                self.ledger.grant(permits);
            }
            Some(Ok(false)) => {}
            Some(Err(error)) => self.ledger.fail(permits, &error),
            None => self.ledger.dropped += i64::from(permits),
        }
    }
}
