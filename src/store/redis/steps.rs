//! The steps on one limiter in Redis: turns each into keys and arguments, and parses the reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::client::read;
use super::limiter::RedisLimiter;
use super::script::{self, Args};
use crate::box_future::BoxFuture;
use crate::clock::{self, system_millis};
use crate::error::{Error, Result};
use crate::escaped::Escaped;
use crate::grant::Grant;
use crate::keys::Keys;
use crate::link::limits::Repeat;
use crate::permit::CallId;
use crate::rate::{LARGEST_RATE, Rate, RateType};
use crate::store::{
    AcquireCall, IfMissing, LimiterChange, LimiterStore, OnDone, OnFreed, PermitsInUse, Store,
    Task, TimeToLive,
};
use crate::window::{Acquired, Condition, Expiry, Settings, Settlement};

impl LimiterStore for RedisLimiter {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn client(&self) -> &dyn Store {
        &self.store
    }

    fn changes(&self) -> u64 {
        self.store.audits.load(Ordering::Acquire)
    }

    fn wall_millis(&self) -> i64 {
        self.store.clock.now().unwrap_or_else(system_millis)
    }

    fn watch(&self, on_freed: &Arc<OnFreed>) {
        let [_, value, client_value, ..] = self.keys.in_order();
        let value = match self.rate_type() {
            RateType::Overall => value,
            RateType::PerClient => client_value,
        };
        let (client_id, channel) = (&self.keys.client_id, self.keys.channel());
        let subscriber = &self.store.subscriber;
        if let Some(task) = subscriber.watch(client_id, channel, value, on_freed) {
            self.store.background.spawn(task);
        }
    }

    fn response_timeout(&self) -> Duration {
        self.store.response_timeout
    }

    fn acquire<'a>(
        &'a self,
        call: &'a AcquireCall,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            let result = self.acquire_call(call, deadline).await;
            self.store.noted(&self.keys.name, result, deadline)
        })
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        let limiter = Arc::clone(&self);
        self.store.background.give_back(async move {
            let given_back = limiter.refund(&grant).await;
            let missing_for = limiter.missing_for(given_back, Some(grant.permits));
            on_done();
            missing_for
        });
    }

    fn reclaim(self: Arc<Self>, call: Arc<AcquireCall>, on_done: OnDone) {
        let limiter = Arc::clone(&self);
        self.store.background.give_back(async move {
            let given_back = limiter.reclaim_call(&call).await;
            let missing_for = limiter.missing_for(given_back, None);
            on_done();
            missing_for
        });
    }

    fn run_in_background(&self, task: Task) {
        self.store.background.spawn(task);
    }

    fn refund<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            let mut from = (grant.span > 0).then(|| grant.score - grant.span);
            let audited_rate = self.audited_rate();
            let (keys, mut attempts) = (self.keys.of_refund(), self.attempts(Repeat::Never));
            loop {
                let args = Args::new()
                    .optional(self.store.clock.now())
                    .number(grant.score)
                    .bytes(&grant.call_id)
                    .number(grant.permits)
                    .optional(audited_rate)
                    .optional(from);
                let answer = self.run_on(&keys, &script::REFUND, &args, &mut attempts);
                match answer.await? {
                    back @ 0.. => return Ok(u32::try_from(back).unwrap_or(grant.permits)),
                    next => from = Some(-next),
                }
            }
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            let _turn = self.store.settling.acquire().await;
            let settling = async {
                let args = Args::new()
                    .optional(self.store.clock.now())
                    .number(lease.score)
                    .bytes(&lease.call_id)
                    .number(lease.permits)
                    .number(settlement.used)
                    .number(settlement.early)
                    .number(lease.span)
                    .optional(self.audited_rate());
                // Safe to repeat: a lease that is settled has another score.
                let (keys, mut attempts) = (self.keys.of_refund(), self.attempts(Repeat::Safe));
                self.run_on(&keys, &script::SETTLE, &args, &mut attempts)
                    .await
            };
            // In a box of its own, so that the future is small while it waits for its turn.
            Box::pin(settling).await
        })
    }

    fn release(&self, permits: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let audited_rate = self.audited_rate();
            let (keys, mut attempts) = (self.keys.of_refund(), self.attempts(Repeat::Never));
            let mut rest = i64::from(permits);
            while rest > 0 {
                let args = Args::new()
                    .optional(self.store.clock.now())
                    .number(rest)
                    .optional(audited_rate);
                let answer = self.run_on(&keys, &script::RELEASE, &args, &mut attempts);
                rest = answer.await?;
                attempts.sent_before = true; // a part of them is released
            }
            Ok(())
        })
    }

    fn hold(&self, millis: i64, call_id: CallId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let args = Args::new()
                .optional(self.store.clock.now())
                .number(millis)
                .bytes(&call_id)
                .optional(self.audited_rate());
            // Safe to repeat: a later attempt finds the grant of an earlier one.
            let (keys, mut attempts) = (self.keys.of_refund(), self.attempts(Repeat::Safe));
            self.run_on(&keys, &script::HOLD, &args, &mut attempts)
                .await
        })
    }

    fn available_permits(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move {
            let mut attempts = self.attempts(Repeat::Safe);
            let now = self.store.clock.now();
            // What the next call must know if this one could not read everything.
            let mut progress: Vec<Vec<u8>> = Vec::new();
            loop {
                let args = Args::new().optional(now);
                let args = progress.iter().fold(args, |args, word| args.bytes(word));
                let (script, keys) = (&script::AVAILABLE_PERMITS, self.keys.in_order());
                let answer = self.run_on(&keys, script, &args, &mut attempts);
                let answer: Value = answer.await?;
                progress = read(&self.keys.name, answer.clone())?;
                if progress.len() == 1 {
                    let [permits]: [i64; 1] = read(&self.keys.name, answer)?;
                    return Ok(permits);
                }
            }
        })
    }

    fn change(&self, change: LimiterChange) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let args = Args::new();
            let (script, args) = match change {
                LimiterChange::TrySetRate(settings) => {
                    (&script::TRY_SET_RATE, settings_args(args, &settings))
                }
                LimiterChange::SetRate(settings) => {
                    (&script::SET_RATE, settings_args(args, &settings))
                }
                LimiterChange::UpdateRate(settings, in_use, if_missing) => {
                    let args = settings_args(args.optional(self.store.clock.now()), &settings)
                        .flag(in_use == PermitsInUse::Keep)
                        .flag(if_missing == IfMissing::DoNothing);
                    (&script::UPDATE_RATE, args)
                }
                LimiterChange::Expire(expiry, condition) => {
                    (&script::EXPIRE, expire_args(args, expiry, condition))
                }
                LimiterChange::ClearExpire => (&script::CLEAR_EXPIRE, args),
            };
            let (keys, mut attempts) = (self.keys.in_order(), self.attempts(Repeat::Never));
            let answer = self.run_on(&keys, script, &args, &mut attempts).await?;
            // `set_rate.lua` always sets the rate, and returns nothing.
            let is_done =
                matches!(change, LimiterChange::SetRate(_)) || read(&self.keys.name, answer)?;
            if let LimiterChange::TrySetRate(settings)
            | LimiterChange::SetRate(settings)
            | LimiterChange::UpdateRate(settings, ..) = change
                && is_done
            {
                self.learn_type(settings.rate_type);
            }
            Ok(is_done)
        })
    }

    fn config(&self) -> BoxFuture<'_, Result<Option<Rate>>> {
        Box::pin(async move {
            let mut command = redis::cmd("HMGET");
            command
                .arg(&self.keys.name)
                .arg(&["rate", "interval", "type", "keepAliveTime"]);
            let rate = read_config(&self.keys.name, self.send(&command).await?)?;
            if let Some(rate) = rate {
                self.learn_type(rate.rate_type());
            }
            Ok(rate)
        })
    }

    fn remain_time_to_live(&self) -> BoxFuture<'_, Result<TimeToLive>> {
        Box::pin(async move {
            let mut command = redis::cmd("PTTL");
            command.arg(&self.keys.name);
            Ok(match self.send(&command).await? {
                -2 => TimeToLive::Missing,
                -1 => TimeToLive::Unlimited,
                left => TimeToLive::Remaining(clock::millis(left)),
            })
        })
    }
}

