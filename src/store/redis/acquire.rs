//! The attempts of an acquire: when each is made, and what its answer means for the call.
//!
//! Each attempt has its own deadline, in the server's time, after which the server takes nothing for it. An attempt
//! that follows others carries the last of their deadlines. It looks for what they were granted, and decides only if
//! there is nothing and none of them can still arrive. So at most one attempt of a call takes permits, however often
//! and in whatever order they arrive.
//!
//! A decision is returned once no other retry of the call can arrive: one that arrives when the permits have already been
//! returned would find no grant, and take them again.
//!
//! An attempt is noted in its call when it can be sent, not while it waits for a connection. So the party that gives up
//! on the call knows whether it may have run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::acquire_answer::{AcquireAnswer, Outcome};
use super::acquire_args::{acquire_args, call_key, reclaim_args};
use super::failure::Failure;
use super::limiter::RedisLimiter;
use super::multi_acquire::{Entered, Sent};
use super::retry::{Attempts, Limits, Repeat};
use crate::error::{Error, Result};
use crate::model::{Acquire, Answer, Retry};
use crate::rate::RateType;
use crate::script;
use crate::store::AcquireCall;
use crate::store::acquire_call::Attempt;

/// How far the server's clock may be set back within a call, or be behind when another server takes over: the search
/// for what an attempt was granted starts this long before the attempt was sent.
pub(super) const CLOCK_STEP: i64 = 1_000;

const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);

/// How long an attempt may take after `too_long` attempts that took too long: at first as long as its connection may be
/// silent. One that is lost holds up the next one for no longer.
fn attempt_time(silence_limit: Duration, response_timeout: Duration, too_long: u32) -> Duration {
    let first = silence_limit.min(response_timeout / 4);
    first
        .max(SHORTEST_ATTEMPT)
        .saturating_mul(1 << too_long.min(16))
}

fn indeterminate<T>() -> Result<T> {
    Err(Error::Indeterminate { source: None })
}

