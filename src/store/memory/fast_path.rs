//! Permits that are taken without the lock.
//!
//! Within one millisecond of the clock no permit comes back, and a granted request changes nothing
//! but the permits left and its own grant. So the second request that is decided under the lock in
//! a millisecond opens the fast path: it reserves the permits left for all requests of that
//! millisecond, each of which takes its permits with one atomic instruction. Locking the limiter
//! closes the fast path before anything else, and records what was taken as one call of that
//! millisecond.
//!
//! The reserved permits are divided into stripes. A thread takes from its own stripe, so that
//! threads seldom contend. A request that finds too little there is decided under the lock, where
//! all permits count together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::number_of_thread;

const STRIPES: usize = 4;

/// The permits left in one stripe at a time in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StripePermits {
    pub(super) millis: i64,
    permits: u32,
}

/// The permits of a stripe are the low bits of its word, the time is the others.
const PERMITS_BITS: u32 = 20;
const MOST: u32 = (1 << PERMITS_BITS) - 1;
const NOTHING: u64 = 0;

impl StripePermits {
    /// What each stripe gets of the permits left at a time; `None` if they are too few, or if a
    /// word cannot hold the time.
    pub(super) fn of_each(millis: i64, left: i64) -> Option<Self> {
        let permits = (left / STRIPES as i64).clamp(0, i64::from(MOST)) as u32;
        let time_fits = 0 < millis && millis < 1 << (u64::BITS - PERMITS_BITS);
        // A stripe without permits states that there are none at all.
        let is_exact = permits > 0 || left <= 0;
        (time_fits && is_exact).then_some(Self { millis, permits })
    }

    fn of_all_stripes(self) -> u32 {
        self.permits * STRIPES as u32
    }

    fn to_word(self) -> u64 {
        (self.millis as u64) << PERMITS_BITS | u64::from(self.permits)
    }

    fn from_word(word: u64) -> Option<Self> {
        (word != NOTHING).then_some(Self {
            millis: (word >> PERMITS_BITS) as i64,
            permits: (word & u64::from(MOST)) as u32,
        })
    }

    /// The permits in this word for a request that read the clock at `now`; `None` if the word is
    /// older than that. It may be newer, if the fast path was opened after the clock was read.
    fn at(now: i64, word: u64) -> Option<Self> {
        Self::from_word(word).filter(|left| now <= left.millis)
    }

    /// What is left once these permits are taken. A stripe keeps its last permit, so that a stripe
    /// without permits is one that never had any.
    fn without(self, permits: u32) -> Option<Self> {
        (permits < self.permits).then(|| Self {
            permits: self.permits - permits,
            ..self
        })
    }

    /// Whether the request is certainly denied. A request for more than one permit may be above the
    /// rate, which is an error instead.
    fn denies(self, permits: u32) -> bool {
        self.permits == 0 && permits == 1
    }
}

/// The word after permits were taken; `None` if they cannot be.
#[inline]
fn taken(word: u64, now: i64, permits: u32) -> Option<u64> {
    Some(StripePermits::at(now, word)?.without(permits)?.to_word())
}

/// On its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Stripe(AtomicU64);

// A stripe's word holds all there is to know about it, so its loads and stores need no order among
// others. What is done under the lock stays there.
impl Stripe {
    #[inline]
    fn take(&self, now: i64, permits: u32) -> Option<bool> {
        let take = |word| taken(word, now, permits);
        match self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(_) => Some(true),
            Err(word) => StripePermits::at(now, word)?
                .denies(permits)
                .then_some(false),
        }
    }
}

/// One limiter's fast path. Its stripes are allocated when it is first opened: most limiters never
/// need it.
#[derive(Debug, Default)]
pub(super) struct FastPath(OnceLock<Box<[Stripe; STRIPES]>>);

impl FastPath {
    /// Whether the permits are granted at the time that `clock` returns; `None` if this must be
    /// decided under the lock.
    #[inline]
    pub(super) fn take(&self, permits: u32, clock: impl FnOnce() -> i64) -> Option<bool> {
        let stripe = &self.0.get()?[number_of_thread() % STRIPES];
        if stripe.0.load(Ordering::Relaxed) == NOTHING {
            return None; // reading the clock takes as long as everything else
        }
        stripe.take(clock(), permits)
    }

    /// Opens the fast path, which is closed. Under the lock.
    pub(super) fn open(&self, reserved: StripePermits) {
        let stripes = self
            .0
            .get_or_init(|| Box::new([(); STRIPES].map(|()| Stripe(AtomicU64::new(NOTHING)))));
        for stripe in stripes.iter() {
            stripe.0.store(reserved.to_word(), Ordering::Relaxed);
        }
    }

