//! A log of the requests that were granted; each counts until the window has passed since.
//!
//! Exact, and for that it keeps every request.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use super::SlidingWindowLog;
use crate::error::{Result, at_least_one, require};
use crate::policies::answer::{Answer, Outcome};
use crate::policies::arithmetic::in_millis;
use crate::policies::model::{Charge, MOST_TOUCHED, Model, Properties};
use crate::policies::state::Content;
use crate::rate::whole_millis;
use crate::window::{At, ByScore, Scored, Timed};

/// A log has up to this many members: a server deletes it in a few ms when it expires.
const LARGEST_LIMIT: u32 = 20_000;
/// How many expired members are removed at most for each new one. If it were only one, a log would
/// never shrink.
const REMOVED: u32 = 3;

/// How many members that are too far ahead a call removes at most, if the bound for expired members
/// is not larger.
const MOST_FAR: i64 = 500;

/// The most that the requests of one call may cost together.
const LARGEST_COST: u32 = MOST_TOUCHED / (1 + REMOVED);

/// What one zset holds.
pub(crate) type Log = Timed<Members>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members {
    entries: ByScore<Entry>,
    /// The number of members.
    sum: i64,
}

/// The members with one score. No step looks for a single member, so their names are not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    score: i64,
    members: u32,
}

impl Scored for Entry {
    fn score(&self) -> i64 {
        self.score
    }
}

/// A member that the script reports.
struct Known {
    /// How many members are newer.
    newer: i64,
    score: i64,
}

impl Content for Members {}

impl Members {
    const fn new() -> Self {
        Self {
            entries: ByScore::new(),
            sum: 0,
        }
    }

    fn add(&mut self, score: i64, members: u32) {
        self.sum += i64::from(members);
        match self.entries.with_score(score) {
            Some(entry) => entry.members += members,
            None => self.entries.insert(Entry { score, members }),
        }
    }

    /// Removes up to `most` members of the entry at this index, and returns how many.
    fn take(&mut self, place: usize, most: i64) -> i64 {
        let Some(entry) = self.entries.get_mut(place) else {
            return 0;
        };
        let taken = most.min(entry.members.into());
        entry.members -= taken as u32;
        if entry.members == 0 {
            self.entries.remove(place);
        }
        self.sum -= taken;
        taken
    }

    fn cost_of(&self, places: Range<usize>) -> i64 {
        let entries = self.entries.range(places);
        entries.map(|entry| i64::from(entry.members)).sum()
    }

    /// The newest score up to `latest`.
    fn newest(&self, latest: i64) -> Option<i64> {
        self.entries.score_at(self.end(latest).checked_sub(1)?)
    }

    /// The index behind the newest entry that is scored up to `latest`.
    fn end(&self, latest: i64) -> usize {
        match self.entries.newest() {
            Some(newest) if newest > latest => self.entries.count_up_to(latest),
            _ => self.entries.len(),
        }
    }

    /// Removes up to `most` of the newest members that are scored after `latest`, and returns how
    /// many.
    fn remove_far(&mut self, latest: i64, most: i64) -> i64 {
        let mut removed = 0;
        while removed < most && self.entries.newest().is_some_and(|newest| newest > latest) {
            removed += self.take(self.entries.len() - 1, most - removed);
        }
        removed
    }

    /// Removes up to `most` of the oldest members that are scored up to `horizon`.
    fn remove_expired(&mut self, horizon: i64, most: i64) {
        let mut removed = 0;
        while removed < most
            && self
                .entries
                .score_at(0)
                .is_some_and(|oldest| oldest <= horizon)
        {
            removed += self.take(0, most - removed);
        }
    }
}

impl SlidingWindowLog {
    /// When all members have expired, by the server's clock.
    fn all_expired_at(&self, state: &Log, at: At) -> i64 {
        let newest = state.get().and_then(|log| log.newest(self.latest(at.now)));
        newest.map_or(at.server, |newest| {
            at.server + newest + in_millis(self.window) - at.now
        })
    }

