//! When expired limiters are swept.
//!
//! No thread and no task sweeps, so that no caller depends on another's runtime: requests do,
//! whichever limiter they are for. The first request of each millisecond visits a few limiters.
//! When all have been visited, the next round begins a second later. A store without requests is
//! not swept, see [`MemoryStore::shrink`](super::MemoryStore::shrink).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The number of places in the tables visited for each millisecond that has passed, which takes
/// some 10 µs: about half of them have a limiter.
const EACH_MS: i64 = 256;
/// The most places visited at once, which takes about a millisecond.
const MOST: i64 = 16 * 1024;
/// From the end of a round to the next, in ms.
const REST: i64 = 1_000;

#[derive(Debug)]
pub(super) struct Sweep {
    /// In ms of the store's clock.
    next: AtomicI64,
    turn: Mutex<Turn>,
}

/// The shard that is next.
#[derive(Debug, Default)]
struct Turn {
    shard: usize,
    has_begun: bool,
}

/// The part of a sweep that one request does, with exclusive access.
pub(super) struct Part<'a> {
    sweep: &'a Sweep,
    turn: MutexGuard<'a, Turn>,
    now: i64,
    /// How many places it visits.
    pub(super) most: usize,
}

impl Sweep {
    pub(super) fn new(now: i64) -> Self {
        Self {
            next: AtomicI64::new(now + REST),
            turn: Mutex::default(),
        }
    }

    /// What a request that came at `now` has to do.
    #[inline]
    pub(super) fn due(&self, now: i64) -> Option<Part<'_>> {
        if now < self.next.load(Ordering::Relaxed) {
            return None;
        }
        self.claim(now)
    }

    #[cold]
    fn claim(&self, now: i64) -> Option<Part<'_>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let next = self.next.load(Ordering::Relaxed);
        if now < next {
            return None;
        }
        self.next.store(now + 1, Ordering::Relaxed);
        let passed = now.saturating_sub(next).saturating_add(1);
        let most = passed.saturating_mul(EACH_MS).clamp(EACH_MS, MOST);
        Some(Part {
            sweep: self,
            turn,
            now,
            most: most as usize,
        })
    }
}

impl Part<'_> {
    /// The shard that is next, and whether this begins it.
    pub(super) fn shard(&mut self) -> (usize, bool) {
        let begins = !std::mem::replace(&mut self.turn.has_begun, true);
        (self.turn.shard, begins)
    }

    /// Goes on with the next shard; `false` if the round is over.
    pub(super) fn go_on(&mut self, shards: usize) -> bool {
        *self.turn = Turn {
            shard: (self.turn.shard + 1) % shards,
            has_begun: false,
        };
        if self.turn.shard == 0 {
            self.sweep.next.store(self.now + REST, Ordering::Relaxed);
        }
        self.turn.shard != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(sweep: &Sweep, now: i64) -> Option<usize> {
        sweep.due(now).map(|part| part.most)
    }

    #[test]
    fn one_request_per_ms_visits_a_few_limiters_and_more_if_time_has_passed() {
        let sweep = Sweep::new(0);
        assert_eq!(most(&sweep, REST - 1), None);
        assert_eq!(most(&sweep, REST), Some(256));
        assert_eq!(most(&sweep, REST), None);
        assert_eq!(most(&sweep, REST + 1), Some(256));
        assert_eq!(most(&sweep, REST + 11), Some(2_560));
        assert_eq!(most(&sweep, REST + 1_000_000), Some(16_384));
    }

    #[test]
    fn while_one_request_sweeps_no_other_does() {
        let sweep = Sweep::new(0);
        let part = sweep.due(REST);
        assert!(part.is_some());
        assert_eq!(most(&sweep, REST + 1), None);
        drop(part);
        assert!(most(&sweep, REST + 1).is_some());
    }

    #[test]
    fn after_the_last_shard_comes_a_rest() {
        let sweep = Sweep::new(0);
        let mut part = sweep.due(5_000).unwrap();
        assert_eq!(part.shard(), (0, true));
        assert_eq!(part.shard(), (0, false));
        assert!(part.go_on(2));
        assert_eq!(part.shard(), (1, true));
        assert!(!part.go_on(2));
        drop(part);
        assert_eq!(most(&sweep, 5_999), None);
        assert_eq!(sweep.due(6_000).unwrap().shard(), (0, true));
    }
}
