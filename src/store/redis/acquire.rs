//! The attempts of an acquire: when each is made, and what its answer means for the call.
//!
//! Each attempt has its own deadline, in the server's time, after which the server takes nothing
//! for it. An attempt that follows others carries the last of their deadlines. It looks for what
//! they were granted, and decides only if there is nothing and none of them can still arrive. So at
//! most one attempt of a call takes permits, however often and in whatever order they arrive.
//!
//! A decision is returned once no other retry of the call can arrive: one that arrives when the
//! permits have already been returned would find no grant, and take them again.
//!
//! An attempt is noted in its call when it can be sent, not while it waits for a connection. So the
//! party that gives up on the call knows whether it may have run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::acquire_answer::{AcquireAnswer, Meaning};
use super::acquire_args::{acquire_args, call_key, reclaim_args};
use super::limiter::RedisLimiter;
use super::multi_acquire::AcquirePart;
use super::shared_calls::{PartReply, SharedReply};
use crate::error::{Error, Result};
use crate::link::Pace;
use crate::link::failure::Failure;
use crate::link::limits::{Limits, Repeat};
use crate::rate::RateType;
use crate::store::AcquireCall;
use crate::store::acquire_call::Attempt;
use crate::store::redis::script;
use crate::window::{Acquire, Acquired, Ahead, Retry, SetUp};

/// How far, in ms, the server's clock may be set back within a call, or be behind when another
/// server takes over. The search for the grant of an attempt starts this long before it was sent.
pub(super) const CLOCK_STEP: i64 = 1_000;

const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);

/// How long an attempt may take.
#[derive(Debug, PartialEq, Eq)]
struct AttemptTime {
    /// For how long the server executes it if it arrives.
    valid: Duration,
    /// For how long the client waits for its answer.
    waits: Duration,
}

impl AttemptTime {
    /// The time of an attempt after `too_long` others that took too long, if `remaining` is left of
    /// the call. The first one has as long as its connection may be silent, so that one that is
    /// lost does not hold up the next one for longer, but no less than an answer takes. Each later
    /// one has twice as long.
    ///
    /// The client waits for this attempt until the end of the call if the next one would have less
    /// than twice this time: a server that is slower than this could not answer that one either. If
    /// less than this time would be left then, the server may execute this attempt until the end
    /// too.
    fn new(pace: Pace, response_timeout: Duration, too_long: u32, remaining: Duration) -> Self {
        let first = pace.silence_limit.min(response_timeout / 4);
        let first = first.max(SHORTEST_ATTEMPT).max(pace.answer_time);
        let time = first.saturating_mul(1 << too_long.min(16));
        let unless_left = |times: u32| {
            let is_left = time.saturating_mul(times) < remaining;
            if is_left { time } else { remaining }
        };
        Self {
            valid: unless_left(2),
            waits: unless_left(3),
        }
    }
}

