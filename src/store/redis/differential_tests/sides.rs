//! Takes each step on both sides, and compares the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::keyspace::as_set;
use super::steps::{Corrupt, NEVER, Request, Step};
use super::{CLIENTS, TTL_UNIT};
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::keys::Keys;
use crate::link::failure::Failure;
use crate::link::limits::Limits;
use crate::permit::CallId;
use crate::rate::RateType;
use crate::store::redis::RedisStore;
use crate::store::redis::acquire_answer::{AcquireAnswer, Meaning};
use crate::store::redis::acquire_args::{acquire_args, call_key, reclaim_args};
use crate::store::redis::failure;
use crate::store::redis::limiter::RedisLimiter;
use crate::store::redis::multi_acquire::AcquirePart;
use crate::store::redis::script;
use crate::store::redis::shared_calls::SharedReply;
use crate::store::{IfMissing, LimiterChange, LimiterStore, PermitsInUse, TimeToLive};
use crate::window::{
    Acquire, Ahead, At, Condition, Expiry, Requests, Retry, Run, SetUp, Settings, Window,
};

/// Both sides of the comparison, and what later steps refer to.
pub(super) struct Sides {
    pub(super) redis: RedisStore,
    pub(super) connection: MultiplexedConnection,
    pub(super) model: Window,
    pub(super) limiters: [Arc<RedisLimiter>; 2],
    pub(super) now: Arc<AtomicI64>,
    pub(super) calls: u64,
    pub(super) last_call: Option<Acquire>,
    pub(super) first_attempt: i64,
    pub(super) last_attempt: i64,
    pub(super) grants: Vec<Grant>,
    pub(super) next_ttl: i64,
}

/// How a call reaches the server.
#[derive(Debug, Clone, Copy)]
enum SentAs {
    First,
    /// By another attempt.
    Again(Retry),
    /// By the same bytes as before.
    Copy,
}

impl Sides {
    pub(super) fn keys(&self) -> [Keys; 2] {
        [0, 1].map(|client| Keys::clone(&self.limiters[client].keys))
    }