impl RedisLimiter {
    pub(super) async fn acquire_call(
        &self,
        acquire: &AcquireCall,
        deadline: Instant,
    ) -> Result<Answer> {
        let (store, name) = (&self.store, &self.keys.name);
        let audited_rate = self.audited_rate();
        let mut attempts = Attempts::new(deadline, Repeat::Safe);
        let call = Acquire {
            call_id: acquire.id,
            audited_rate,
            requests: acquire.requests.clone(),
            newer_than: acquire.newer_than,
            set_up: acquire.set_up,
        };
        let in_flight = store.multi_acquires.enter().map_err(|_| Error::NoRuntime)?;
        let mut may_share = in_flight.is_one_of_many();
        let mut too_long = self.late_attempts.load(Ordering::Relaxed);
        // Where a search for earlier grants goes on.
        let mut look_from = None;
        loop {
            let silence_limit = match store.connection.ready(name, deadline).await {
                Ok(silence_limit) => silence_limit,
                Err(failure) => {
                    // Another runtime may have made an attempt in the meantime.
                    attempts.sent_before |= acquire.may_have_run();
                    attempts.after::<Sent>(name, Err(failure)).await?;
                    continue;
                }
            };
            let server_now = store.server_now(name, &mut attempts).await?;
            let time = attempt_time(silence_limit, store.response_timeout, too_long);
            let time = time.min(attempts.remaining());
            let started = Instant::now();
            let ends = started + time;
            let now = store.clock.now();
            let attempt = Attempt {
                deadline: server_now + time.as_millis() as i64,
                from: now.unwrap_or(server_now - CLOCK_STEP),
            };
            let before = acquire.note_attempt(attempt)?;
            attempts.sent_before = before.is_some();
            let rate_type = self.rate_type_for(&call);

            let result = if let Some(before) = before {
                let retry = retry_after(before, now, look_from.take());
                let args =
                    acquire_args(&call, Some(&retry), rate_type, now, Some(attempt.deadline));
                Some(self.send_alone(&call, rate_type, &args, now, ends).await)
            } else if std::mem::take(&mut may_share) {
                let (keys, deadline) = (&self.keys, attempt.deadline);
                let calls = &store.multi_acquires;
                let entered = calls.acquire(&in_flight, keys, rate_type, &call, ends, deadline);
                match entered.await {
                    Some(Entered::Answered(result)) => Some(result),
                    Some(Entered::Refused) => {
                        acquire.forget_attempt(attempt);
                        continue;
                    }
                    None => None,
                }
            } else {
                let args = acquire_args(&call, None, rate_type, now, Some(attempt.deadline));
                Some(self.send_alone(&call, rate_type, &args, now, ends).await)
            };

            if let None | Some(Err(Failure::Lost(None))) = result {
                too_long += 1;
            }
            let Some(result) = result else {
                // Nothing says so, so it may have run.
                if attempts.remaining().is_zero() {
                    return indeterminate();
                }
                continue;
            };
            let has_run = matches!(result, Ok(_) | Err(Failure::Lost(_)));
            attempts.sent_before |= has_run;
            if !has_run {
                acquire.forget_attempt(attempt);
            }
            let Some(Sent { answer, now }) = attempts.after(name, result).await? else {
                continue;
            };
            let answer = AcquireAnswer::read(name, answer, now, audited_rate)?;
            let server_millis = answer.server_millis;
            store.server_time.learn(server_millis);
            match answer.outcome {
                Outcome::Decided(_) => {}
                Outcome::DeadlineExceeded => acquire.note_deadline_exceeded(attempt, server_millis),
                _ => acquire.forget_attempt(attempt),
            }
            match answer.outcome {
                Outcome::Decided(answer) => {
                    self.learn_lateness(too_long, started.elapsed() * 4 < time);
                    if !answer.found {
                        self.note_audit(audited_rate, &answer);
                    }
                    // The caller may return its permits as soon as it has the answer, and another attempt would take them again.
                    if let Some(deadline) = acquire.last_deadline_except(attempt) {
                        let wait = u64::try_from(deadline - server_millis + 1).unwrap_or(0);
                        sleep(Duration::from_millis(wait).min(attempts.remaining())).await;
                    }
                    return Ok(answer);
                }
                // Sent again with the keys of that type; the deadline bounds the repetitions.
                Outcome::OtherType(rate_type) => self.learn_type(rate_type),
                Outcome::Early(wait) if wait < attempts.remaining() => sleep(wait).await,
                Outcome::Early(_) => return indeterminate(),
                Outcome::More(from) => look_from = Some(from),
                Outcome::Again => {}
                // The server received it after its deadline. If the call still has time, it was delayed on its way, or
                // the server's clock was misjudged.
                Outcome::DeadlineExceeded if !attempts.remaining().is_zero() => {}
                Outcome::DeadlineExceeded => return indeterminate(),
            }
        }
    }

    /// Remembers how long attempts must be, so that a server that is always slow does not cost each call a failed
    /// attempt.
    fn learn_lateness(&self, too_long: u32, is_ample: bool) {
        let needed = too_long.saturating_sub(u32::from(is_ample));
        if self.late_attempts.load(Ordering::Relaxed) != needed {
            self.late_attempts.store(needed, Ordering::Relaxed);
        }
    }

    /// The type that the limiter has, or will have.
    pub(super) fn rate_type_for(&self, call: &Acquire) -> RateType {
        call.set_up
            .map_or_else(|| self.rate_type(), |set_up| set_up.settings.rate_type)
    }

    /// Sends an attempt as a separate call, which ends at `ends`.
    async fn send_alone(
        &self,
        call: &Acquire,
        rate_type: RateType,
        args: &script::Args,
        now: Option<i64>,
        ends: Instant,
    ) -> Result<Sent, Failure> {
        let of_call = call_key(&self.keys, call);
        let sets_up = call.set_up.is_some();
        let keys = self.keys.of_acquire(rate_type, sets_up, of_call.as_deref());
        let limits = Limits::new(ends, Repeat::Safe).at_once();
        let sending = script::ACQUIRE.run(&self.store.connection, &keys, args, limits);
        let answer = sending.await?;
        Ok(Sent { answer, now })
    }

