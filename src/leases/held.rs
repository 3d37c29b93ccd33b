//! The leases of one limiter in this process: which it holds, when the next one is due, and what
//! was used of those that end. The calls are in [`leasing`](super::leasing).
//!
//! A lease has as many permits as recent demand calls for. While a lease is used, the next one is
//! due when it is nearly used up or nearly over; so a lease that nobody uses is the last one. A
//! lease ends when its time is over, when it is used up, when the last handle that wants leases is
//! dropped, and when this client changes the limiter. Where the store denies, permits are scarce:
//! then nothing is leased for a while, and what is left of the leases goes back.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::Instant;

use super::demand::Demand;
use super::lease::{Lease, Moment, Terms};
use crate::clock::millis;
use crate::grant::Grant;
use crate::lock::Lock;
use crate::permit::CallId;
use crate::queue::{CallsAside, TakenAside};
use crate::window::{Acquired, SetUp, Settlement};

/// The current lease and the next one.
const MOST_HELD: usize = 2;

/// For how long nothing is leased after a denial, or without an answer. Longer than a queue that is
/// denied sleeps.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_500);

pub(super) struct Leases {
    /// The oldest first.
    held: ArcSwap<HeldLeases>,
    book: Lock<Book>,
    /// How many calls that lease permits, or give them back, are under way.
    calls: watch::Sender<usize>,
}

/// Counts a call for a lease until it is dropped.
pub(crate) struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

type HeldLeases = SmallVec<[Arc<Lease>; MOST_HELD]>;

/// The permits that the store had left when the last lease was taken. Those of the leases before it
/// were in use by then.
fn beyond(held: &HeldLeases) -> i64 {
    held.last().map_or(0, |last| last.terms.beyond)
}

/// The leases that a handle wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    /// The longest time that a lease lasts.
    pub(super) up_to: Duration,
    /// Nothing is leased if there were fewer uses in the time of two leases.
    pub(super) fewest_uses: u64,
}

struct Book {
    holds: Vec<Hold>,
    /// How often the leases were ended before their time.
    ended: u64,
    is_closed: bool,
    is_asking: bool,
    demand: Demand,
    /// The limiter's interval, and the settings that its last request gave it.
    known: Option<(Duration, Option<SetUp>)>,
    /// How long the call for the last lease took.
    took: Duration,
}

/// The next lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeasePlan {
    pub(super) permits: u32,
    pub(super) lasts: i64,
    pub(super) set_up: Option<SetUp>,
    ended: u64,
}

/// A lease that is to be settled.
pub(crate) struct Ended {
    pub(crate) lease: Grant,
    pub(crate) settlement: Settlement,
    /// When its permits are back if it is not settled.
    pub(crate) back_at: Instant,
}

/// What is to be done after a step.
#[derive(Default)]
pub(super) struct Todo {
    pub(super) settle: SmallVec<[Ended; MOST_HELD]>,
    pub(super) ask: Option<LeasePlan>,
}

