//! One lease: permits of the store that this process may use until the lease ends.
//!
//! The permits are divided into stripes. A thread takes from its own one, so that threads seldom
//! contend. The lock of a stripe is held while the clock is read and the permits are taken. So none
//! is taken of a lease that has ended or is closed, and the last use is known when the lease is
//! closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::time::Instant;

use crate::clock;
use crate::lock::number_of_thread;
use crate::permit::CallId;
use crate::store::LimiterStore;
use crate::window::{Acquired, SetUp, Settlement};

const STRIPES: usize = 4;

/// A time by two clocks of this process: one that never goes back, and one that goes on while the
/// machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Instant,
    /// Milliseconds since the epoch.
    pub(super) wall: i64,
}

impl Moment {
    /// The time by the clocks of a store.
    pub(super) fn now(store: &dyn LimiterStore) -> Self {
        Self {
            at: Instant::now(),
            wall: store.wall_millis(),
        }
    }

    /// How much is left at `now` of `millis` that begin at this moment, in ms, rounded down; 0 once
    /// they are over.
    pub(super) fn left_of(self, millis: i64, now: Self) -> i64 {
        let lasts = clock::millis(millis);
        let elapsed = now.at.saturating_duration_since(self.at);
        let left = lasts.saturating_sub(elapsed).as_millis() as i64;
        // The parts of a millisecond in which it began and in which it is read may be up to one
        // together.
        let left_by_wall = match now.wall.saturating_sub(self.wall) {
            0 => millis,
            passed @ 1.. => millis.saturating_sub(passed).saturating_sub(1),
            _set_back => 0,
        };
        left.min(left_by_wall).max(0)
    }
}

/// What the store granted as a lease.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) id: CallId,
    pub(super) score: i64,
    pub(super) permits: u32,
    pub(super) set_up: Option<SetUp>,
    /// When its call was about to be sent.
    pub(super) sent: Moment,
    /// For how many ms from `sent` on the permits may be used.
    pub(super) lasts: i64,
    pub(super) rate: i64,
    pub(super) interval: i64,
    /// The permits that the store had left after it.
    pub(super) beyond: i64,
    /// The next lease is due when this many permits are left,
    pub(super) low: u32,
    /// or when this many ms are left.
    pub(super) late: i64,
}

impl Terms {
    /// The ms for which the permits may still be used, rounded down; 0 once the lease has ended.
    pub(super) fn lasts_from(&self, now: Moment) -> i64 {
        self.sent.left_of(self.lasts, now)
    }

    /// Whether the limiter had the settings of the requests that the lease is for, and no shorter
    /// interval than it is planned for.
    pub(super) fn suits_limiter(&self) -> bool {
        let has =
            |it: SetUp| (it.settings.rate, it.settings.interval) == (self.rate, self.interval);
        self.set_up.and_then(SetUp::replacing).is_none_or(has) && self.lasts <= self.interval / 2
    }

    /// When the permits may no longer be used.
    pub(super) fn ends(&self) -> Instant {
        self.sent.at + clock::millis(self.lasts)
    }
}

pub(super) struct Lease {
    pub(super) terms: Terms,
    stripes: [Stripe; STRIPES],
    /// Whether a taker has said that the next lease is due.
    is_due: AtomicBool,
    /// How many of the permits used have been counted as demand.
    pub(super) noted: AtomicU32,
}

/// On its own cache line.
#[repr(align(64))]
struct Stripe {
    /// Changes only under the lock.
    left: AtomicU32,
    uses: Mutex<Uses>,
}

struct Uses {
    is_closed: bool,
    /// The ms from the last use to the end of the lease, rounded down.
    early: i64,
}