    /// The latest score that counts: only a clock that was wrong can have written a later one.
    fn latest(&self, now: i64) -> i64 {
        now + in_millis(self.window)
    }

    /// Members with scores up to this one have expired.
    fn horizon(&self, now: i64) -> i64 {
        now - in_millis(self.window)
    }
}

impl Model for SlidingWindowLog {
    type State = Log;

    const PROPERTIES: Properties = Properties {
        logs_requests: true,
        largest_cost: LARGEST_COST,
        ..Properties::USUAL
    };

    fn validate(&self) -> Result<()> {
        at_least_one(self.limit, "limit")?;
        require(
            self.limit <= LARGEST_LIMIT,
            "limit",
            "must be at most 20,000: a log has as many members, which expire at once",
        )?;
        whole_millis(self.window, "window").map(drop)
    }

    fn example(limit: u32, window: Duration) -> Self {
        Self::new(limit, window)
    }

    fn limit(&self) -> i64 {
        i64::from(self.limit)
    }

    fn window(&self) -> i64 {
        in_millis(self.window)
    }

    fn touches(&self, cost: u32) -> u32 {
        cost.saturating_mul(1 + REMOVED)
    }

    fn numbers(&self) -> Vec<i64> {
        vec![i64::from(self.limit), in_millis(self.window)]
    }

    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Log> {
        let &[used, newest, ahead, ref last_to_go @ ..] = numbers else {
            return None;
        };
        if used == 0 {
            return Some(Log::default());
        }
        // The script reports the scores at which an answer may change. The members between two of
        // these get the older score.
        let mut known = vec![Known {
            newer: 0,
            score: newest,
        }];
        for place in last_to_go.chunks(2) {
            let &[newer, score] = place else {
                return None;
            };
            known.push(Known { newer, score });
        }
        if ahead > 0 {
            known.push(Known {
                newer: ahead - 1,
                score: at.now + 1,
            });
        }
        known.sort_unstable_by_key(|it| (it.newer, Reverse(it.score)));
        known.dedup_by_key(|it| it.newer);
        // The remaining members are older than these, and not ahead of now.
        known.push(Known {
            newer: used - 1,
            score: known.last()?.score.min(at.now),
        });
        let mut log = Members::new();
        let mut counted = 0;
        for Known { newer, score } in known {
            let members = u32::try_from(newer + 1 - counted).ok()?;
            if members > 0 {
                log.add(score, members);
            }
            counted = newer + 1;
        }
        let mut state = Log::default();
        state.set(log);
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Log, at: At, cost: i64) -> Answer {
        static NONE: Members = Members::new();
        let log = state.get().unwrap_or(&NONE);
        let over = log.entries.count_up_to(self.horizon(at.now));
        let end = log.end(self.latest(at.now));
        let used = log.sum - log.cost_of(0..over) - log.cost_of(end..log.entries.len());
        // The newest is over only if all are.
        let newest = if over < end {
            log.newest(self.latest(at.now))
        } else {
            None
        };

        let limit = i64::from(self.limit);
        let remaining = limit - used;
        let until_over = |score| score + in_millis(self.window) - at.now;
        // The time until the oldest members have expired that make room for this many missing ones.
        let until_gone = |mut missing: i64| {
            let mut live = log.entries.range(over..end);
            let last_to_go = live.find(|entry| {
                missing -= i64::from(entry.members);
                missing <= 0
            });
            until_over(last_to_go.map_or(at.now, |entry| entry.score))
        };
        let granted = cost <= remaining;
        let left = if granted { remaining - cost } else { remaining };
        Answer {
            outcome: Outcome::of(granted),
            limit,
            window: in_millis(self.window),
            remaining: left.max(0),
            retry_after: match granted {
                true => 0,
                false => until_gone(cost - remaining),
            },
            available_in: match left {
                1.. => 0,
                // The members of this request are older than any that are ahead of now.
                _ if granted => until_gone(1).min(in_millis(self.window)),
                _ => until_gone(1 - left),
            },
            reset: match newest {
                _ if granted => until_over(newest.unwrap_or(at.now).max(at.now)),
                Some(newest) => until_over(newest),
                None => 0,
            },
            delay: 0,
            mark: at.now,
        }
    }