    /// Takes a step on both sides and compares the answers.
    pub(super) async fn take(&mut self, step: &Step, client: usize) {
        let limiter = Arc::clone(&self.limiters[client]);
        let client = CLIENTS[client];
        let at = At {
            now: self.now.load(Ordering::Relaxed),
            server: 0,
        };
        match step {
            Step::Pass(millis) => {
                self.now.fetch_add(*millis, Ordering::Relaxed);
            }
            Step::Acquire(request) => {
                let call_id = self.next_call_id();
                let runs = request.runs.iter();
                let runs = runs.map(|&(permits, count)| Run { permits, count });
                let requests = Requests {
                    runs: runs.collect(),
                    fifo: request.fifo,
                    share: request.share,
                    debt: request.debt,
                };
                let call = Acquire {
                    id: call_id,
                    audited_rate: request.audited_rate,
                    requests,
                    newer_than: request.newer_than_age.map(|age| at.now - age),
                    set_up: self.set_up(request, at),
                    ahead: request.ahead,
                };
                let call = match self.is_exact(call.ahead, call.set_up) {
                    true => call,
                    false => Acquire {
                        ahead: None,
                        ..call
                    },
                };
                self.acquire(&limiter, at, client, call, SentAs::First)
                    .await;
            }
            Step::SendAgain(before) => {
                if let Some(call) = self.last_call.clone() {
                    let retry = before.retry(self.first_attempt, self.last_attempt);
                    let sent = SentAs::Again(retry);
                    self.acquire(&limiter, at, client, call, sent).await;
                }
            }
            Step::Copy => {
                let single = self
                    .last_call
                    .take_if(|call| call.requests.single().is_some());
                if let Some(call) = single {
                    self.acquire(&limiter, at, client, call, SentAs::Copy).await;
                }
            }
            Step::Reclaim(before) => {
                if let Some(call) = self.last_call.clone() {
                    let made = before.retry(self.first_attempt, self.last_attempt);
                    self.reclaim(&limiter, at, client, &call, &made).await;
                }
            }
            Step::Release(permits, audited_rate) => {
                limiter.set_audited_rate(*audited_rate);
                let redis = limiter.release(*permits).await;
                let model = self.model.release(at, client, *permits, *audited_rate);
                assert_eq!(initialized(redis), model.ok().map(|_left| ()));
            }
            Step::Hold(millis, audited_rate) => {
                if !self.is_exact(Some(Ahead::Lease(*millis)), None) {
                    return;
                }
                let call_id = self.next_call_id();
                limiter.set_audited_rate(*audited_rate);
                let redis = limiter.hold(*millis, call_id).await;
                let model = &mut self.model;
                let model = model.hold(at, client, *millis, &call_id, *audited_rate);
                assert_eq!(initialized(redis), model.ok());
            }
            Step::Refund(which, permits, audited_rate) => {
                let Some(last) = self.grants.len().checked_sub(which + 1) else {
                    return;
                };
                let grant = {
                    let it = &self.grants[last];
                    Grant::new(it.score, it.call_id, *permits).with_span(it.span)
                };
                limiter.set_audited_rate(*audited_rate);
                let redis = limiter.refund(&grant).await;
                let model = self.model.refund(at, client, &grant, *audited_rate);
                assert_eq!(initialized(redis), model.ok());
            }
            Step::Settle(which, settlement, audited_rate) => {
                let Some(last) = self.grants.len().checked_sub(which + 1) else {
                    return;
                };
                let lease = &self.grants[last];
                limiter.set_audited_rate(*audited_rate);
                let redis = limiter.settle(lease, *settlement);
                let redis = initialized(redis.await);
                let model = self
                    .model
                    .settle(at, client, lease, *settlement, *audited_rate);
                assert_eq!(redis, model.ok());
            }
            Step::AvailablePermits => {
                let redis = limiter.available_permits().await;
                assert_eq!(
                    initialized(redis),
                    self.model.available_permits(at, client).ok()
                );
            }
            Step::TrySetRate(rate) => {
                let redis = limiter
                    .change(LimiterChange::TrySetRate(*rate))
                    .await
                    .unwrap();
                assert_eq!(redis, self.model.try_set_rate(at, client, *rate));
            }
            Step::SetRate(rate) => {
                limiter.change(LimiterChange::SetRate(*rate)).await.unwrap();
                self.model.set_rate(at, client, *rate);
            }
            Step::UpdateRate(rate, state, if_missing) => {
                let change = LimiterChange::UpdateRate(*rate, *state, *if_missing);
                let redis = limiter.change(change);
                let keep = *state == PermitsInUse::Keep;
                let only_existing = *if_missing == IfMissing::DoNothing;
                let model = self
                    .model
                    .update_rate(at, client, *rate, keep, only_existing);
                assert_eq!(redis.await.unwrap(), model);
            }
            Step::Config => {
                let redis = limiter.config().await.unwrap();
                let model = self.model.config(at.server).map(Settings::rate);
                assert_eq!(redis, model);
            }
            Step::Exists => {
                let redis = limiter.remain_time_to_live().await.unwrap() != TimeToLive::Missing;
                assert_eq!(redis, self.model.exists(at.server));
            }
            Step::Delete => {
                let redis = limiter.change(LimiterChange::DELETE).await.unwrap();
                let (now, always) = (Expiry::In(0), Condition::Always);
                assert_eq!(redis, self.model.expire(client, at.server, now, always));
            }
            Step::Expire(condition) => {
                let expiry = Expiry::In(self.new_ttl());
                let redis = limiter
                    .change(LimiterChange::Expire(expiry, *condition))
                    .await
                    .unwrap();
                assert_eq!(
                    redis,
                    self.model.expire(client, at.server, expiry, *condition)
                );
            }
            Step::ExpireAt => {
                // A time in the past, so that the keys are removed.
                let expiry = Expiry::At(-1);
                let always = Condition::Always;
                let redis = limiter
                    .change(LimiterChange::Expire(Expiry::At(1), always))
                    .await
                    .unwrap();
                assert_eq!(redis, self.model.expire(client, at.server, expiry, always));
            }
            Step::ClearExpire => {
                let redis = limiter.change(LimiterChange::ClearExpire).await.unwrap();
                assert_eq!(redis, self.model.clear_expire(client, at.server));
            }
            Step::RemainTimeToLive => {
                let redis = match limiter.remain_time_to_live().await.unwrap() {
                    TimeToLive::Missing => None,
                    TimeToLive::Unlimited => Some(None),
                    TimeToLive::Remaining(left) => Some(as_set(left.as_millis() as i64)),
                };
                assert_eq!(redis, self.model.remain_time_to_live(at.server));
            }
            Step::Corrupt(corrupt) => self.corrupt(corrupt, &limiter.keys, at).await,
        }
    }