impl RedisLimiter {
    /// For how long permits of a cancelled request are missing, after an attempt to give them back
    /// ended like this.
    fn missing_for(&self, given_back: Result<u32>, permits: Option<u32>) -> Duration {
        let error = match given_back {
            Err(error) if !matches!(error, Error::NotInitialized { .. }) => error,
            // If the limiter is gone, nothing counts as used.
            _ => return Duration::ZERO,
        };
        tracing::warn!(
            limiter = %Escaped(&self.keys.name),
            permits,
            error = %Escaped(&error),
            "permits of a cancelled request come back only when their window has passed"
        );
        match self.interval.load(Ordering::Relaxed) {
            millis @ 1.. => Duration::from_millis(millis.unsigned_abs()),
            _unknown => Duration::MAX,
        }
    }
}

fn settings_args(args: Args, settings: &Settings) -> Args {
    args.number(settings.rate)
        .number(settings.interval)
        .number(settings.rate_type.code())
        .number(settings.keep_alive)
}

fn expire_args(args: Args, expiry: Expiry, condition: Condition) -> Args {
    let (command, time) = match expiry {
        Expiry::In(millis) => ("pexpire", millis),
        Expiry::At(millis) => ("pexpireat", millis),
    };
    let condition = match condition {
        Condition::Always => "",
        Condition::IfNotSet => "nx",
        Condition::IfSet => "xx",
        Condition::IfGreater => "gt",
        Condition::IfLess => "lt",
    };
    args.bytes(command.as_bytes())
        .number(time)
        .bytes(condition.as_bytes())
}

/// The rate in the hash of a limiter, from the reply to HMGET of its four fields.
pub(super) fn read_config(name: &str, answer: Value) -> Result<Option<Rate>> {
    let fields: [Option<String>; 4] = read(name, answer)?;
    let [Some(rate), Some(interval), Some(rate_type), keep_alive] = fields else {
        return Ok(None);
    };
    let bad_state = || Error::bad_state(name);
    let number = |text: &str| {
        let number: Option<i64> = text.parse().ok();
        let number = number.filter(|number| (0..=LARGEST_RATE as i64).contains(number));
        // Only in the form in which Redis writes it: `parse` accepts `+5` and `05` too.
        let number = number.filter(|number| number.to_string() == text);
        number.ok_or_else(bad_state)
    };
    let rate_type = match rate_type.as_str() {
        "0" => RateType::Overall,
        "1" => RateType::PerClient,
        _ => return Err(bad_state()),
    };
    let settings = Settings {
        rate: number(&rate)?,
        interval: number(&interval)?,
        rate_type,
        keep_alive: number(keep_alive.as_deref().unwrap_or("0"))?,
    };
    Ok(Some(settings.rate()))
}
