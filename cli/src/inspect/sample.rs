//! Samples a key with one bounded script call: what it is, and how much of a limiter is in use.

use std::sync::LazyLock;
use std::time::Duration;

use redisson_rate_limiter::{RedissonClient, Reply};
use serde_json::{Value, json};

use super::health::{Health, Observed};
use super::reply::{exactly, list, number, score, text};
use super::script::Script;
use super::settings::Settings;
use crate::failure::Failure;
use crate::report::{lasting, millis};

static SAMPLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/sample.lua")));

/// A limiter or the key of a policy, as it was sampled.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The time to live; `None` if the key does not expire.
    pub(crate) lives: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Rate(Box<RateSample>),
    /// Another algorithm: its name, and the number that its key holds (tokens or a count), if it
    /// holds one.
    Policy(&'static str, Option<u64>),
}

#[derive(Debug, Clone)]
pub(crate) struct RateSample {
    pub(crate) settings: Settings,
    /// The permits of the rate; 0 if the settings are unreadable.
    pub(crate) permits: u64,
    /// The interval of the rate; zero if the settings are unreadable.
    pub(crate) interval: Duration,
    pub(crate) health: Health,
    /// The permits that are available. `None` if the rate is for each client, if the settings are
    /// unreadable, or if there are more grants than one call reads.
    pub(crate) available: Option<u64>,
    /// The number of grants.
    pub(crate) grants: u64,
    /// The time until the oldest live grant comes back.
    pub(crate) next_return: Option<Duration>,
    /// The permits that were granted in the period asked about. Exact up to 100 grants; beyond
    /// that, an estimate by the average of the newest.
    pub(crate) new_permits: u64,
    /// The server's time, in ms.
    pub(crate) now: i64,
    /// The clients of a rate for each client, if they were looked for.
    pub(crate) clients: Option<Clients>,
}

/// The clients of a limiter that have taken permits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients {
    pub(crate) number: u64,
    /// The client with the most permits in use, and their number.
    pub(crate) fullest: Option<(String, u64)>,
}

impl Kind {
    /// Whether the key may be one of this algorithm. A bucket's level, a counter and an arrival
    /// time look alike: each is a number with a time to live.
    pub(crate) fn may_be(&self, algorithm: &str) -> bool {
        match self {
            Self::Rate(_) => false,
            Self::Policy("bucket" | "fixed_window", _) => matches!(
                algorithm,
                "fixed_window" | "leaky_bucket" | "penalty_token_bucket" | "gcra"
            ),
            Self::Policy(policy, _) => *policy == algorithm,
        }
    }
}

impl RateSample {
    /// The permits in use; for a rate for each client, those of the client with the most.
    pub(crate) fn in_use(&self) -> Option<u64> {
        if let Some((_, in_use)) = self.clients.as_ref().and_then(|it| it.fullest.as_ref()) {
            return Some(*in_use);
        }
        Some(self.permits.saturating_sub(self.available?))
    }

    pub(crate) fn is_per_client(&self) -> bool {
        self.settings.is_per_client()
    }
}

/// The keys of a limiter with the settings, the value and the grants: the latter two for all
/// clients, or for the client `client_id`.
pub(crate) fn keys_of(client: &RedissonClient, name: &str, client_id: Option<&str>) -> [String; 3] {
    let limiter = client.rate_limiter(name);
    let [name, value, _, permits, _] = limiter.keys();
    let suffix = client_id.map_or_else(String::new, |id| format!(":{id}"));
    [
        name.to_owned(),
        format!("{value}{suffix}"),
        format!("{permits}{suffix}"),
    ]
}

/// The second key of a bucket with this name, which has the time of its start.
fn start_of(client: &RedissonClient, name: &str) -> String {
    const VALUE: &str = ":value";
    let limiter = client.rate_limiter(name);
    let [_, value, ..] = limiter.keys();
    format!("{}-st", value.strip_suffix(VALUE).unwrap_or(value))
}

/// Samples a key. Returns `None` if it belongs to no limiter. `new_permits` counts the grants since
/// the server's time `since`, in ms, or in the last `-since` ms if it is negative.
pub(crate) async fn sample(
    client: &RedissonClient,
    name: &str,
    client_id: Option<&str>,
    since: i64,
) -> Result<Option<Sample>, Failure> {
    let keys = keys_of(client, name, client_id);
    let start = start_of(client, name);
    let keys: Vec<_> = { keys.iter().chain([&start]) }
        .map(|it| it.as_bytes())
        .collect();
    let since = since.to_string();
    let reply = SAMPLE.run(client, &keys, &[since.as_bytes()]).await?;
    read(name, client_id.is_some(), list(reply))
}

