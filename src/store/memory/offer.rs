//! Permits that are taken without the lock.
//!
//! While the clock stands at one ms nothing comes back, and a request that is decided changes nothing but the permits
//! left and its own grant. So whoever decides a second request of a ms under the lock offers the permits left to all who
//! ask in that ms, and each of them takes its own with one atomic instruction. Whoever locks the limiter withdraws the offer
//! before anything else and has what was taken written down as one call of that ms, which is what it was.
//!
//! The offer is divided into lanes, and a thread takes out of its own, so that threads seldom meet. Whoever finds too
//! little there has it decided under the lock, where all is counted together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const LANES: usize = 4;

/// What was offered: a time, and at that time so many permits in each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) millis: i64,
    each: u32,
}

/// The permits of a lane are the low bits of its word and the time is the others.
const PERMITS_BITS: u32 = 20;
const MOST: u32 = (1 << PERMITS_BITS) - 1;
const NOTHING: u64 = 0;

impl Offered {
    /// What can be offered out of the permits left at a time; `None` where they are too few, or the time is none that a
    /// word holds.
    pub(super) fn new(millis: i64, left: i64) -> Option<Self> {
        let each = (left / LANES as i64).clamp(0, i64::from(MOST)) as u32;
        let is_held = 0 < millis && millis < 1 << (u64::BITS - PERMITS_BITS);
        // A lane without permits says that there are none at all.
        let is_true = each > 0 || left <= 0;
        (is_held && is_true).then_some(Self { millis, each })
    }

    fn permits(self) -> u32 {
        self.each * LANES as u32
    }
}

/// A lane's word, read: the permits left in it at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    millis: i64,
    permits: u32,
}

impl Left {
    fn to_word(self) -> u64 {
        (self.millis as u64) << PERMITS_BITS | u64::from(self.permits)
    }

    fn from_word(word: u64) -> Option<Self> {
        (word != NOTHING).then_some(Self {
            millis: (word >> PERMITS_BITS) as i64,
            permits: (word & u64::from(MOST)) as u32,
        })
    }

    /// What one who read the clock at `now` finds. A later time is none that has passed: it came after the clock was read.
    fn at(now: i64, word: u64) -> Option<Self> {
        Self::from_word(word).filter(|left| now <= left.millis)
    }

    /// What is left without these permits. A lane keeps its last one, so that one without permits was offered so.
    fn without(self, permits: u32) -> Option<Self> {
        (permits < self.permits).then(|| Self {
            permits: self.permits - permits,
            ..self
        })
    }

    /// Whether it shows that a request is denied. One permit is never above the rate; of more it takes the rate to know.
    fn denies(self, permits: u32) -> bool {
        self.permits == 0 && permits == 1
    }
}

/// The word after permits were taken; `None` where they cannot be.
#[inline]
fn taken(word: u64, now: i64, permits: u32) -> Option<u64> {
    Some(Left::at(now, word)?.without(permits)?.to_word())
}

/// On a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Lane(AtomicU64);

// A word says all there is to know of a lane, so its loads and stores need no order among others. What is done under
// the lock stays there.
impl Lane {
    #[inline]
    fn take(&self, now: i64, permits: u32) -> Option<bool> {
        let take = |word| taken(word, now, permits);
        match self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(_) => Some(true),
            Err(word) => Left::at(now, word)?.denies(permits).then_some(false),
        }
    }
}

/// One limiter's offer. Its lanes are made with the first one: most targets are never asked so.
#[derive(Debug, Default)]
pub(super) struct Offer(OnceLock<Box<[Lane; LANES]>>);

impl Offer {
    /// Whether the permits are granted at the time that `clock` tells; `None` where that has to be decided.
    #[inline]
    pub(super) fn take(&self, permits: u32, clock: impl FnOnce() -> i64) -> Option<bool> {
        let lane = &self.0.get()?[lane()];
        if lane.0.load(Ordering::Relaxed) == NOTHING {
            return None; // reading the clock takes as long as all the rest
        }
        lane.take(clock(), permits)
    }

    /// Makes an offer where none stands. Under the lock.
    pub(super) fn make(&self, offered: Offered) {
        let left = Left {
            millis: offered.millis,
            permits: offered.each,
        };
        let lanes = self
            .0
            .get_or_init(|| Box::new([(); LANES].map(|()| Lane(AtomicU64::new(NOTHING)))));
        for lane in lanes.iter() {
            lane.0.store(left.to_word(), Ordering::Relaxed);
        }
    }

    /// Ends what was offered and tells how many permits were taken. Under the lock.
    pub(super) fn withdraw(&self, offered: Offered) -> u32 {
        let lanes = self.0.get().into_iter().flat_map(|lanes| lanes.iter());
        let left =
            lanes.filter_map(|lane| Left::from_word(lane.0.swap(NOTHING, Ordering::Relaxed)));
        offered.permits() - left.map(|left| left.permits).sum::<u32>()
    }
}