impl Stripe {
    fn lock(&self) -> MutexGuard<'_, Uses> {
        // Nothing that may panic is done under it.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Uses>> {
        match self.uses.try_lock() {
            Ok(uses) => Some(uses),
            Err(TryLockError::Poisoned(uses)) => Some(uses.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// Under the lock.
    fn set_left(&self, permits: u32) {
        self.left.store(permits, Ordering::Relaxed);
    }
}

impl Lease {
    pub(super) fn new(terms: Terms) -> Self {
        let (each, more) = (
            terms.permits / STRIPES as u32,
            terms.permits % STRIPES as u32,
        );
        let mut place = 0;
        let stripes = [(); STRIPES].map(|()| {
            let left = each + u32::from(place < more);
            place += 1;
            Stripe {
                left: AtomicU32::new(left),
                uses: Mutex::new(Uses {
                    is_closed: false,
                    early: terms.lasts,
                }),
            }
        });
        Self {
            terms,
            stripes,
            is_due: AtomicBool::new(false),
            noted: AtomicU32::new(0),
        }
    }

    /// Whether a request with these settings may use it.
    pub(super) fn serves(&self, set_up: Option<SetUp>) -> bool {
        set_up.and_then(SetUp::replacing).is_none_or(|asked| {
            self.terms
                .set_up
                .is_some_and(|own| asked.may_have_what_was_taken_with(&own))
        })
    }

    /// The permits left. They may not be used once the lease has ended.
    pub(super) fn left(&self) -> u32 {
        self.stripes.iter().map(Stripe::left).sum()
    }

    pub(super) fn used(&self) -> u32 {
        self.terms.permits.saturating_sub(self.left())
    }

    /// Whether the next lease is due, as takers have found.
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Takes permits. Returns whether the lease needs attention then, or `None` if it has too few
    /// or has ended.
    #[inline]
    pub(super) fn take(&self, permits: u32, clock: impl Fn() -> Moment) -> Option<bool> {
        let own = number_of_thread();
        for place in 0..STRIPES {
            let stripe = &self.stripes[(own + place) % STRIPES];
            if stripe.left() < permits {
                continue;
            }
            let Some(mut uses) = stripe.try_lock() else {
                continue;
            };
            let left = stripe.left();
            if left < permits {
                continue;
            }
            let early = self.terms.lasts_from(clock());
            if early == 0 {
                return None;
            }
            uses.early = uses.early.min(early);
            stripe.set_left(left - permits);
            drop(uses);
            return Some(self.needs_attention(left - permits, early));
        }
        if self.left() < permits {
            return None;
        }
        self.take_of_all(permits, clock)
    }

    /// Whether a step is due, after permits were taken of a stripe that has this many left. The
    /// stripes of other threads, which change all the time, are read only if `left` is low: all
    /// stripes together have no fewer.
    fn needs_attention(&self, left: u32, early: i64) -> bool {
        let is_low = || left <= self.terms.low && self.left() <= self.terms.low;
        let is_due = !self.is_due() && (early <= self.terms.late || is_low());
        let is_found = is_due && !self.is_due.swap(true, Ordering::Relaxed);
        is_found || left == 0 && self.left() == 0
    }

    /// Takes permits of several stripes in one step: others see all of it or nothing.
    fn take_of_all(&self, permits: u32, clock: impl Fn() -> Moment) -> Option<bool> {
        let mut all = self.lock_all();
        let early = self.terms.lasts_from(clock());
        if early == 0 || self.left() < permits {
            return None;
        }
        let mut missing = permits;
        for (stripe, uses) in self.stripes.iter().zip(&mut all) {
            let taken = stripe.left().min(missing);
            if taken > 0 {
                uses.early = uses.early.min(early);
                stripe.set_left(stripe.left() - taken);
                missing -= taken;
            }
        }
        drop(all);
        Some(self.needs_attention(0, early))
    }

    fn lock_all(&self) -> [MutexGuard<'_, Uses>; STRIPES] {
        // Always in the same order. A thread that holds one stripe for itself waits for no other.
        self.stripes.each_ref().map(Stripe::lock)
    }

    /// The answer to a request that takes permits of it now.
    pub(super) fn answer_of(&self, available: i64) -> Acquired {
        let Terms {
            score,
            rate,
            interval,
            ..
        } = self.terms;
        // The lease may have been taken under a lower rate than the last one.
        let mut answer = Acquired::new(score, rate, available.min(rate), interval, interval);
        answer.until_score = self.terms.lasts;
        // As if the store had found the grant: it has decided nothing now.
        answer.found = true;
        answer
    }

    /// Gives permits back that were taken, and not used. `false` if it is closed.
    pub(super) fn put_back(&self, permits: u32) -> bool {
        let stripe = &self.stripes[number_of_thread() % STRIPES];
        let uses = stripe.lock();
        if !uses.is_closed {
            stripe.set_left(stripe.left() + permits);
        }
        !uses.is_closed
    }

    /// Closes it, so that no more permits are taken of it. Returns how it is settled; `None` if it
    /// was closed before.
    pub(super) fn close(&self) -> Option<Settlement> {
        let mut all = self.lock_all();
        if all[0].is_closed {
            return None;
        }
        let (mut left, mut early) = (0, self.terms.lasts);
        for (stripe, uses) in self.stripes.iter().zip(&mut all) {
            uses.is_closed = true;
            early = early.min(uses.early);
            left += stripe.left();
            stripe.set_left(0);
        }
        Some(Settlement {
            used: self.terms.permits.saturating_sub(left),
            early,
        })
    }
}
