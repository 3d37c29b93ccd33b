//! What the callers of a process do: random requests, each of which may be dropped at a random
//! moment.

use std::time::Duration;

use redisson_rate_limiter::{Decision, Grant, Granted, RateLimiter};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::ledger::Ledger;
use crate::seeded::Seeded;

/// The most permits that one request asks for.
pub const MOST_PERMITS: u32 = 5;

/// One caller and what it holds.
pub struct Caller {
    pub limiter: RateLimiter,
    pub random: Seeded,
    pub ledger: Ledger,
    /// Whether it drops some of its requests.
    gives_up: bool,
    /// Grants that it may give back.
    grants: Vec<Grant>,
}

impl Caller {
    pub fn new(limiter: RateLimiter, random: Seeded) -> Self {
        Self {
            limiter,
            random,
            ledger: Ledger::default(),
            gives_up: true,
            grants: Vec::new(),
        }
    }

    /// Makes it wait for all answers.
    pub fn patient(self) -> Self {
        Self {
            gives_up: false,
            ..self
        }
    }

    /// Takes the permits that releases may give back: a release takes the oldest ones first,
    /// without notice to their holder.
    pub async fn take_to_be_released(&mut self, permits: u32) {
        loop {
            match self.limiter.try_acquire(permits).await {
                Ok(is_granted) => {
                    assert!(is_granted, "the limiter is full at first");
                    self.ledger.held += i64::from(permits);
                    return;
                }
                Err(error) => self.ledger.fail(permits, &error),
            }
        }
    }

    /// Makes this many requests, one after the other.
    pub async fn work(mut self, steps: u64) -> Ledger {
        for _ in 0..steps {
            self.step().await;
        }
        self.ledger
    }

    /// Waits this many times for 3 permits, without ever giving up.
    pub async fn wait(mut self, times: u64) -> Ledger {
        for _ in 0..times {
            match self.limiter.acquire(3).await {
                Ok(()) => self.ledger.grant(3),
                Err(error) => self.ledger.fail(3, &error),
            }
        }
        self.ledger
    }

    async fn step(&mut self) {
        let permits = self.random.below(u64::from(MOST_PERMITS)) as u32 + 1;
        let patience = self.patience();
        let turns = self.random.below(6);
        let limiter = self.limiter.clone();
        match self.random.below(10) {
            0 => {
                let answer = limiter.try_acquire(permits).await;
                self.note(permits, Some(answer));
            }
            1 => {
                let answer = timeout(patience, limiter.try_acquire(permits)).await;
                self.note(permits, answer.ok());
            }
            4 => {
                let answer = limiter.try_acquire_timeout(permits, patience).await;
                self.note(permits, Some(answer));
            }
            5 => {
                let at_most = self.patience();
                let waiting = limiter.try_acquire_timeout(permits, patience);
                let answer = timeout(at_most, waiting).await;
                self.note(permits, answer.ok());
            }
            6 if self.gives_up => {
                let answer = tokio::select! {
                    biased;
                    answer = limiter.acquire(permits) => Some(answer.map(|()| true)),
                    () = yield_often(turns) => None,
                };
                self.note(permits, answer);
            }
            2 | 3 | 6 => {
                let answer = timeout(patience, limiter.acquire(permits)).await;
                self.note(permits, answer.ok().map(|it| it.map(|()| true)));
            }
            7 => match timeout(patience, limiter.check(permits)).await {
                Ok(Ok(Decision::Granted(Granted { grant, .. }))) => {
                    self.ledger.grant(permits);
                    self.grants.push(grant);
                }
                Ok(Ok(Decision::Denied(_))) => {}
                Ok(Err(error)) => self.ledger.fail(permits, &error),
                Err(_) => self.note(permits, None),
            },
            8 => {
                if let Some(grant) = self.grants.pop() {
                    let permits = grant.permits();
                    let answer = limiter.refund(grant).await;
                    self.ledger.give_back(permits, answer);
                }
            }
            _ => {
                let answer = limiter.release(permits).await;
                self.ledger.give_back(permits, answer.map(|()| permits));
            }
        }
    }

    /// Notes the answer to a request; `None` where it was dropped.
    fn note(&mut self, permits: u32, answer: Option<redisson_rate_limiter::Result<bool>>) {
        match answer {
            Some(Ok(true)) => self.ledger.grant(permits),
            Some(Ok(false)) => {}
            Some(Err(error)) => self.ledger.fail(permits, &error),
            None => self.ledger.dropped += i64::from(permits),
        }
    }

    /// How long it waits for an answer: mostly as long as a call takes, at times long enough to get
    /// what others give back.
    fn patience(&mut self) -> Duration {
        if !self.gives_up {
            return Duration::from_secs(3600);
        }
        let longest = if self.random.below(20) == 0 {
            50_000
        } else {
            3_000
        };
        Duration::from_micros(self.random.below(longest))
    }
}

async fn yield_often(turns: u64) {
    for _ in 0..turns {
        yield_now().await;
    }
}
