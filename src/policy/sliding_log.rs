//! A log of the requests that were granted; each counts until the window has passed since.
//!
//! Exact, and for that it keeps every request: a decision reads as many as the log holds, though never more than the
//! limit, since each counts at least 1.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::algorithm::{Asked, Model, State, Unusable, at_least_one};
use crate::error::Result;
use crate::model::{At, Timed};
use crate::permit::{self, Random};
use crate::rate::whole_millis;
use crate::script::{self, Script};

/// No more than `limit` in any time of `window`'s length: exactly, at whatever moment it begins.
///
/// State: the zset `key` with a member for each request that was granted, scored with its time in ms, which lives for a
/// window after the last one. A member carries its cost as those of a [`RRateLimiter`](crate::RRateLimiter) do: the byte 16,
/// 16 random bytes, the cost as a little-endian `u32`; one of any other form, as scripts of others write it, counts 1.
/// Requests that are decided in one call share a member with the sum of their costs. A decision reads the members of the
/// window, at most as many as the limit: where that is many thousands, a [`SlidingWindow`](crate::SlidingWindow) costs
/// less.
///
/// A [`change`](crate::PolicyLimiter::change) acts at once on what the log holds: a shorter window forgets what it makes old;
/// a longer one counts what the shorter one has not dropped yet.
///
/// ```
/// use redisson_rate_limiter::{Decision, Limiter, RedissonClient, SlidingLog};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.limiter(SlidingLog::new(3, Duration::from_secs(60)))?;
/// assert!(limiter.decide("user:123", 1).await?.is_granted());
/// tokio::time::advance(Duration::from_secs(20)).await;
/// assert!(limiter.decide("user:123", 2).await?.is_granted());
/// let Decision::Denied { retry_after, .. } = limiter.decide("user:123", 1).await? else { panic!() };
/// assert_eq!(retry_after, Duration::from_secs(40));
/// let Decision::Denied { retry_after, .. } = limiter.decide("user:123", 2).await? else { panic!() };
/// assert_eq!(retry_after, Duration::from_secs(60));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u32,
    window: Duration,
}

impl SlidingLog {
    /// `limit` (at least 1) in each `window` (whole milliseconds, at least 1).
    pub fn new(limit: u32, window: Duration) -> Self {
        Self { limit, window }
    }

    fn window_millis(&self) -> i64 {
        // It was validated, so that it fits.
        self.window.as_millis() as i64
    }

    /// Requests up to here are over.
    fn horizon(&self, now: i64) -> i64 {
        now - self.window_millis()
    }
}

/// What one zset holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Log {
    requests: Timed<Requests>,
}

impl State for Log {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.requests.drop_expired(server);
        self.requests.get().is_some()
    }
}

/// Members in the zset's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Requests {
    entries: VecDeque<Entry>,
    /// Of all costs.
    sum: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    score: i64,
    member: Bytes,
    cost: i64,
}

impl Entry {
    fn new(score: i64, member: Bytes) -> Self {
        let cost = match permit::decode(&member) {
            // No text begins with this length, so a peer's id is not taken for a cost.
            Some((random, cost)) if random.len() == size_of::<Random>() => i64::from(cost).max(1),
            _ => 1,
        };
        Self {
            score,
            member,
            cost,
        }
    }
}

impl Requests {
    /// How many entries are over.
    fn over(&self, horizon: i64) -> usize {
        self.entries.partition_point(|entry| entry.score <= horizon)
    }

    fn insert(&mut self, entry: Entry) {
        self.sum += entry.cost;
        let place = self.entries.partition_point(|other| *other < entry);
        self.entries.insert(place, entry);
    }

    /// Takes out what this call has put in already.
    fn take(&mut self, score: i64, random: &Random) -> i64 {
        let least = permit::encode(random, 0);
        let place = { &self.entries }
            .partition_point(|entry| (entry.score, &entry.member) < (score, &least));
        let is_of_call = |entry: &Entry| {
            let decoded = permit::decode(&entry.member);
            entry.score == score && decoded.is_some_and(|(named, _)| named == random)
        };
        if !self.entries.get(place).is_some_and(is_of_call) {
            return 0;
        }
        let Some(entry) = self.entries.remove(place) else {
            return 0;
        };
        self.sum -= entry.cost;
        entry.cost
    }

    fn drop_first(&mut self, over: usize) {
        self.sum -= self
            .entries
            .drain(..over)
            .map(|entry| entry.cost)
            .sum::<i64>();
    }
}

impl Model for SlidingLog {
    type State = Log;

    const NAME: &'static str = "sliding_log";