    /// Closes the fast path and returns how many permits were taken. Under the lock.
    pub(super) fn close(&self, reserved: StripePermits) -> u32 {
        let stripes = self.0.get().into_iter().flat_map(|stripes| stripes.iter());
        let left = stripes.filter_map(|stripe| {
            StripePermits::from_word(stripe.0.swap(NOTHING, Ordering::Relaxed))
        });
        reserved.of_all_stripes() - left.map(|left| left.permits).sum::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn fast_path(left: i64) -> (FastPath, StripePermits) {
        let fast_path = FastPath::default();
        let reserved = StripePermits::of_each(NOW, left).unwrap();
        fast_path.open(reserved);
        (fast_path, reserved)
    }

    #[test]
    fn closing_the_fast_path_returns_what_was_taken() {
        let (fast_path, reserved) = fast_path(40);
        assert_eq!(fast_path.take(3, || NOW), Some(true));
        assert_eq!(fast_path.take(4, || NOW), Some(true));
        assert_eq!(fast_path.close(reserved), 7);
        assert_eq!(fast_path.take(1, || NOW), None);
    }

    #[test]
    fn a_stripe_with_too_few_permits_leaves_the_decision_to_the_lock() {
        let (fast_path, reserved) = fast_path(40);
        assert_eq!(fast_path.take(11, || NOW), None);
        assert_eq!(fast_path.take(9, || NOW), Some(true));
        assert_eq!(
            fast_path.take(1, || NOW),
            None,
            "the last one shows that there is one"
        );
        assert_eq!(fast_path.close(reserved), 9);
    }

    #[test]
    fn without_permits_one_is_denied_and_more_may_be_above_the_rate() {
        let (fast_path, reserved) = fast_path(0);
        assert_eq!(fast_path.take(1, || NOW), Some(false));
        assert_eq!(fast_path.take(2, || NOW), None);
        assert_eq!(fast_path.close(reserved), 0);
    }

    #[test]
    fn too_few_permits_for_the_stripes_are_not_reserved() {
        for left in 1..STRIPES as i64 {
            assert_eq!(StripePermits::of_each(NOW, left), None);
        }
        assert!(StripePermits::of_each(NOW, STRIPES as i64).is_some());
    }

    #[test]
    fn the_fast_path_is_valid_in_its_ms_and_at_earlier_readings_of_the_clock() {
        let (fast_path, _) = fast_path(40);
        assert_eq!(fast_path.take(1, || NOW + 1), None);
        assert_eq!(fast_path.take(1, || NOW - 1), Some(true));
    }

    #[test]
    fn requests_above_what_the_stripes_hold_are_reserved_in_part_not_denied() {
        let (fast_path, reserved) = fast_path(i64::MAX);
        assert_eq!(reserved.of_all_stripes(), MOST * STRIPES as u32);
        assert_eq!(fast_path.take(MOST - 1, || NOW), Some(true));
        assert_eq!(fast_path.take(1, || NOW), None);
        assert_eq!(fast_path.close(reserved), MOST - 1);
    }

    #[test]
    fn at_a_time_that_no_word_holds_nothing_is_reserved() {
        for millis in [i64::MIN, -1, 0, 1 << 44, i64::MAX] {
            assert_eq!(StripePermits::of_each(millis, 40), None);
        }
        assert_eq!(FastPath::default().take(1, || -1), None);
    }

    #[test]
    fn each_permit_is_counted_once_however_often_the_fast_path_closes() {
        let fast_path = FastPath::default();
        let threads_at_work = AtomicUsize::new(3);
        let mut counted = 0;
        let granted: usize = std::thread::scope(|scope| {
            let take = || {
                let takes = (0..20_000).filter(|_| fast_path.take(1, || NOW) == Some(true));
                let granted = takes.count();
                threads_at_work.fetch_sub(1, Ordering::Release);
                granted
            };
            let threads = [(); 3].map(|()| scope.spawn(take));
            while threads_at_work.load(Ordering::Acquire) > 0 {
                let reserved = StripePermits::of_each(NOW, 4_000).unwrap();
                fast_path.open(reserved);
                std::thread::yield_now();
                counted += fast_path.close(reserved) as usize;
            }
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(counted, granted);
    }

    /// Under every interleaving that loom finds, with its atomic for a stripe and its mutex for the
    /// lock.
    #[test]
    fn a_permit_is_counted_or_not_taken_while_the_fast_path_closes() {
        use loom::sync::atomic::AtomicU64;
        use loom::sync::{Arc, Mutex};

        const RESERVED: StripePermits = StripePermits {
            millis: NOW,
            permits: 3,
        };
        let close = |stripe: &AtomicU64| {
            let left = StripePermits::from_word(stripe.swap(NOTHING, Ordering::Relaxed));
            left.map_or(0, |left| RESERVED.permits - left.permits)
        };
        loom::model(move || {
            let stripe = Arc::new(AtomicU64::new(RESERVED.to_word()));
            let counted = Arc::new(Mutex::new(0));
            let taker = {
                let stripe = Arc::clone(&stripe);
                loom::thread::spawn(move || {
                    let take = |word| taken(word, NOW, 1);
                    let takes = [(); 2]
                        .map(|()| stripe.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take));
                    takes.iter().filter(|take| take.is_ok()).count() as u32
                })
            };
            let locker = {
                let (stripe, counted) = (Arc::clone(&stripe), Arc::clone(&counted));
                loom::thread::spawn(move || {
                    let mut counted = counted.lock().unwrap();
                    *counted += close(&stripe);
                    stripe.store(RESERVED.to_word(), Ordering::Relaxed);
                })
            };
            let mut at_once = counted.lock().unwrap();
            *at_once += close(&stripe);
            drop(at_once);
            let granted = taker.join().unwrap();
            locker.join().unwrap();
            let counted = *counted.lock().unwrap() + close(&stripe);
            assert_eq!(granted, counted);
        });
    }
}