impl Leases {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            held: ArcSwap::from_pointee(HeldLeases::new()),
            book: Lock::new(Book {
                holds: Vec::new(),
                ended: 0,
                is_closed: false,
                is_asking: false,
                demand: Demand::new(now),
                known: None,
                took: Duration::ZERO,
            }),
            calls: watch::Sender::new(0),
        }
    }

    pub(super) fn call(&self) -> UnderWay {
        self.calls.send_modify(|calls| *calls += 1);
        UnderWay(self.calls.clone())
    }

    /// The calls from now on that lease permits or give them back.
    pub(super) fn calls(&self) -> CallsAside {
        CallsAside(self.calls.subscribe())
    }

    /// Adds a handle that wants leases.
    pub(super) fn hold(&self, hold: Hold) {
        self.book.lock().holds.push(hold);
    }

    /// A handle no longer wants leases.
    pub(super) fn release(&self, hold: Hold) -> Todo {
        let mut book = self.book.lock();
        if let Some(place) = book.holds.iter().position(|it| *it == hold) {
            book.holds.swap_remove(place);
        }
        match book.holds.is_empty() {
            true => self.end_all(&mut book),
            false => Todo::default(),
        }
    }

    /// Takes permits. Returns whether [`attend`](Self::attend) is due then; `None` if no lease has
    /// the permits.
    #[inline]
    pub(super) fn take(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        clock: impl Fn() -> Moment,
    ) -> Option<bool> {
        let held = self.held.load();
        held.iter()
            .find_map(|lease| lease.serves(set_up).then(|| lease.take(permits, &clock))?)
    }

    /// Takes permits, and returns the answer to the request, which costs more than
    /// [`take`](Self::take). `None` if no lease has the permits.
    pub(super) fn acquire(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        clock: impl Fn() -> Moment,
    ) -> Option<TakenAside> {
        let held = self.held.load();
        let (lease, is_attention_due) = held.iter().find_map(|lease| {
            let taken = lease
                .serves(set_up)
                .then(|| lease.take(permits, &clock))??;
            Some((lease, taken))
        })?;
        let left = held.iter().map(|lease| i64::from(lease.left()));
        let left = left.sum::<i64>() + beyond(&held);
        Some(TakenAside {
            id: lease.terms.id,
            answer: lease.answer_of(left + i64::from(permits)),
            is_attention_due,
        })
    }

    /// The answer to a request that would take permits now; `None` if no lease has them.
    pub(super) fn peek(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        now: Moment,
    ) -> Option<(CallId, Acquired)> {
        let held = self.held.load();
        let live = held.iter().filter(|it| it.terms.lasts_from(now) > 0);
        let left: i64 = live.clone().map(|it| i64::from(it.left())).sum();
        let mut serving = live.filter(|it| it.serves(set_up) && it.left() >= permits);
        let lease = serving.next()?;
        let answer = lease.answer_of(left + beyond(&held));
        Some((lease.terms.id, answer))
    }

    /// The permits left in all leases.
    pub(super) fn left(&self, now: Moment) -> i64 {
        let held = self.held.load();
        let live = held.iter().filter(|it| it.terms.lasts_from(now) > 0);
        live.map(|it| i64::from(it.left())).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.load().is_empty()
    }

    /// Notes that the store has granted `taken` permits to callers, or denied a request that is
    /// worth another try after `denied`.
    pub(super) fn note(
        &self,
        (interval, set_up): (Duration, Option<SetUp>),
        taken: i64,
        denied: Option<Duration>,
        now: Moment,
    ) -> Todo {
        let mut book = self.book.lock();
        if book.holds.is_empty() {
            return Todo::default();
        }
        book.known = Some((interval, set_up));
        let slice = book.lasts();
        book.demand.set_slice(slice);
        if taken > 0 {
            book.demand.note(taken.unsigned_abs(), 1, now.at);
        }
        if let Some(wait) = denied {
            let pause = slice.saturating_add(wait).min(LONGEST_PAUSE);
            book.demand.pause(pause, now.at);
            return self.end_all(&mut book);
        }
        self.step(&mut book, now)
    }

    /// Ends what is to end, and asks for the next lease if it is due.
    pub(super) fn attend(&self, now: Moment) -> Todo {
        self.step(&mut self.book.lock(), now)
    }

    fn step(&self, book: &mut Book, now: Moment) -> Todo {
        let held = self.held.load_full();
        let mut todo = Todo::default();
        let mut live = HeldLeases::new();
        for lease in held.iter() {
            book.note_use(lease, now.at);
            if lease.left() == 0 || lease.terms.lasts_from(now) == 0 {
                todo.settle.extend(Book::close(lease));
            } else {
                live.push(Arc::clone(lease));
            }
        }
        todo.ask = book.plan(&live, now.at);
        if live.len() < held.len() {
            self.held.store(Arc::new(live));
        }
        todo
    }

    /// Ends the leases before their time, because the limiter changes. Nothing is leased until a
    /// request has learned its new settings.
    pub(super) fn end(&self) -> Todo {
        let mut book = self.book.lock();
        book.known = None;
        self.end_all(&mut book)
    }

    /// Ends the leases, after which none is taken.
    pub(super) fn close(&self) -> Todo {
        let mut book = self.book.lock();
        book.is_closed = true;
        self.end_all(&mut book)
    }

    fn end_all(&self, book: &mut Book) -> Todo {
        book.ended += 1;
        let held = self.held.swap(Arc::default());
        let closed = held.iter().filter_map(|lease| Book::close(lease));
        Todo {
            settle: closed.collect(),
            ask: None,
        }
    }

    /// Notes that the call for the next lease has failed.
    pub(super) fn failed(&self, now: Instant) {
        let mut book = self.book.lock();
        book.is_asking = false;
        let pause = book.lasts().min(LONGEST_PAUSE);
        book.demand.pause(pause, now);
    }

    /// Takes in the store's answer to the call for the next lease, which granted this many permits.
    /// Returns when the lease ends.
    pub(super) fn granted(
        &self,
        plan: &LeasePlan,
        (id, sent): (CallId, Moment),
        (answer, permits): (&Acquired, u32),
        now: Moment,
    ) -> (Todo, Option<Instant>) {
        let mut book = self.book.lock();
        book.is_asking = false;
        if let Some((interval, _)) = &mut book.known {
            *interval = answer.interval(); // others may have changed it
        }
        book.took = now.at.saturating_duration_since(sent.at);
        if permits.saturating_mul(4) < plan.permits {
            let pause = book.lasts().min(LONGEST_PAUSE);
            book.demand.pause(pause, now.at); // there is little more than others need
        }
        if permits == 0 {
            return (Todo::default(), None);
        }
        let lasts = answer.until_score;
        let late = 2 * i64::try_from(book.took.as_millis()).unwrap_or(i64::MAX / 4) + 1;
        let late = late.max(lasts / 8).min(lasts * 3 / 4);
        let low = i128::from(permits) * i128::from(late) / i128::from(lasts.max(1));
        let lease = Arc::new(Lease::new(Terms {
            id,
            score: answer.score,
            permits,
            set_up: plan.set_up,
            sent,
            lasts,
            rate: answer.rate,
            interval: answer.interval,
            beyond: (answer.available - i64::from(permits)).max(0),
            low: u32::try_from(low).unwrap_or(0),
            late,
        }));
        let is_usable = lease.terms.lasts_from(now) > 0 && lease.terms.suits_limiter();
        if !is_usable {
            // The lease is too short for this store, came late, or is of a limiter that others have
            // changed.
            book.demand.pause(LONGEST_PAUSE, now.at);
        }
        if !is_usable || book.holds.is_empty() || book.ended != plan.ended {
            let settle = Book::close(&lease).into_iter().collect();
            return (Todo { settle, ask: None }, None);
        }
        let ends = lease.terms.ends();
        let mut held = HeldLeases::clone(&self.held.load());
        held.push(lease);
        self.held.store(Arc::new(held));
        (Todo::default(), Some(ends))
    }

    /// Gives a grant back to the lease that it was made of, if that has not ended.
    pub(super) fn put_back(&self, grant: &Grant) -> bool {
        let held = self.held.load();
        let lease = held.iter().find(|it| it.terms.id == grant.call_id);
        lease.is_some_and(|it| it.put_back(grant.permits))
    }
}

