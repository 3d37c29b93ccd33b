//! A bucket whose level changes with whole periods: the state and the arithmetic of a LeakyBucket
//! and of a PenaltyTokenBucket.

use std::mem::take;

use super::arithmetic::{LONGEST, div_ceil};
use super::starts::Starts;
use super::state::SharedKeys;
use super::state::State;
use crate::window::{At, Timed};

/// One target's bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// How many requests or tokens it holds.
    pub(super) level: Timed<i64>,
    /// The start of the period for which the level was computed, in ms.
    pub(super) start: Timed<i64>,
}

impl State for Bucket {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.level.drop_expired(server);
        self.start.drop_expired(server);
        self.level.get().is_some() || self.start.get().is_some()
    }

    fn has_own_key(&self) -> bool {
        self.level.get().is_some()
    }

    fn open(keys: &mut SharedKeys) -> Option<Self> {
        Some(Self {
            level: take(&mut keys.number),
            start: take(&mut keys.start),
        })
    }

    fn close(self, keys: &mut SharedKeys) -> Option<Self> {
        keys.number = self.level;
        keys.start = self.start;
        None
    }
}

/// What flows out of a bucket, or into it: a `quantity` at the end of each `period` (ms).
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) quantity: i64,
    pub(super) period: i64,
    /// How much flows until a bucket that was used up is unused again.
    pub(super) whole: i64,
    pub(super) starts: Starts,
    /// How much longer the level lives than the start, in ms.
    pub(super) level_lives_longer: i64,
}

/// A bucket at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    /// How much of it is in use: the requests that it holds, or the tokens that it lacks.
    pub(super) used: i64,
    start: i64,
    /// Whether the target had no state.
    pub(super) is_first: bool,
    /// Whether `start` must be stored.
    start_moved: bool,
}

impl Flow {
    /// The bucket at `now`; `used` computes from a level how much is in use.
    #[inline(always)]
    pub(super) fn open(&self, state: &Bucket, now: i64, used: impl Fn(i64) -> i64) -> Open {
        let start = state.start.get().copied();
        // Only a clock that was wrong can have written a start that is further ahead than the whole
        // of it takes to flow.
        let Some(start) = start.filter(|start| start - now <= self.time_for(self.whole)) else {
            return Open {
                used: 0,
                start: self.starts.of(self.period, now),
                is_first: true,
                start_moved: true,
            };
        };
        let used = state.level.get().map_or(0, |&level| used(level));
        let periods = (now - start).div_euclid(self.period).max(0);
        Open {
            used: if periods >= div_ceil(used, self.quantity) {
                0
            } else {
                used - periods * self.quantity
            },
            start: start + periods * self.period,
            is_first: false,
            start_moved: periods > 0,
        }
    }

    /// Milliseconds from `now` until `count` has flowed.
    #[inline(always)]
    pub(super) fn until(&self, count: i64, open: &Open, now: i64) -> i64 {
        let periods = div_ceil(count, self.quantity);
        let time = periods.saturating_mul(self.period).min(LONGEST);
        (time + open.start - now).max(0)
    }

    /// Milliseconds in which `count` flows.
    #[inline]
    pub(super) fn time_for(&self, count: i64) -> i64 {
        div_ceil(count, self.quantity.max(1)).saturating_mul(self.period)
    }

    /// Milliseconds until the next period begins.
    #[inline(always)]
    pub(super) fn until_next(&self, open: &Open, now: i64) -> i64 {
        open.start + self.period - now
    }

    /// Sets the level of a bucket of which `used` is in use; a new one lives for `time_to_live` ms.
    #[inline(always)]
    pub(super) fn set(
        &self,
        state: &mut Bucket,
        at: At,
        open: &Open,
        [used, level]: [i64; 2],
        time_to_live: i64,
    ) {
        let needed = at.server + self.until(used, open, at.now);
        state.start.outlive(needed);
        let end = state.start.life(needed, at.server + time_to_live);
        state.level.set(level);
        state.level.expire_at(end + self.level_lives_longer);
        if open.start_moved {
            state.start.set(open.start);
            state.start.expire_at(end);
        }
    }

    /// Extends the times to live of the keys until nothing of the bucket is in use.
    #[inline(always)]
    pub(super) fn keep(&self, state: &mut Bucket, at: At, open: &Open) {
        let end = at.server + self.until(open.used, open, at.now);
        if state.start.outlive(end) {
            state.level.outlive(end + self.level_lives_longer);
        }
    }
}