    fn script() -> &'static Script {
        &script::SLIDING_LOG
    }

    fn validate(&self) -> Result<()> {
        at_least_one(self.limit, "limit")?;
        whole_millis(self.window, "window")?;
        Ok(())
    }

    fn limit(&self) -> Option<i64> {
        Some(i64::from(self.limit))
    }

    fn keys(&self, target: &str) -> Vec<String> {
        vec![target.to_owned()]
    }

    fn numbers(&self) -> Vec<i64> {
        vec![i64::from(self.limit), self.window_millis()]
    }

    fn ask(&self, state: &Log, at: At, cost: i64) -> Result<Asked, Unusable> {
        let none = Requests::default();
        let log = state.requests.get().unwrap_or(&none);
        let over = log.over(self.horizon(at.now));
        let used = log.sum
            - log
                .entries
                .range(..over)
                .map(|entry| entry.cost)
                .sum::<i64>();
        let mut live = log.entries.range(over..);
        let newest = live.clone().next_back().map(|entry| entry.score);

        let limit = i64::from(self.limit);
        let remaining = limit - used;
        let until_over = |score| score + self.window_millis() - at.now;
        if cost <= remaining {
            return Ok(Asked {
                granted: true,
                limit,
                remaining: remaining - cost,
                retry_after: 0,
                reset: until_over(newest.unwrap_or(at.now).max(at.now)),
                delay: 0,
            });
        }
        let mut missing = cost - remaining;
        let last_to_go = live.find(|entry| {
            missing -= entry.cost;
            missing <= 0
        });
        Ok(Asked {
            granted: false,
            limit,
            remaining: remaining.max(0),
            retry_after: until_over(last_to_go.map_or(at.now, |entry| entry.score)),
            reset: until_over(newest.unwrap_or(at.now)),
            delay: 0,
        })
    }

    fn charge(&self, state: &mut Log, at: At, random: &Random, cost: i64) {
        let log = state.requests.get_or_set(Requests::default);
        log.drop_first(log.over(self.horizon(at.now)));
        // One member for all that a call grants. It was granted, so that the sum is within the limit, a u32.
        let sum = log.take(at.now, random) + cost;
        log.insert(Entry::new(at.now, permit::encode(random, sum as u32)));
        state.requests.expire_at(at.server + self.window_millis());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::Error;
    use crate::policy::against_model::{
        Compared, Content, Keyspace, START, TTL_UNIT, compare, show_key, timed, times_to_live,
    };

    fn policy(limit: u32, window: i64) -> SlidingLog {
        SlidingLog::new(limit, Duration::from_millis(window.unsigned_abs()))
    }

    fn members() -> BoxedStrategy<Vec<u8>> {
        let ours = (any::<[u8; 2]>(), 0..9_u32).prop_map(|(ends, cost)| {
            let mut random = [ends[0]; 16];
            random[15] = ends[1];
            permit::encode(&random, cost).to_vec()
        });
        prop_oneof![
            4 => ours,
            1 => "[a-z0-9:]{0,40}".prop_map(String::into_bytes),
            // What only looks like ours.
            1 => Just(permit::encode(&[7; 8], 3).to_vec()),
            1 => Just([&[16_u8; 20][..], b"x"].concat()),
            1 => Just(vec![16_u8; 20]),
        ]
        .boxed()
    }

    impl Compared for SlidingLog {
        fn policies() -> BoxedStrategy<Self> {
            (1..30_u32, 1..4_i64)
                .prop_map(|(limit, n)| policy(limit, n * TTL_UNIT))
                .boxed()
        }

        fn states() -> BoxedStrategy<Log> {
            let scores = prop_oneof![-700_000..50_000_i64, (-14..2_i64).prop_map(|n| n * 50_000)];
            let entries = prop::collection::btree_map(members(), scores, 1..12);
            (entries, times_to_live())
                .prop_map(|(entries, time_to_live): (BTreeMap<_, _>, _)| {
                    let mut requests = Requests::default();
                    for (member, at) in entries {
                        requests.insert(Entry::new(START + at, member.into()));
                    }
                    Log {
                        requests: timed(requests, time_to_live),
                    }
                })
                .boxed()
        }

        fn show(state: &Log, target: &str) -> Keyspace {
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), &state.requests, |log| {
                let entries = log.entries.iter();
                Content::Zset(entries.map(|e| (e.score, e.member.to_vec())).collect())
            });
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            prop_oneof![1..2_000_i64, (1..9_i64).prop_map(|n| n * 50_000)].boxed()
        }
    }

    #[test]
    fn script_and_model_agree() {
        compare::<SlidingLog>();
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let refused = |policy: SlidingLog| match policy.validate() {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(policy(0, 1)), "limit");
        for window in [
            Duration::ZERO,
            Duration::from_micros(1_500),
            Duration::from_millis((1 << 52) + 1),
            Duration::MAX,
        ] {
            assert_eq!(refused(SlidingLog::new(1, window)), "window");
        }
        for window in [1, 1 << 52] {
            policy(u32::MAX, window).validate().unwrap();
        }
    }
}