impl RedisLimiter {
    pub(super) async fn acquire_call(
        &self,
        acquire: &AcquireCall,
        deadline: Instant,
    ) -> Result<Acquired> {
        let (store, name) = (&self.store, &self.keys.name);
        let audited_rate = self.audited_rate();
        let mut attempts = store.attempts(name, deadline, Repeat::Safe);
        let call = acquire.audited_at(audited_rate);
        let counted = store
            .multi_acquires
            .enter(name)
            .map_err(|_| Error::NoRuntime)?;
        let mut may_share = counted.is_one_of_many;
        let mut too_long = self.late_attempts.load(Ordering::Relaxed);
        // The score from which the search for earlier grants goes on.
        let mut look_from = None;
        loop {
            let pace = attempts.ready(|| acquire.may_have_run()).await?;
            let server_now = store.server_now(&attempts).await?;
            let remaining = attempts.remaining();
            let time = AttemptTime::new(pace, store.response_timeout, too_long, remaining);
            let started = Instant::now();
            let ends = started + time.waits;
            let now = store.clock.now();
            let attempt = Attempt {
                deadline: server_now + time.valid.as_millis() as i64,
                from: now.unwrap_or(server_now - CLOCK_STEP),
            };
            let before = acquire.note_attempt(attempt)?;
            attempts.sent_before = before.is_some();
            let rate_type = self.rate_type_for(&call);
            let limits = Limits {
                deadline: ends,
                valid_until: started + time.valid,
                ..attempts.limits().at_once().for_requests(call.sharing())
            };

            let retry = before.map(|before| retry_after(&call, before, now, look_from.take()));
            let result = if retry.is_none() && std::mem::take(&mut may_share) {
                let part = AcquirePart::new(&self.keys, rate_type, &call);
                let calls = &store.multi_acquires;
                let entered = calls.send(part, ends, attempt.deadline);
                match entered.await {
                    Some(SharedReply::Answered(result)) => Some(result),
                    Some(SharedReply::Refused) => {
                        acquire.forget_attempt(attempt);
                        continue;
                    }
                    None => None,
                }
            } else {
                let sending = async {
                    let deadline = Some(attempt.deadline);
                    let args = acquire_args(&call, retry.as_ref(), rate_type, now, deadline);
                    let (sets_up, of_call) = (call.set_up.is_some(), call_key(&self.keys, &call));
                    let keys = self.keys.of_acquire(rate_type, sets_up, of_call.as_deref());
                    let sent = script::ACQUIRE.run(&store.connection, &keys, &args, limits);
                    sent.await.map(|answer| PartReply { answer, now })
                };
                // In a box of its own, so that a call that is shared has a small future.
                Some(Box::pin(sending).await)
            };

            if matches!(result, None | Some(Err(Failure::Lost(None)))) && time.waits < remaining {
                too_long += 1;
                // Noted even if this call fails later, so that the next one begins with an attempt
                // that is long enough.
                self.late_attempts.fetch_max(too_long, Ordering::Relaxed);
            }
            let Some(result) = result else {
                // There is no answer, so the attempt may have run.
                attempts.number += 1;
                attempts.again_after(Duration::ZERO).await?;
                continue;
            };
            let has_run = matches!(result, Ok(_) | Err(Failure::Lost(_)));
            attempts.sent_before |= has_run;
            if !has_run {
                acquire.forget_attempt(attempt);
            }
            let Some(PartReply { answer, now }) = attempts.after(result).await? else {
                continue;
            };
            let answer = AcquireAnswer::read(name, answer, now, audited_rate, rate_type)?;
            let server_millis = answer.server_millis;
            store.server_time.learn(server_millis);
            match answer.meaning {
                Meaning::Decided(_) => {}
                Meaning::DeadlineExceeded => acquire.note_deadline_exceeded(attempt, server_millis),
                _ => acquire.forget_attempt(attempt),
            }
            match answer.meaning {
                Meaning::Decided(answer) => {
                    self.learn_lateness(too_long, started.elapsed() * 4 < time.valid);
                    self.interval.store(answer.interval, Ordering::Relaxed);
                    self.note_audit(audited_rate, &answer);
                    self.note_clocks(&answer);
                    self.learn_type(rate_type);
                    store
                        .left_rates
                        .left(name, call.set_up, answer.other_settings());
                    // The caller may return its permits as soon as it has the answer, and another
                    // attempt would take them again.
                    if let Some(deadline) = acquire.last_deadline_except(attempt) {
                        let wait = u64::try_from(deadline - server_millis + 1).unwrap_or(0);
                        sleep(Duration::from_millis(wait).min(attempts.remaining())).await;
                    }
                    return Ok(answer);
                }
                // Sent again with the keys of that type; the deadline bounds the repetitions.
                Meaning::OtherType(rate_type) => self.learn_type(rate_type),
                Meaning::Early(wait) => attempts.again_after(wait).await?,
                Meaning::More(from) => look_from = Some(from),
                Meaning::Again => {}
                // The server received it after its deadline. If the call still has time, it was
                // delayed on its way, or the server's clock was misjudged.
                Meaning::DeadlineExceeded => attempts.again_after(Duration::ZERO).await?,
            }
        }
    }

    /// Remembers how long attempts must be, so that a server that is always slow does not cost each
    /// call a failed attempt.
    fn learn_lateness(&self, too_long: u32, is_ample: bool) {
        let needed = too_long.saturating_sub(u32::from(is_ample));
        if self.late_attempts.load(Ordering::Relaxed) != needed {
            self.late_attempts.store(needed, Ordering::Relaxed);
        }
    }

    /// The type that the limiter will have, or has as far as is known.
    pub(super) fn rate_type_for(&self, call: &Acquire) -> RateType {
        let given = call.set_up.map(|it| it.settings.rate_type);
        let replacing = call.set_up.and_then(SetUp::replacing);
        let known = replacing.map(|it| it.settings.rate_type);
        known
            .or(self.seen_type())
            .or(given)
            .unwrap_or(RateType::Overall)
    }