/// The lane of this thread: they take turns.
#[inline]
fn lane() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % LANES;
    }
    LANE.with(|lane| *lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn offer(left: i64) -> (Offer, Offered) {
        let offer = Offer::default();
        let offered = Offered::new(NOW, left).unwrap();
        offer.make(offered);
        (offer, offered)
    }

    #[test]
    fn what_is_taken_out_of_an_offer_is_told_when_it_is_withdrawn() {
        let (offer, offered) = offer(40);
        assert_eq!(offer.take(3, || NOW), Some(true));
        assert_eq!(offer.take(4, || NOW), Some(true));
        assert_eq!(offer.withdraw(offered), 7);
        assert_eq!(offer.take(1, || NOW), None);
    }

    #[test]
    fn a_lane_that_has_too_little_leaves_the_decision_to_the_lock() {
        let (offer, offered) = offer(40);
        assert_eq!(offer.take(11, || NOW), None);
        assert_eq!(offer.take(9, || NOW), Some(true));
        assert_eq!(
            offer.take(1, || NOW),
            None,
            "the last one shows that there is one"
        );
        assert_eq!(offer.withdraw(offered), 9);
    }

    #[test]
    fn where_nothing_is_left_one_permit_is_denied_and_more_may_be_above_the_rate() {
        let (offer, offered) = offer(0);
        assert_eq!(offer.take(1, || NOW), Some(false));
        assert_eq!(offer.take(2, || NOW), None);
        assert_eq!(offer.withdraw(offered), 0);
    }

    #[test]
    fn too_few_permits_for_the_lanes_are_not_offered() {
        for left in 1..LANES as i64 {
            assert_eq!(Offered::new(NOW, left), None);
        }
        assert!(Offered::new(NOW, LANES as i64).is_some());
    }

    #[test]
    fn an_offer_is_over_with_its_ms_and_stands_for_one_who_read_the_clock_before() {
        let (offer, _) = offer(40);
        assert_eq!(offer.take(1, || NOW + 1), None);
        assert_eq!(offer.take(1, || NOW - 1), Some(true));
    }

    #[test]
    fn an_offer_of_more_than_a_lane_holds_is_of_less_and_never_denies() {
        let (offer, offered) = offer(i64::MAX);
        assert_eq!(offered.permits(), MOST * LANES as u32);
        assert_eq!(offer.take(MOST - 1, || NOW), Some(true));
        assert_eq!(offer.take(1, || NOW), None);
        assert_eq!(offer.withdraw(offered), MOST - 1);
    }

    #[test]
    fn at_a_time_that_no_word_holds_nothing_is_offered() {
        for millis in [i64::MIN, -1, 0, 1 << 44, i64::MAX] {
            assert_eq!(Offered::new(millis, 40), None);
        }
        assert_eq!(Offer::default().take(1, || -1), None);
    }

    #[test]
    fn however_often_it_is_withdrawn_meanwhile_each_permit_that_threads_take_is_told_once() {
        let offer = Offer::default();
        let threads_at_work = AtomicUsize::new(3);
        let mut told = 0;
        let granted: usize = std::thread::scope(|scope| {
            let take = || {
                let takes = (0..20_000).filter(|_| offer.take(1, || NOW) == Some(true));
                let granted = takes.count();
                threads_at_work.fetch_sub(1, Ordering::Release);
                granted
            };
            let threads = [(); 3].map(|()| scope.spawn(take));
            while threads_at_work.load(Ordering::Acquire) > 0 {
                let offered = Offered::new(NOW, 4_000).unwrap();
                offer.make(offered);
                std::thread::yield_now();
                told += offer.withdraw(offered) as usize;
            }
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(told, granted);
    }

    /// Under every interleaving that loom finds, with its atomic for a lane and its mutex for the lock.
    #[test]
    fn a_permit_that_is_taken_while_the_offer_is_withdrawn_is_told_by_that_withdrawal_or_not_taken()
    {
        use loom::sync::atomic::AtomicU64;
        use loom::sync::{Arc, Mutex};

        const OFFERED: Left = Left {
            millis: NOW,
            permits: 3,
        };
        let withdraw = |lane: &AtomicU64| {
            let left = Left::from_word(lane.swap(NOTHING, Ordering::Relaxed));
            left.map_or(0, |left| OFFERED.permits - left.permits)
        };
        loom::model(move || {
            let lane = Arc::new(AtomicU64::new(OFFERED.to_word()));
            let told = Arc::new(Mutex::new(0));
            let taker = {
                let lane = Arc::clone(&lane);
                loom::thread::spawn(move || {
                    let take = |word| taken(word, NOW, 1);
                    let takes = [(); 2]
                        .map(|()| lane.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take));
                    takes.iter().filter(|take| take.is_ok()).count() as u32
                })
            };
            let locker = {
                let (lane, told) = (Arc::clone(&lane), Arc::clone(&told));
                loom::thread::spawn(move || {
                    let mut told = told.lock().unwrap();
                    *told += withdraw(&lane);
                    lane.store(OFFERED.to_word(), Ordering::Relaxed);
                })
            };
            let mut at_once = told.lock().unwrap();
            *at_once += withdraw(&lane);
            drop(at_once);
            let granted = taker.join().unwrap();
            locker.join().unwrap();
            let told = *told.lock().unwrap() + withdraw(&lane);
            assert_eq!(granted, told);
        });
    }
}