    /// Gives back what a call took and was not delivered, once no attempt of it can still arrive, unless its outcome is
    /// claimed before. Returns how many permits came back.
    pub(super) async fn reclaim_call(&self, acquire: &AcquireCall) -> Result<u32> {
        let name = &self.keys.name;
        let mut attempts = Attempts::new(self.store.deadline(), Repeat::Safe);
        let (mut look_from, mut is_ours) = (None, false);
        loop {
            let Some(made) = acquire.attempts_made() else {
                // No attempt was made, or none that ran. Between two attempts the call is not over: the claim ends it.
                if is_ours || !acquire.claim() {
                    return Ok(0);
                }
                is_ours = true;
                continue; // another attempt may have been noted before the claim
            };
            let server_now = self.store.server_now(name, &mut attempts).await?;
            if made.deadline >= server_now {
                sleep(Duration::from_millis(
                    (made.deadline - server_now) as u64 + 1,
                ))
                .await;
                // Waiting for the attempts' own deadlines does not count towards this call's time.
                attempts = Attempts::new(self.store.deadline(), Repeat::Safe);
                continue;
            }
            if !is_ours {
                if !acquire.claim() {
                    return Ok(0);
                }
                is_ours = true;
                continue; // another attempt may have been noted before the claim
            }
            let now = self.store.clock.now();
            let made = retry_after(made, now, look_from.take());
            let args = reclaim_args(
                &acquire.id,
                &acquire.requests,
                &made,
                now,
                self.audited_rate(),
                acquire.granted_at(),
            );
            let all_keys = self.keys.of_refund();
            let sending =
                script::RECLAIM.run(&self.store.connection, &all_keys, &args, attempts.limits());
            let answer = match attempts.step(name, sending).await {
                Ok(Some(answer)) => AcquireAnswer::read_reclaim(name, answer)?,
                Ok(None) => continue,
                Err(Error::NotInitialized { .. }) => return Ok(0),
                Err(error) => return Err(error),
            };
            self.store.server_time.learn(answer.server_millis);
            match answer.outcome {
                Outcome::Decided(permits) => return Ok(permits),
                Outcome::Early(wait) if wait < attempts.remaining() => sleep(wait).await,
                Outcome::Early(_) => return indeterminate(),
                Outcome::More(from) => look_from = Some(from),
                Outcome::OtherType(_) | Outcome::Again | Outcome::DeadlineExceeded => return Ok(0),
            }
        }
    }
}

/// What an attempt must know about the earlier ones. If the caller passes the clock, their grants have a score of at
/// most now.
fn retry_after(before: Attempt, now: Option<i64>, look_from: Option<i64>) -> Retry {
    Retry {
        previous_deadline: before.deadline,
        from: look_from.unwrap_or(before.from),
        to: now.unwrap_or(before.deadline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_takes_a_quarter_of_the_calls_time_at_most_and_after_each_that_took_too_long_twice_that()
     {
        let times = |silence_limit, response_timeout| {
            let [silence_limit, response_timeout] =
                [silence_limit, response_timeout].map(Duration::from_millis);
            [0, 1, 2]
                .map(|too_long| attempt_time(silence_limit, response_timeout, too_long).as_millis())
        };
        assert_eq!(times(250, 3_000), [250, 500, 1_000]);
        assert_eq!(times(500, 1_200), [300, 600, 1_200]);
        assert_eq!(times(500, 150), [100, 200, 400]);
        assert_eq!(times(1_500, 60_000), [1_500, 3_000, 6_000]);
        let endless = attempt_time(Duration::MAX, Duration::MAX, u32::MAX);
        assert!(endless > Duration::from_secs(3600));
    }
}