impl Book {
    /// The length of a lease: the shortest that any handle asked for, at most half of the interval.
    fn lasts(&self) -> Duration {
        let interval = self.known.map_or(Duration::MAX, |(interval, _)| interval);
        let holds = self.holds.iter();
        holds.fold(interval / 2, |shortest, it| shortest.min(it.up_to))
    }

    fn plan(&mut self, live: &HeldLeases, now: Instant) -> Option<LeasePlan> {
        let is_due = live.last().is_none_or(|last| last.is_due());
        let may_hold = !self.holds.is_empty() && !self.is_closed && live.len() < MOST_HELD;
        if self.is_asking || !may_hold || !is_due {
            return None;
        }
        let (_, set_up) = self.known?;
        let lasts = i64::try_from(self.lasts().as_millis()).ok()?;
        let fewest_uses = self.holds.iter().map(|it| it.fewest_uses).min()?;
        let permits = self.demand.wanted(fewest_uses, now);
        let permits = permits.filter(|_| lasts > 0)?;
        self.is_asking = true;
        Some(LeasePlan {
            permits,
            lasts,
            set_up,
            ended: self.ended,
        })
    }

    /// Counts what was taken of a lease since it was last looked at.
    fn note_use(&mut self, lease: &Lease, now: Instant) {
        let used = lease.used();
        let noted = lease.noted.swap(used, Ordering::Relaxed);
        let more = u64::from(used.saturating_sub(noted));
        if more > 0 {
            self.demand.note(more, more, now);
        }
    }

    fn close(lease: &Lease) -> Option<Ended> {
        let settlement = lease.close()?;
        let terms = &lease.terms;
        let interval = millis(terms.interval);
        Some(Ended {
            lease: Grant::new(terms.score, terms.id, terms.permits).with_span(terms.lasts),
            settlement,
            back_at: terms.ends() + interval,
        })
    }
}