    /// The settings that a request requires of the limiter.
    fn set_up(&mut self, request: &Request, at: At) -> Option<SetUp> {
        let mut set_up = request.set_up?;
        if request.only_keep_alive
            && let Some(settings) = self.model.config(at.server)
        {
            let keep_alive = set_up.settings.keep_alive;
            set_up.settings = Settings {
                keep_alive,
                ..settings
            };
        }
        Some(set_up)
    }

    /// Whether the length of a lease is the same on both sides: it must not depend on the ms left
    /// of a time to live.
    fn is_exact(&self, ahead: Option<Ahead>, set_up: Option<SetUp>) -> bool {
        let hash = &self.model.settings;
        // A call is decided by one of the two: it may leave the stored settings as they are.
        let stored = hash.get().copied();
        let both = [stored, set_up.map(|set_up| set_up.settings)];
        let longest = both.iter().flatten().map(|it| it.interval).max();
        let longest = longest.unwrap_or(0);
        let longest = match ahead {
            Some(Ahead::Reservation { within }) => within + 2 * longest,
            Some(Ahead::Lease(millis)) => longest.max(millis),
            None => return true,
        };
        let keeps_alive = set_up.is_none() && stored.is_some_and(|it| it.keep_alive > 0);
        longest < TTL_UNIT / 2 || keeps_alive || hash.expires_at().is_none()
    }

    fn next_call_id(&mut self) -> CallId {
        self.calls += 1;
        // No member of a corrupting step has these bytes.
        let mut call_id = [0xa5; 16];
        // Not in ascending order, so that equal scores are ordered by what follows the length byte.
        call_id[..8].copy_from_slice(&self.calls.wrapping_mul(0x9e37_79b9).to_le_bytes());
        call_id
    }

    async fn acquire(
        &mut self,
        limiter: &RedisLimiter,
        at: At,
        client: &str,
        call: Acquire,
        sent: SentAs,
    ) {
        if !self.is_exact(call.ahead, call.set_up) {
            return;
        }
        let retry = match sent {
            SentAs::Again(retry) => Some(retry),
            SentAs::First | SentAs::Copy => None,
        };
        let keys = &limiter.keys;
        let of_call = call_key(keys, &call);
        let mut sent_retry = retry;
        let redis = loop {
            let rate_type = limiter.rate_type_for(&call);
            let is_plain = retry.is_none() && call.set_up.is_none();
            let answer = match is_plain && self.calls.is_multiple_of(8) {
                true => self.ask_in_company(keys, rate_type, &call).await,
                false => None,
            };
            let answer = match answer {
                Some(answer) => Ok(answer),
                None => {
                    let deadline = retry.map(|_| NEVER);
                    let now = Some(at.now);
                    let args = acquire_args(&call, sent_retry.as_ref(), rate_type, now, deadline);
                    let sets_up = call.set_up.is_some();
                    let keys = keys.of_acquire(rate_type, sets_up, of_call.as_deref());
                    script::ACQUIRE
                        .run(&self.redis.connection, &keys, &args, Limits::for_test())
                        .await
                }
            };
            // No copy of it arrives any more.
            if let Some(key) = &of_call {
                let mut delete = redis::cmd("DEL");
                let deleting = delete.arg(key).exec_async(&mut self.connection);
                deleting.await.unwrap();
            }
            let answer = match answer {
                Ok(answer) => {
                    let (now, audited_rate) = (Some(at.now), call.audited_rate);
                    AcquireAnswer::read(&keys.name, answer, now, audited_rate, rate_type).unwrap()
                }
                Err(Failure::Refused(error)) => {
                    break initialized(Err(failure::of_answer(&keys.name, error)));
                }
                Err(failure) => panic!("{failure:?}"),
            };
            match answer.meaning {
                Meaning::Decided(answer) => break Some(Ok(answer)),
                Meaning::Early(_) => break Some(Err(())),
                Meaning::OtherType(rate_type) => limiter.learn_type(rate_type),
                Meaning::Again => {}
                Meaning::More(from) => sent_retry = retry.map(|retry| Retry { from, ..retry }),
                other => panic!("{other:?}"),
            }
        };
        let model = match sent {
            SentAs::First => self.model.acquire(at, client, &call).ok().map(Ok),
            SentAs::Again(retry) => self.model.acquire_again(at, client, &call, &retry).ok(),
            SentAs::Copy => self.model.acquire_copy(at, client, &call).ok().map(Ok),
        };
        let model = model.map(|answer| answer.map_err(drop));
        assert_eq!(redis, model);
        if let Some(Ok(answer)) = model {
            let taken = call.requests.taken(&answer);
            if taken > 0 {
                let grant = answer.grant(call.id, taken as u32);
                self.grants.push(match call.ahead {
                    Some(Ahead::Reservation { .. }) => grant.with_span(answer.interval),
                    _ => grant,
                });
            }
        }
        self.last_call = Some(call);
        let ahead = self.last_call.as_ref().and_then(|call| call.ahead);
        self.last_attempt = at.now + ahead.map_or(0, Ahead::most);
        if retry.is_none() {
            self.first_attempt = at.now;
        }
    }

