//! One look at a key: what it is, and how much of a limiter is in use. One bounded script call.

use std::sync::LazyLock;
use std::time::Duration;

use redisson_rate_limiter::{Rate, RateType, RedissonClient, Reply};
use serde_json::{Value, json};

use super::reply::{list, number, score, text};
use super::script::Script;
use crate::failure::Failure;
use crate::report::{lasting, millis};

static SAMPLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/sample.lua")));

/// A key that limits something.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// None if it does not expire.
    pub(crate) lives: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Rate(RateSample),
    /// Another algorithm, by its name, and what its key holds if that is one number: tokens, or a count.
    Policy(&'static str, Option<u64>),
}

#[derive(Debug, Clone)]
pub(crate) struct RateSample {
    pub(crate) rate: Rate,
    pub(crate) permits: u64,
    pub(crate) interval: Duration,
    /// None of a rate for each client, and if more grants would have to be read than one call may.
    pub(crate) available: Option<u64>,
    pub(crate) grants: u64,
    /// Until the oldest live grant comes back.
    pub(crate) next_return: Option<Duration>,
    /// Permits of grants since the time that was asked about: exact up to 100 grants, and else as many each as the newest.
    pub(crate) new_permits: u64,
    /// The server's clock, in ms.
    pub(crate) now: i64,
}

impl Kind {
    /// Whether it looks like a key of this algorithm. A level and a counter are both a number with a time to live.
    pub(crate) fn may_be(&self, algorithm: &str) -> bool {
        match self {
            Self::Rate(_) => false,
            Self::Policy("bucket" | "fixed_window", _) => matches!(
                algorithm,
                "fixed_window" | "leaky_bucket" | "penalty_token_bucket"
            ),
            Self::Policy(policy, _) => *policy == algorithm,
        }
    }
}

impl RateSample {
    pub(crate) fn in_use(&self) -> Option<u64> {
        Some(self.permits.saturating_sub(self.available?))
    }

    pub(crate) fn is_per_client(&self) -> bool {
        self.rate.rate_type() == RateType::PerClient
    }
}

/// The keys of a limiter by its name: of all clients, or of one.
pub(crate) fn keys_of(client: &RedissonClient, name: &str, of: Option<&str>) -> [String; 3] {
    let limiter = client.rate_limiter(name);
    let [name, value, _, permits, _] = limiter.keys();
    let end = of.map_or_else(String::new, |id| format!(":{id}"));
    [
        name.to_owned(),
        format!("{value}{end}"),
        format!("{permits}{end}"),
    ]
}

/// The key with the start of a bucket with this name.
fn start_of(client: &RedissonClient, name: &str) -> String {
    const VALUE: &str = ":value";
    let limiter = client.rate_limiter(name);
    let [_, value, ..] = limiter.keys();
    format!("{}-st", value.strip_suffix(VALUE).unwrap_or(value))
}

/// Looks at a key; none if it limits nothing. Permits are counted as new that were granted from `since` on until now, in ms of the
/// server's clock, or since so many ms ago if it is negative.
pub(crate) async fn sample(
    client: &RedissonClient,
    name: &str,
    of: Option<&str>,
    since: i64,
) -> Result<Option<Sample>, Failure> {
    let keys = keys_of(client, name, of);
    let start = start_of(client, name);
    let keys: Vec<_> = { keys.iter().chain([&start]) }
        .map(|it| it.as_bytes())
        .collect();
    let since = since.to_string();
    let reply = SAMPLE.run(client, &keys, &[since.as_bytes()]).await?;
    Ok(read(name, of.is_some(), &list(reply)))
}

fn read(name: &str, of_one_client: bool, reply: &[Reply]) -> Option<Sample> {
    let kind = text(reply.first()?);
    let policy = [
        "token_bucket",
        "quota_bucket",
        "sliding_window_log",
        "fixed_window",
        "bucket",
    ];
    if let Some(policy) = policy.into_iter().find(|it| *it == kind) {
        return Some(Sample {
            name: name.to_owned(),
            kind: Kind::Policy(policy, number(reply.get(1)?)),
            lives: lives(reply.get(2)?),
        });
    }
    let [
        _,
        rate,
        interval,
        rate_type,
        keep_alive,
        value,
        left,
        now,
        numbers @ ..,
    ] = reply
    else {
        return None;
    };
    let [grants, by_expired, by_live, oldest, new, newest, read] = numbers else {
        return None;
    };
    let permits: u64 = number(rate)?;
    let interval = Duration::from_millis(number(interval)?);
    let rate = match text(rate_type).as_str() {
        "1" => Rate::per_client(permits, interval),
        _ => Rate::overall(permits, interval),
    };
    let rate = match number(keep_alive).unwrap_or(0) {
        0 => rate,
        keep_alive => rate.keep_alive(Duration::from_millis(keep_alive)),
    };
    let now: i64 = number(now)?;
    let (by_expired, by_live): (i64, i64) = (number(by_expired)?, number(by_live)?);
    let available = match number::<i64>(value) {
        Some(value) if by_expired >= 0 => Some(value.saturating_add(by_expired)),
        _ if by_live >= 0 => Some(permits.cast_signed().saturating_sub(by_live)),
        _ => None,
    };
    let available = available.map(|it| it.max(0).unsigned_abs().min(permits));
    let is_known = rate.rate_type() == RateType::Overall || of_one_client;
    let oldest = Some(text(oldest)).filter(|it| !it.is_empty());
    let next_return = oldest.map(|it| score(&it).saturating_add_unsigned(millis(interval)) - now);
    let (new, newest, read): (u64, u64, u64) = (number(new)?, number(newest)?, number(read)?);
    Some(Sample {
        name: name.to_owned(),
        kind: Kind::Rate(RateSample {
            rate,
            permits,
            interval,
            available: available.filter(|_| is_known),
            grants: number(grants)?,
            new_permits: newest.saturating_mul(new).checked_div(read).unwrap_or(0),
            now,
            next_return: next_return.map(|it| Duration::from_millis(it.max(0).unsigned_abs())),
        }),
        lives: lives(left),
    })
}

fn lives(reply: &Reply) -> Option<Duration> {
    let left: i64 = number(reply)?;
    (left >= 0).then(|| Duration::from_millis(left.unsigned_abs()))
}

impl Sample {
    pub(crate) fn to_json(&self) -> Value {
        let lives = self.lives.map(millis);
        match &self.kind {
            Kind::Rate(it) => json!({
                "name": self.name, "kind": "rate_limiter", "rate": it.rate,
                "available": it.available, "in_use": it.in_use(), "grants": it.grants,
                "next_return_ms": it.next_return.map(millis), "time_to_live_ms": lives,
            }),
            Kind::Policy(policy, holds) => json!({
                "name": self.name, "kind": policy, "holds": holds, "time_to_live_ms": lives,
            }),
        }
    }

    /// How long it lives, in a word.
    pub(crate) fn life(&self) -> String {
        self.lives.map_or_else(|| "-".to_owned(), lasting)
    }
}