    /// Gives back what a call took and no caller learned of, once no attempt of it can still
    /// arrive. Does nothing if the call's outcome is claimed before. Returns how many permits came
    /// back.
    pub(super) async fn reclaim_call(&self, acquire: &AcquireCall) -> Result<u32> {
        let name = &self.keys.name;
        let mut attempts = self.attempts(Repeat::Safe);
        let (mut look_from, mut is_ours) = (None, false);
        loop {
            let made = acquire.attempts_made();
            if let Some(made) = made {
                let server_now = self.store.server_now(&attempts).await?;
                if made.deadline >= server_now {
                    let wait = (made.deadline - server_now) as u64 + 1;
                    sleep(Duration::from_millis(wait)).await;
                    // Waiting for the attempts' own deadlines does not count towards this call's
                    // time.
                    attempts = self.attempts(Repeat::Safe);
                    continue;
                }
            }
            // Another attempt may follow until the outcome is claimed.
            if !is_ours {
                if !acquire.claim() {
                    return Ok(0);
                }
                is_ours = true;
                continue; // an attempt may have been noted just before the claim
            }
            let Some(made) = made else {
                return Ok(0); // no attempt was made, or none that ran
            };
            let now = self.store.clock.now();
            let call = acquire.audited_at(self.audited_rate());
            let made = retry_after(&call, made, now, look_from.take());
            let args = reclaim_args(&call, &made, now, acquire.granted_at());
            let all_keys = self.keys.of_refund();
            let sending =
                script::RECLAIM.run(&self.store.connection, &all_keys, &args, attempts.limits());
            let answer = match attempts.step(sending).await {
                Ok(Some(answer)) => AcquireAnswer::read_reclaim(name, answer)?,
                Ok(None) => continue,
                Err(Error::NotInitialized { .. }) => return Ok(0),
                Err(error) => return Err(error),
            };
            self.store.server_time.learn(answer.server_millis);
            match answer.meaning {
                Meaning::Decided(permits) => return Ok(permits),
                Meaning::Early(wait) => attempts.again_after(wait).await?,
                Meaning::More(from) => look_from = Some(from),
                Meaning::OtherType(_) | Meaning::Again | Meaning::DeadlineExceeded => return Ok(0),
            }
        }
    }
}

/// What an attempt must know about the earlier ones. If the client has its own clock, the score of
/// their grant is at most `now` plus what the call asks for ahead.
fn retry_after(call: &Acquire, before: Attempt, now: Option<i64>, look_from: Option<i64>) -> Retry {
    Retry {
        previous_deadline: before.deadline,
        from: look_from.unwrap_or(before.from),
        to: now.unwrap_or(before.deadline) + call.ahead.map_or(0, Ahead::most),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client_vectors::{hold, list, number};
    use crate::window::Requests;

    const ENDLESS: Duration = Duration::MAX;

    #[test]
    fn an_attempt_after_others_is_made_as_the_specification_says() {
        hold("retries", |given| {
            let call = AcquireCall::new(Requests::one(1));
            let attempts = list(&given["noted"]).map(|attempt| Attempt {
                deadline: number(&attempt["deadline"]),
                from: number(&attempt["from"]),
            });
            let attempts: Vec<_> = attempts.collect();
            for &attempt in &attempts {
                call.note_attempt(attempt).unwrap();
            }
            let decided = Attempt {
                deadline: number(&given["deadline"]),
                from: 0,
            };
            let before = call.note_attempt(decided).unwrap();
            let (now, more) = (given["now"].as_i64(), given["more"].as_i64());
            let retry = before.map(|before| retry_after(&call, before, now, more));
            let wait = call.last_deadline_except(decided);
            let wait = wait.map(|deadline| deadline - number(&given["decided_at"]) + 1);
            json!({
                "retry": retry.map(|retry| [retry.previous_deadline, retry.from, retry.to]),
                "wait": wait.unwrap_or(0).max(0),
            })
        });
    }

    /// How long each attempt of a call is valid and waits, if all take too long.
    fn times(silence_limit: u64, answer_time: u64, response_timeout: u64) -> Vec<(u128, u128)> {
        let pace = Pace {
            silence_limit: Duration::from_millis(silence_limit),
            answer_time: Duration::from_millis(answer_time),
        };
        let response_timeout = Duration::from_millis(response_timeout);
        let mut remaining = response_timeout;
        let mut times = Vec::new();
        while !remaining.is_zero() {
            let too_long = times.len() as u32;
            let time = AttemptTime::new(pace, response_timeout, too_long, remaining);
            remaining -= time.waits;
            times.push((time.valid.as_millis(), time.waits.as_millis()));
        }
        times
    }

    #[test]
    fn each_attempt_has_twice_the_time_before_it_and_the_last_what_is_left() {
        assert_eq!(
            times(250, 11, 3_000),
            [(250, 250), (500, 500), (1_000, 2_250)]
        );
        assert_eq!(times(500, 11, 1_200), [(300, 300), (900, 900)]);
        assert_eq!(times(500, 11, 300), [(75, 75), (225, 225)]);
        assert_eq!(times(500, 11, 120), [(50, 120)]);
        assert_eq!(times(500, 11, 100), [(100, 100)]);
        let pace = Pace {
            silence_limit: ENDLESS,
            answer_time: ENDLESS,
        };
        let endless = AttemptTime::new(pace, ENDLESS, u32::MAX, ENDLESS);
        assert_eq!(endless.waits, ENDLESS);
    }

    #[test]
    fn an_attempt_has_the_time_that_an_answer_takes() {
        assert_eq!(times(1_000, 300, 1_000), [(300, 300), (700, 700)]);
        assert_eq!(times(1_000, 400, 1_000), [(400, 1_000)]);
        assert_eq!(times(2_000, 600, 1_000), [(1_000, 1_000)]);
        assert_eq!(times(2_000, 2_000, 1_000), [(1_000, 1_000)]);
    }
}