fn read(name: &str, is_of_client: bool, reply: Vec<Reply>) -> Result<Option<Sample>, Failure> {
    let kind = reply.first().map(text).unwrap_or_default();
    let policy = [
        "token_bucket",
        "quota_bucket",
        "sliding_window_log",
        "fixed_window",
        "bucket",
    ];
    if let Some(policy) = policy.into_iter().find(|it| *it == kind) {
        let [_, holds, left] = exactly(reply)?;
        return Ok(Some(Sample {
            name: name.to_owned(),
            kind: Kind::Policy(policy, number(&holds)),
            lives: lives(&left),
        }));
    }
    if kind != "rate" {
        return Ok(None);
    }
    let reply: [Reply; 19] = exactly(reply)?;
    let settings = Settings::read(&[1, 2, 3, 4].map(|at| reply[at].clone()));
    let [
        value,
        left,
        now,
        grants,
        by_expired,
        by_live,
        oldest,
        new,
        newest,
        read,
        malformed,
    ] = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].map(|at| &reply[at]);
    let signed = |it: &Reply| number::<i64>(it).unwrap_or(-1);
    let (by_expired, by_live) = (signed(by_expired), signed(by_live));
    let observed = Observed {
        value: text(value),
        types: [16, 17].map(|at| text(&reply[at])),
        held: (by_expired >= 0 && by_live >= 0).then(|| by_expired.saturating_add(by_live)),
        grants: number(grants).unwrap_or_default(),
        malformed: number(malformed).unwrap_or_default(),
        held_for: number(&reply[18]),
    };
    let of_keys = match is_of_client {
        // The keys of one client follow the same rules as those of a rate for all clients.
        true => Settings {
            rate_type: "0".to_owned(),
            ..settings.clone()
        },
        false => settings.clone(),
    };
    let health = Health::of(&of_keys, &observed);
    let numbers = settings.numbers();
    let (permits, interval) = numbers.unwrap_or_default();
    let available = match super::reply::integer(&observed.value) {
        Some(value) if by_expired >= 0 => Some(value.saturating_add(by_expired)),
        _ if by_live >= 0 => Some(permits.saturating_sub(by_live)),
        _ => None,
    };
    let available = available.map(|it| it.clamp(0, permits).unsigned_abs());
    let is_known = numbers.is_some() && (is_of_client || !settings.is_per_client());
    let oldest = Some(text(oldest)).filter(|it| !it.is_empty());
    let now: i64 = number(now).unwrap_or_default();
    let next_return = oldest.map(|it| score(&it).saturating_add(interval).saturating_sub(now));
    let [new, newest, read] = [new, newest, read].map(|it| number::<u64>(it).unwrap_or_default());
    Ok(Some(Sample {
        name: name.to_owned(),
        kind: Kind::Rate(Box::new(RateSample {
            settings,
            permits: permits.unsigned_abs(),
            interval: Duration::from_millis(interval.unsigned_abs()),
            health,
            available: available.filter(|_| is_known),
            grants: observed.grants,
            new_permits: newest.saturating_mul(new).checked_div(read).unwrap_or(0),
            now,
            clients: None,
            next_return: next_return
                .filter(|_| numbers.is_some())
                .map(|it| Duration::from_millis(it.max(0).unsigned_abs())),
        })),
        lives: lives(left),
    }))
}

fn lives(reply: &Reply) -> Option<Duration> {
    let left: i64 = number(reply)?;
    (left >= 0).then(|| Duration::from_millis(left.unsigned_abs()))
}

impl Sample {
    pub(crate) fn is_per_client(&self) -> bool {
        matches!(&self.kind, Kind::Rate(it) if it.is_per_client())
    }

    pub(crate) fn is_sick(&self) -> bool {
        matches!(&self.kind, Kind::Rate(it) if it.health.is_sick())
    }

    pub(crate) fn clients(&self) -> Option<&Clients> {
        match &self.kind {
            Kind::Rate(it) => it.clients.as_ref(),
            Kind::Policy(..) => None,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let lives = self.lives.map(millis);
        match &self.kind {
            Kind::Rate(it) => {
                let mut json = json!({
                "name": self.name, "kind": "rate_limiter", "rate": it.settings.to_json(),
                "health": it.health.code(), "health_text": it.health.text(), "available": it.available, "in_use": it.in_use(), "grants": it.grants,
                "next_return_ms": it.next_return.map(millis), "time_to_live_ms": lives,
                });
                if let Some(clients) = &it.clients {
                    let fullest = clients.fullest.as_ref();
                    json["clients"] = json!({
                        "number": clients.number,
                        "fullest": fullest.map(|(id, in_use)| json!({ "client": id, "in_use": in_use })),
                    });
                }
                json
            }
            Kind::Policy(policy, holds) => json!({
                "name": self.name, "kind": policy, "holds": holds, "time_to_live_ms": lives,
            }),
        }
    }

    /// The time to live as a text; `-` if the key does not expire.
    pub(crate) fn life(&self) -> String {
        self.lives.map_or_else(|| "-".to_owned(), lasting)
    }
}