    async fn reclaim(
        &mut self,
        limiter: &RedisLimiter,
        at: At,
        client: &str,
        call: &Acquire,
        made: &Retry,
    ) {
        let name = &limiter.keys.name;
        let all_keys = limiter.keys.of_refund();
        let mut sent = *made;
        let redis = loop {
            let now = Some(at.now);
            let args = reclaim_args(call, &sent, now, None);
            let answer =
                script::RECLAIM.run(&self.redis.connection, &all_keys, &args, Limits::for_test());
            match answer.await {
                Ok(answer) => match AcquireAnswer::read_reclaim(name, answer).unwrap().meaning {
                    Meaning::Decided(permits) => break Some(Ok(permits)),
                    Meaning::Early(_) => break Some(Err(())),
                    Meaning::More(from) => sent.from = from,
                    other => panic!("{other:?}"),
                },
                Err(Failure::Refused(error)) => {
                    break initialized(Err(failure::of_answer(name, error)));
                }
                Err(failure) => panic!("{failure:?}"),
            }
        };
        let model = self.model.reclaim(at, client, call, made).ok();
        assert_eq!(redis, model.map(|answer| answer.map_err(drop)));
    }

    /// Sends the call with others before and after it that fail.
    async fn ask_in_company(
        &self,
        keys: &Keys,
        rate_type: RateType,
        call: &Acquire,
    ) -> Option<Value> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let multi_acquires = &self.redis.multi_acquires;
        let ask = |keys| {
            let part = AcquirePart::new(keys, rate_type, call);
            multi_acquires.send(part, deadline, NEVER)
        };
        let missing = Keys::new("missing", "client");
        // In place of its settings there is another limiter's value, or nothing.
        let wrong = Keys::new(keys.in_order()[1], "client");
        let (before, answer, behind) = tokio::join!(ask(&missing), ask(keys), ask(&wrong));
        assert!(matches!(before, Some(SharedReply::Refused)));
        assert!(matches!(behind, Some(SharedReply::Refused)));
        let Some(SharedReply::Answered(sent)) = answer else {
            return None;
        };
        let sent = sent.expect("the call was made");
        assert_eq!(sent.now, self.redis.clock.now());
        Some(sent.answer)
    }

    async fn corrupt(&mut self, corrupt: &Corrupt, keys: &Keys, at: At) {
        let connection = &mut self.connection;
        let mut command = redis::Cmd::new();
        match corrupt {
            Corrupt::Value(Some(value)) => {
                command.arg("SET").arg(keys.in_order()[1]).arg(value);
                self.model.overall.value.set(*value);
            }
            Corrupt::Value(None) => {
                command.arg("DEL").arg(keys.in_order()[1]);
                self.model.overall.value.remove();
            }
            Corrupt::LosePermits => {
                command.arg("DEL").arg(keys.in_order()[3]);
                self.model.overall.grants.remove();
            }
            Corrupt::LoseHash => {
                command.arg("DEL").arg(&keys.name);
                self.model.settings.remove();
            }
            Corrupt::Member { age, member } => {
                let score = at.now - age;
                command
                    .arg("ZADD")
                    .arg(keys.in_order()[3])
                    .arg(score)
                    .arg(member);
                let grants = &mut self.model.overall.grants;
                grants
                    .get_or_set(crate::window::Grants::new)
                    .insert_member(score, member);
            }
        }
        command.exec_async(connection).await.unwrap();
    }

    fn new_ttl(&mut self) -> i64 {
        self.next_ttl += TTL_UNIT;
        self.next_ttl
    }
}

/// The answer, or `None` if the limiter has no rate. Any other error is unexpected here.
fn initialized<T>(answer: Result<T>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(Error::NotInitialized { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}