    #[inline]
    fn charge(&self, state: &mut Log, at: At, cost: i64) {
        let needed = self.all_expired_at(state, at);
        let log = state.get_or_set(Members::new);
        let removed = cost * i64::from(REMOVED);
        let far = log.remove_far(self.latest(at.now), removed.max(MOST_FAR));
        log.remove_expired(self.horizon(at.now), removed - far);
        // The cost was granted, so it is within the limit, which fits.
        log.add(at.now, cost as u32);
        let two_windows = 2 * in_millis(self.window);
        state.expire_at(state.life(needed, at.server + two_windows));
    }

    /// The mark is the score. The script knows members by their calls, this log by their score
    /// alone: the two differ only after a shorter window than this one has dropped some of them.
    fn give_back(&self, state: &mut Log, at: At, charge: &Charge) -> i64 {
        if charge.mark <= self.horizon(at.now) {
            return 0;
        }
        let Some(log) = state.get_mut() else {
            return 0;
        };
        let Some(place) = log.entries.position(charge.mark, |_| true) else {
            return 0;
        };
        let back = log.take(place, charge.cost);
        if log.entries.is_empty() {
            state.remove();
        }
        back
    }

    #[inline]
    fn keep(&self, state: &mut Log, at: At) {
        state.outlive(self.all_expired_at(state, at));
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::iter::repeat_n;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, TTL_UNIT, WithNumbers, millis, number, show_key, timed,
        times_to_live,
    };
    use crate::policies::history_tests::{Versioned, units};

    fn policy(limit: u32, window: i64) -> SlidingWindowLog {
        SlidingWindowLog::new(limit, Duration::from_millis(window.unsigned_abs()))
    }

    impl Compared for SlidingWindowLog {
        fn policies() -> BoxedStrategy<Self> {
            (1..30_u32, 1..4_i64)
                .prop_map(|(limit, n)| policy(limit, n * TTL_UNIT))
                .boxed()
        }

        fn states() -> BoxedStrategy<Log> {
            let scores = prop_oneof![
                6 => -700_000..50_000_i64,
                6 => (-14..2_i64).prop_map(|n| n * 50_000),
                1 => 150_000..2_000_000_i64,
            ];
            (prop::collection::vec(scores, 1..12), times_to_live())
                .prop_map(|(scores, time_to_live)| {
                    let mut members = Members::new();
                    for at in scores {
                        members.add(START + at, 1);
                    }
                    timed(members, time_to_live)
                })
                .boxed()
        }

        fn show(state: &Log, target: &str) -> Keyspace {
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), state, |log| {
                let entries = log.entries.range(0..log.entries.len());
                let scores = entries.flat_map(|it| repeat_n(it.score, it.members as usize));
                Content::Scores(scores.collect())
            });
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            prop_oneof![1..2_000_i64, (1..9_i64).prop_map(|n| n * 50_000)].boxed()
        }
    }

    impl WithNumbers for SlidingWindowLog {
        fn with_numbers(numbers: &[i64]) -> Self {
            Self::new(number(numbers[0]), millis(numbers[1]))
        }
    }

    impl Versioned for SlidingWindowLog {
        fn versions() -> BoxedStrategy<Self> {
            let versions = (1..8_u32, 1..9_u32);
            versions
                .prop_map(|(limit, n)| Self::new(limit, units(n)))
                .boxed()
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let refused = |policy: SlidingWindowLog| match policy.validate() {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(policy(0, 1)), "limit");
        assert_eq!(refused(policy(LARGEST_LIMIT + 1, 1)), "limit");
        for window in [
            Duration::ZERO,
            Duration::from_micros(1_500),
            Duration::from_millis((1 << 52) + 1),
            Duration::MAX,
        ] {
            assert_eq!(refused(SlidingWindowLog::new(1, window)), "window");
        }
        for window in [1, 1 << 52] {
            policy(LARGEST_LIMIT, window).validate().unwrap();
        }
    }
}
