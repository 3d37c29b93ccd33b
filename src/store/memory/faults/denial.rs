//! Denials that a test switches on. The answers have what the limiters say of themselves, and
//! nothing is charged.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::client_limiter::MemoryLimiter;
use crate::error::{Error, Result};
use crate::policies::FixedWindow;
use crate::policies::answer::{Answer, Outcome};
use crate::policies::call::{Answers, Call, Purpose, Target};
use crate::store::memory::MemoryClient;
use crate::store::{AcquireCall, LimiterStore};
use crate::window::{Acquired, SetUp};

/// Which requests are denied, and for how long.
pub(super) struct Denial {
    /// In ms, at least 1.
    retry_after: i64,
    is_denied: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// The key of a limiter that never grants its cost, so that a call with it charges no other one.
const DENIES: &str = "denies what a test denies";

impl Denial {
    pub(super) fn new(
        retry_after: Duration,
        is_denied: Box<dyn Fn(&str) -> bool + Send + Sync>,
    ) -> Self {
        /// In ms. Added to any time it gives a number that is exact everywhere.
        const LONGEST: i64 = 1 << 51;
        let millis = i64::try_from(retry_after.as_millis()).unwrap_or(LONGEST);
        Self {
            retry_after: millis.clamp(1, LONGEST),
            is_denied,
        }
    }

    pub(super) fn is_of(&self, name: &str) -> bool {
        (self.is_denied)(name)
    }

    pub(super) fn is_of_any(&self, call: &Call) -> bool {
        call.limiters.iter().any(|target| self.is_of(&target.key))
    }

    /// The answers to a call if a limiter in it is denied.
    pub(super) fn answers(&self, memory: &MemoryClient, call: &Call) -> Result<Answers> {
        let mut limiters = call.limiters.clone();
        limiters.push(Target {
            model: Arc::new(FixedWindow::new(1, Duration::from_millis(1)).into()),
            key: DENIES.into(),
            penalty: None,
        });
        let (mut score, mut answers) = (0, SmallVec::with_capacity(call.costs.len()));
        for costs in call.costs.chunks(call.limiters.len()) {
            let costs = costs.iter().copied().chain([2]);
            let asked = Call::with_purpose(Purpose::Peek, limiters.clone(), costs);
            let would_be = memory.check_call(&asked)?;
            score = would_be.score;
            let each = call.limiters.iter().zip(would_be.answers);
            answers.extend(each.map(|(target, answer)| match self.is_of(&target.key) {
                true => self.denied(answer),
                false => answer,
            }));
        }
        Ok(Answers { score, answers })
    }

    fn denied(&self, answer: Answer) -> Answer {
        if answer.outcome == Outcome::Never {
            return answer;
        }
        Answer {
            outcome: Outcome::Denied,
            remaining: 0,
            retry_after: self.retry_after.max(answer.retry_after),
            available_in: self.retry_after.max(answer.available_in),
            reset: self.retry_after.max(answer.reset),
            delay: 0,
            ..answer
        }
    }

    /// The answer to a call for permits of a denied limiter.
    pub(super) fn answer(&self, limiter: &MemoryLimiter, call: &AcquireCall) -> Result<Acquired> {
        let (stored, now) = limiter.step(|window, at| (window.config(at.server), at.now))?;
        let replacing = call.set_up.and_then(SetUp::replacing);
        let given = call.set_up.map(|it| it.settings);
        let settings = replacing.map(|it| it.settings).or(stored).or(given);
        let settings = settings.ok_or_else(|| Error::not_initialized(&limiter.keys().name))?;
        let (rate, interval) = (settings.rate, settings.interval);
        let mut answer = Acquired::new(now, rate, 0, self.retry_after, interval);
        answer.until_all = self.retry_after.max(interval);
        Ok(answer)
    }
}
