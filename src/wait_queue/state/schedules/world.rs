//! What is around the state: runtimes with their drivers, waiters, and the store.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::super::super::LONGEST_SLEEP;
use super::super::super::ledger::Ledger;
use super::super::{
    Answered, Known, Left, Next, Rest, Sharing, State, TAKE_OVER_AFTER, Waiter, Watched,
};
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::model::{Answer, Requests};
use crate::store::AcquireCall;
use crate::store::acquire_call;

/// What happens, and a number to choose by.
pub(super) type Step = (u8, u16);

/// How long a driver makes a call.
const DEADLINE: Duration = Duration::from_secs(3);

/// How long each of its attempts may take.
const ATTEMPT: Duration = Duration::from_millis(750);

/// What a denied waiter waits beyond the first grant's window.
const SLACK: Duration = Duration::from_millis(3);

/// For how long permits are left to others at most, and the jitter.
const SHARING: Duration = Duration::from_millis(110 * 5 / 4 + 1 + 4);

pub(super) struct World {
    state: State,
    start: Instant,
    now: Instant,
    store: Ledger,
    runtimes: Vec<SimulatedRuntime>,
    waiters: Vec<SimulatedWaiter>,
    /// Attempts on the way to the store that nobody will read.
    stray: Vec<Attempt>,
    /// Grants on their way back, until the store has them.
    refunds: Vec<Grant>,
    reclaims: Vec<Arc<AcquireCall>>,
    /// Refunds that the store has executed and this process has not heard of.
    unheard: usize,
    /// Until then the line may sleep although the head fits: others gave permits back.
    unknown_until: Instant,
    /// Since when the head fits.
    fits_since: Option<(u64, Instant)>,
    failed: Vec<[u8; 16]>,
    /// Since when a task sleeps that watches the call in flight.
    watched_since: Option<Instant>,
    /// All permits that this process was granted.
    own: u64,
    /// Whether permits are left to other processes.
    has_peers: bool,
}

struct SimulatedRuntime {
    /// Idle; it lends its id.
    runtime: Runtime,
    life: Life,
    driver: Option<Driver>,
}

#[derive(Clone, Copy, PartialEq)]
enum Life {
    Running,
    Stalled,
    ShutDown,
}

struct Driver {
    notify: Arc<Notify>,
    doing: Doing,
}

enum Doing {
    Ready,
    Sleeping(Instant),
    Calling(Attempt),
}

/// A driver's call, and its last attempt.
struct Attempt {
    call: Arc<AcquireCall>,
    sent_at: Instant,
    /// It does nothing after this time.
    deadline: i64,
    /// It decides only after this time: until then, attempts before it may arrive.
    not_before: Option<i64>,
    /// `None` until the store has executed it; an error where the answer is lost.
    result: Option<Result<Answer>>,
}

struct SimulatedWaiter {
    sequence: u64,
    permits: u32,
    place: Place,
}

enum Place {
    Arrived,
    FirstTry {
        call: Arc<AcquireCall>,
        sent_at: Instant,
        answer: Option<Answer>,
    },
    InLine {
        runtime: usize,
        receiver: oneshot::Receiver<Result<Grant>>,
    },
    Holding(Grant),
    Gone,
}

impl World {
    pub(super) fn new(window: i64, has_peers: bool) -> Self {
        let start = Instant::now();
        let mut world = Self {
            state: State {
                sharing: Sharing::with_random(1),
                ..State::default()
            },
            start,
            now: start,
            store: Ledger::new(window),
            runtimes: Vec::new(),
            waiters: Vec::new(),
            stray: Vec::new(),
            refunds: Vec::new(),
            reclaims: Vec::new(),
            unheard: 0,
            unknown_until: start,
            fits_since: None,
            failed: Vec::new(),
            watched_since: None,
            own: 0,
            has_peers,
        };
        for _ in 0..3 {
            world.start_runtime();
        }
        world
    }

    pub(super) fn step(&mut self, (step, choice): Step) {
        match step % 40 {
            0..=3 => self.arrive(choice),
            4..=6 => self.enter(choice),
            7 => self.execute_first_try(choice),
            8 => self.read_first_try(choice),
            9 | 10 => self.poll_waiter(choice),
            11 => self.move_waiter(choice),
            12 | 13 => self.close(choice),
            14..=20 => self.run_driver(choice),
            21..=23 => self.execute_attempt(choice),
            24 => self.lose_answer(choice),
            25 => self.set_life(choice, Life::Running, Life::Stalled),
            26 => self.set_life(choice, Life::Stalled, Life::Running),
            27 => self.shut_down(choice),
            28 => self.give_back_held(choice),
            29 => self.execute_refund(choice),
            30 => self.hear_of_refund(),
            31 => self
                .store
                .take_for_another(1 + u32::from(choice % 3), self.millis()),
            32 => self.others_give_back(choice),
            33 => self.reclaim(),
            34 => self.execute_stray(choice),
            35 | 36 => self.pass(Duration::from_millis(1 + u64::from(choice % 5))),
            37 => self.pass(Duration::from_millis(u64::from(choice % 60))),
            38 => self.pass(Duration::from_millis(u64::from(choice % 700))),
            _ => self.pass(Duration::from_millis(u64::from(choice % 1_500))),
        }
        self.note_fit();
    }

    fn millis(&self) -> i64 {
        (self.now - self.start).as_millis() as i64
    }

    fn pass(&mut self, time: Duration) {
        // Drivers that are running do not oversleep: time stops at each moment at which one wakes.
        let end = self.now + time;
        while self.now < end {
            let wakes = self.runtimes.iter().filter(|it| it.life == Life::Running);
            let wakes = wakes.filter_map(|it| match it.driver.as_ref()?.doing {
                Doing::Sleeping(until) if until > self.now => Some(until),
                _ => None,
            });
            self.now = wakes.min().unwrap_or(end).min(end);
            self.end_overdue();
            for runtime in 0..self.runtimes.len() {
                self.drive(runtime);
            }
            self.note_fit();
            self.check();
        }
    }

    // Waiters.

    fn arrive(&mut self, choice: u16) {
        let sequence = self.state.take_sequence();
        self.waiters.push(SimulatedWaiter {
            sequence,
            permits: 1 + u32::from(choice % 3),
            place: Place::Arrived,
        });
    }

    fn enter(&mut self, choice: u16) {
        let is_here = |waiter: &SimulatedWaiter| matches!(waiter.place, Place::Arrived);
        let Some(waiter) = self.choose_waiter(choice, is_here) else {
            return;
        };
        let sequence = self.waiters[waiter].sequence;
        if self.state.start_first_try(sequence, self.now) {
            let permits = self.waiters[waiter].permits;
            self.waiters[waiter].place = Place::FirstTry {
                call: Arc::new(AcquireCall::new(Requests::one(permits))),
                sent_at: self.now,
                answer: None,
            };
        } else {
            self.join(waiter, choice, None);
        }
    }

    fn join(&mut self, waiter: usize, choice: u16, denied: Option<Known>) {
        let runtime = self.choose_runtime(choice);
        let SimulatedWaiter {
            sequence, permits, ..
        } = self.waiters[waiter];
        let (answer, receiver) = oneshot::channel();
        let id = self.runtimes[runtime].runtime.handle().id();
        let in_line = Waiter::new(permits, None, sequence, answer);
        let new_driver = self.state.join(in_line, id, denied);
        if let Some(notify) = new_driver {
            assert!(self.runtimes[runtime].driver.is_none(), "a second driver");
            let doing = Doing::Ready;
            self.runtimes[runtime].driver = Some(Driver { notify, doing });
        }
        self.waiters[waiter].place = Place::InLine { runtime, receiver };
    }

    fn execute_first_try(&mut self, choice: u16) {
        let is_sent =
            |waiter: &SimulatedWaiter| matches!(waiter.place, Place::FirstTry { answer: None, .. });
        if let Some(waiter) = self.choose_waiter(choice, is_sent) {
            let millis = self.millis();
            if let Place::FirstTry { call, answer, .. } = &mut self.waiters[waiter].place {
                *answer = Some(self.store.execute(call, millis));
            }
        }
    }

    fn read_first_try(&mut self, choice: u16) {
        let is_answered = |waiter: &SimulatedWaiter| {
            let answered = |answer: &Option<Answer>| answer.is_some();
            matches!(&waiter.place, Place::FirstTry { answer, .. } if answered(answer))
        };
        let Some(waiter) = self.choose_waiter(choice, is_answered) else {
            return;
        };
        let place = std::mem::replace(&mut self.waiters[waiter].place, Place::Gone);
        let Place::FirstTry {
            call,
            sent_at,
            answer: Some(answer),
        } = place
        else {
            unreachable!("it was chosen so")
        };
        let SimulatedWaiter {
            sequence, permits, ..
        } = self.waiters[waiter];
        if call.requests.taken(&answer) > 0 {
            self.waiters[waiter].place = Place::Holding(Grant {
                score: answer.score,
                random: call.id,
                permits,
            });
        } else {
            let left = answer.balance.unsigned_abs();
            let denied = Known::new(left, sent_at, answer.wait());
            self.join(waiter, choice, Some(denied));
        }
        self.state.end_first_try(sequence);
    }

    fn poll_waiter(&mut self, choice: u16) {
        let is_polled = |runtimes: &[SimulatedRuntime], waiter: &SimulatedWaiter| match waiter.place
        {
            Place::InLine { runtime, .. } => runtimes[runtime].life == Life::Running,
            _ => false,
        };
        let chosen = choose(self.waiters.len(), choice, |i| {
            is_polled(&self.runtimes, &self.waiters[i])
        });
        if let Some(waiter) = chosen {
            self.receive(waiter, choice);
        }
    }

    fn receive(&mut self, waiter: usize, choice: u16) {
        self.deliver();
        let Place::InLine { receiver, .. } = &mut self.waiters[waiter].place else {
            return;
        };
        match receiver.try_recv() {
            Ok(Ok(grant)) => self.waiters[waiter].place = Place::Holding(grant),
            Ok(Err(_)) => self.waiters[waiter].place = Place::Gone,
            Err(oneshot::error::TryRecvError::Closed) => self.join(waiter, choice, None),
            Err(oneshot::error::TryRecvError::Empty) => {}
        }
    }

    /// It is polled on another runtime: it gives its place up and takes it again there.
    fn move_waiter(&mut self, choice: u16) {
        let Some(waiter) = self.choose_waiter(choice, SimulatedWaiter::is_in_line) else {
            return;
        };
        if self.close_waiter(waiter) {
            self.join(waiter, choice / 7, None);
        }
    }

    fn close(&mut self, choice: u16) {
        let may_leave = |waiter: &SimulatedWaiter| {
            waiter.is_in_line() || matches!(waiter.place, Place::FirstTry { .. })
        };
        let Some(waiter) = self.choose_waiter(choice, may_leave) else {
            return;
        };
        self.close_waiter(waiter);
    }

    /// Drops a waiter's future; tells whether it was in line without an answer.
    fn close_waiter(&mut self, waiter: usize) -> bool {
        self.deliver();
        let place = std::mem::replace(&mut self.waiters[waiter].place, Place::Gone);
        match place {
            Place::FirstTry { call, answer, .. } => {
                let sequence = self.waiters[waiter].sequence;
                self.state.end_first_try(sequence);
                if let Some(answer) = answer {
                    self.refund_taken(&call, &answer);
                }
            }
            Place::InLine { mut receiver, .. } => {
                receiver.close();
                match receiver.try_recv() {
                    Ok(Ok(grant)) => self.refunds.push(grant),
                    Ok(Err(_)) => {}
                    Err(_) => {
                        let sequence = self.waiters[waiter].sequence;
                        match self.state.leave(sequence) {
                            Left::Nothing => {}
                            Left::Abandoned(call) => self.reclaims.push(call),
                            Left::Unwatched => self.watch(),
                        }
                        return true;
                    }
                }
            }
            place => self.waiters[waiter].place = place,
        }
        false
    }

    fn refund_taken(&mut self, call: &AcquireCall, answer: &Answer) {
        let permits = call.requests.taken(answer) as u32;
        if permits > 0 {
            self.refunds.push(Grant {
                score: answer.score,
                random: call.id,
                permits,
            });
        }
    }

    /// What the last step has for others reaches them before anything else happens.
    fn deliver(&mut self) {
        self.refunds.extend(self.state.take_outbox().deliver());
    }

    /// The task that watches the call in flight sleeps for the time that a call takes.
    fn watch(&mut self) {
        assert!(self.watched_since.is_none(), "a second task watches");
        self.watched_since = Some(self.now);
    }

    fn end_overdue(&mut self) {
        let Some(since) = self.watched_since.take_if(|it| *it + DEADLINE < self.now) else {
            return;
        };
        match self.state.withdraw_overdue(since) {
            Watched::InTime => self.watch(),
            Watched::Ended => {}
            Watched::Withdrawn(call) => self.reclaims.push(call),
        }
    }

    // Drivers.

    fn run_driver(&mut self, choice: u16) {
        let chosen = choose(self.runtimes.len(), choice, |i| {
            let runtime = &self.runtimes[i];
            runtime.life == Life::Running && runtime.driver.is_some()
        });
        if let Some(runtime) = chosen {
            self.drive(runtime);
        }
    }

    /// What the task of a runtime does once it is polled.
    fn drive(&mut self, runtime: usize) {
        self.deliver();
        let now = self.now;
        let SimulatedRuntime {
            runtime: lent,
            life: Life::Running,
            driver: Some(driver),
        } = &mut self.runtimes[runtime]
        else {
            return;
        };
        if driver.is_awake(now) {
            let next = self.state.next(lent.handle().id(), now, self.has_peers);
            driver.doing = match next {
                Next::Sleep(until) => Doing::Sleeping(until),
                Next::Call(call) => {
                    let millis = (now - self.start).as_millis() as i64;
                    Doing::Calling(Attempt::new(call, now, millis))
                }
                Next::Stop => {
                    self.runtimes[runtime].driver = None;
                    return;
                }
            };
            return;
        }
        let is_answered = |attempt: &mut Attempt| attempt.result.take();
        let Doing::Calling(attempt) = &mut driver.doing else {
            return;
        };
        if let Some(result) = is_answered(attempt) {
            let (call, sent_at) = (Arc::clone(&attempt.call), attempt.sent_at);
            driver.doing = Doing::Ready;
            self.read_answer(&call, sent_at, result);
            self.drive(runtime); // in the same poll
        }
    }

    fn read_answer(&mut self, call: &Arc<AcquireCall>, sent_at: Instant, result: Result<Answer>) {
        match result {
            Ok(answer) => {
                self.own += call.requests.taken(&answer).unsigned_abs();
                let Rest {
                    permits,
                    is_reclaimed,
                } = self.state.answered(&Answered {
                    call,
                    answer: &answer,
                    sent_at,
                    own: self.own,
                    name: "limiter",
                });
                if permits > 0 {
                    self.refunds.push(Grant {
                        score: answer.score,
                        random: call.id,
                        permits,
                    });
                }
                if is_reclaimed {
                    self.reclaims.push(Arc::clone(call));
                }
            }
            Err(error) => {
                let in_flight = self.state.in_flight.as_ref();
                let is_in_flight = in_flight.is_some_and(|it| Arc::ptr_eq(&it.call, call));
                if self.state.failed(call, &error, self.now) {
                    self.reclaims.push(Arc::clone(call));
                } else if is_in_flight {
                    self.failed.push(call.id);
                }
            }
        }
    }

    fn execute_attempt(&mut self, choice: u16) {
        let (now, millis) = (self.now, self.millis());
        let Some(chosen) = self.choose_attempt(choice) else {
            return;
        };
        let is_running = self.runtimes[chosen].life == Life::Running;
        let driver = self.runtimes[chosen].driver.as_mut();
        let Some(Doing::Calling(attempt)) = driver.map(|it| &mut it.doing) else {
            return;
        };
        if attempt.may_decide(&self.store, millis) {
            attempt.result = Some(Ok(self.store.execute(&attempt.call, millis)));
        } else if millis > attempt.deadline && is_running {
            attempt.repeat(now, millis);
        }
    }

    /// The runtime of an attempt that is on its way.
    fn choose_attempt(&self, choice: u16) -> Option<usize> {
        let is_sent = |runtime: &SimulatedRuntime| match &runtime.driver {
            Some(driver) => matches!(&driver.doing, Doing::Calling(it) if it.result.is_none()),
            None => false,
        };
        choose(self.runtimes.len(), choice, |i| is_sent(&self.runtimes[i]))
    }

    /// The connection is lost: before the store had the call, or after.
    fn lose_answer(&mut self, choice: u16) {
        if choice.is_multiple_of(2) {
            self.execute_attempt(choice);
        }
        let chosen = choose(self.runtimes.len(), choice, |i| {
            let driver = self.runtimes[i].driver.as_ref();
            driver.is_some_and(|it| matches!(it.doing, Doing::Calling(_)))
        });
        let driver = chosen.and_then(|i| self.runtimes[i].driver.as_mut());
        if let Some(Driver {
            doing: Doing::Calling(attempt),
            ..
        }) = driver
        {
            attempt.result = Some(Err(Error::Indeterminate { source: None }));
        }
    }

    fn execute_stray(&mut self, choice: u16) {
        if self.stray.is_empty() {
            return;
        }
        let stray = self.stray.remove(usize::from(choice) % self.stray.len());
        if stray.may_decide(&self.store, self.millis()) {
            self.store.execute(&stray.call, self.millis());
        }
    }

    // Runtimes.

    fn start_runtime(&mut self) {
        self.runtimes.push(SimulatedRuntime {
            runtime: Builder::new_current_thread().build().unwrap(),
            life: Life::Running,
            driver: None,
        });
    }

    fn set_life(&mut self, choice: u16, from: Life, to: Life) {
        let chosen = choose(self.runtimes.len(), choice, |i| {
            self.runtimes[i].life == from
        });
        if let Some(runtime) = chosen {
            self.runtimes[runtime].life = to;
        }
    }

    fn shut_down(&mut self, choice: u16) {
        let chosen = choose(self.runtimes.len(), choice, |i| {
            self.runtimes[i].life != Life::ShutDown
        });
        let Some(runtime) = chosen else {
            return;
        };
        self.runtimes[runtime].life = Life::ShutDown;
        if let Some(driver) = self.runtimes[runtime].driver.take() {
            let id = self.runtimes[runtime].runtime.handle().id();
            let attempt = match driver.doing {
                Doing::Calling(attempt) => Some(attempt),
                _ => None,
            };
            let call = attempt.as_ref().map(|attempt| &attempt.call);
            if let Some(call) = self.state.driver_lost(id, call, self.now) {
                self.reclaims.push(call);
            }
            self.stray
                .extend(attempt.filter(|attempt| attempt.result.is_none()));
        }
    }

    /// One that runs; a new one where none does.
    fn choose_runtime(&mut self, choice: u16) -> usize {
        let is_running = |runtime: &SimulatedRuntime| runtime.life == Life::Running;
        let count = self.runtimes.len();
        choose(count, choice, |i| is_running(&self.runtimes[i])).unwrap_or_else(|| {
            self.start_runtime();
            self.runtimes.len() - 1
        })
    }

    // Permits that come back.

    fn give_back_held(&mut self, choice: u16) {
        let holds = |waiter: &SimulatedWaiter| matches!(waiter.place, Place::Holding(_));
        if let Some(waiter) = self.choose_waiter(choice, holds) {
            let place = std::mem::replace(&mut self.waiters[waiter].place, Place::Gone);
            if let Place::Holding(grant) = place {
                self.refunds.push(grant);
            }
        }
    }

    fn execute_refund(&mut self, choice: u16) {
        if !self.refunds.is_empty() {
            let grant = self
                .refunds
                .remove(usize::from(choice) % self.refunds.len());
            self.store.refund(&grant);
            self.unheard += 1;
        }
    }

    fn hear_of_refund(&mut self) {
        if self.unheard > 0 {
            self.unheard -= 1;
            self.state.permits_freed();
        }
    }

    fn others_give_back(&mut self, choice: u16) {
        if self.store.give_back_of_another(choice) {
            self.unknown_until = self.now + LONGEST_SLEEP;
        }
    }

    fn reclaim(&mut self) {
        let millis = self.millis();
        let is_due = |call: &Arc<AcquireCall>| {
            let made = call.attempts_made();
            made.is_none_or(|made| made.deadline < millis)
        };
        if let Some(due) = self.reclaims.iter().position(is_due) {
            let call = self.reclaims.remove(due);
            if call.claim() {
                self.store.reclaim(call.id, call.granted_at());
            }
            self.unheard += 1;
        }
    }

    // What must hold.

    /// The waiter that is served next.
    fn head(&self) -> Option<&Waiter> {
        self.state.waiters.iter().find(|waiter| !waiter.is_gone())
    }

    fn note_fit(&mut self) {
        if self.is_held_up() {
            self.fits_since = None;
            return;
        }
        let free = self.store.free(self.millis());
        let head = self.head().map(|head| (head.sequence, head.permits));
        self.fits_since = match (head, self.fits_since) {
            (Some((sequence, permits)), since) if i64::from(permits) <= free => match since {
                Some((of, since)) if of == sequence => Some((sequence, since)),
                _ => Some((sequence, self.now)),
            },
            _ => None,
        };
    }

    /// Whether the line may not be asked for, or does not know of what came back.
    fn is_held_up(&self) -> bool {
        let first_try = self.state.first_try.as_ref();
        self.state.in_flight.is_some()
            || first_try.is_some_and(|it| self.now < it.until)
            || self.unheard > 0
            || self.now < self.unknown_until
    }

    pub(super) fn check(&mut self) {
        self.deliver();
        let now = self.now;
        assert!(
            self.state.waiters.iter().is_sorted_by_key(|it| it.sequence),
            "the line is out of order"
        );
        self.check_runtimes();
        self.check_owners();
        let Some((sequence, since)) = self.fits_since else {
            return;
        };
        let sharing = if self.has_peers {
            SHARING
        } else {
            Duration::ZERO
        };
        if now <= since + SLACK + sharing {
            return;
        }
        let mut running = self
            .runtimes
            .iter_mut()
            .filter(|it| it.life == Life::Running)
            .filter_map(|it| it.driver.as_mut())
            .peekable();
        let nobody_is_left = running.peek().is_none();
        assert!(
            nobody_is_left || running.any(|driver| driver.wakes(now) || driver.is_calling()),
            "waiter {sequence} fits, and everybody sleeps"
        );
    }

    /// A waiter on a runtime that runs has a driver there, which does not sleep for long.
    fn check_runtimes(&self) {
        for waiter in &self.waiters {
            let Place::InLine { runtime, receiver } = &waiter.place else {
                continue;
            };
            let runtime = &self.runtimes[*runtime];
            if runtime.life != Life::Running || !receiver.is_empty() || receiver.is_terminated() {
                continue;
            }
            let driver = runtime.driver.as_ref().expect("a waiter without a driver");
            if let Doing::Sleeping(until) = driver.doing {
                assert!(until <= self.now + LONGEST_SLEEP.max(TAKE_OVER_AFTER));
            }
        }
    }

    /// Nobody holds what was not granted.
    fn check_owners(&self) {
        for (id, score, granted) in self.store.granted() {
            let held = self.held(id, score);
            assert!(held <= granted, "{held} of {granted} are held");
        }
    }

    fn held(&self, id: [u8; 16], score: i64) -> u32 {
        let held = self.waiters.iter().filter_map(|it| match &it.place {
            Place::Holding(grant) if grant.random == id && grant.score == score => {
                Some(grant.permits)
            }
            _ => None,
        });
        held.sum()
    }

    /// Lets all that is under way come to its end: those who wait on runtimes that run are served; then those who are
    /// left leave, and what is in use is what is held.
    pub(super) fn finish(&mut self) {
        // Those who never look at their grants keep them from others.
        for waiter in 0..self.waiters.len() {
            if let Place::InLine { runtime, .. } = self.waiters[waiter].place
                && self.runtimes[runtime].life != Life::Running
            {
                self.close_waiter(waiter);
            }
        }
        for turn in 0..500_u16 {
            if !self.is_anybody_waiting() {
                break;
            }
            self.settle(turn);
            // Callers use their permits, and others come to their end.
            self.give_back_held(turn);
            assert!(turn < 499, "somebody waits for ever");
        }
        for waiter in 0..self.waiters.len() {
            self.close_waiter(waiter);
        }
        for runtime in &mut self.runtimes {
            if runtime.life == Life::Stalled {
                runtime.life = Life::Running;
            }
        }
        self.stray.clear();
        for turn in 0..200 {
            let is_busy = self.runtimes.iter().any(|it| it.driver.is_some());
            if !is_busy && self.refunds.is_empty() && self.reclaims.is_empty() {
                break;
            }
            self.settle(turn);
        }
        let has_driver = |runtime: &SimulatedRuntime| runtime.driver.is_some();
        assert!(!self.runtimes.iter().any(has_driver), "a driver is left");
        assert!(self.refunds.is_empty() && self.reclaims.is_empty());
        for (id, score, used) in self.store.in_use() {
            if !self.failed.contains(&id) {
                assert_eq!(used, self.held(id, score), "permits that nobody holds");
            }
        }
    }

    fn is_anybody_waiting(&self) -> bool {
        self.waiters.iter().any(|waiter| match waiter.place {
            Place::InLine { runtime, .. } => self.runtimes[runtime].life == Life::Running,
            Place::FirstTry { .. } | Place::Arrived => true,
            _ => false,
        })
    }

    /// Everything that can happen by itself happens.
    fn settle(&mut self, choice: u16) {
        for waiter in 0..self.waiters.len() {
            self.enter(waiter as u16);
            self.execute_first_try(waiter as u16);
            self.read_first_try(waiter as u16);
        }
        for i in 0..self.runtimes.len() {
            self.execute_attempt(i as u16);
            self.drive(i);
            self.execute_stray(choice);
        }
        for _ in 0..self.refunds.len() + 1 {
            self.execute_refund(choice);
            self.hear_of_refund();
        }
        self.reclaim();
        self.hear_of_refund();
        for waiter in 0..self.waiters.len() {
            let is_polled = match self.waiters[waiter].place {
                Place::InLine { runtime, .. } => self.runtimes[runtime].life == Life::Running,
                _ => false,
            };
            if is_polled {
                self.receive(waiter, choice);
            }
        }
        self.store.take_back_all_of_others();
        // What was taken without an answer comes back with its window.
        for &id in &self.failed {
            self.store.reclaim(id, None);
        }
        self.unknown_until = self.now + LONGEST_SLEEP;
        self.pass(Duration::from_millis(101));
    }

    fn choose_waiter(
        &self,
        choice: u16,
        is_meant: impl Fn(&SimulatedWaiter) -> bool,
    ) -> Option<usize> {
        choose(self.waiters.len(), choice, |i| is_meant(&self.waiters[i]))
    }
}

impl Attempt {
    fn new(call: Arc<AcquireCall>, now: Instant, millis: i64) -> Self {
        let mut attempt = Self {
            call,
            sent_at: now,
            deadline: millis,
            not_before: None,
            result: None,
        };
        attempt.repeat(now, millis);
        attempt
    }

    /// Makes the next attempt, as long as the call has time and is not reclaimed.
    fn repeat(&mut self, now: Instant, millis: i64) {
        let deadline = millis + ATTEMPT.as_millis() as i64;
        let noted = acquire_call::Attempt {
            deadline,
            from: millis,
        };
        match self.call.note_attempt(noted) {
            Ok(before) if now < self.sent_at + DEADLINE => {
                self.deadline = deadline;
                self.not_before = before.map(|before| before.deadline);
            }
            _ => self.result = Some(Err(Error::Indeterminate { source: None })),
        }
    }

    /// Whether the store does something for it: it finds what was granted at any time.
    fn may_decide(&self, store: &Ledger, millis: i64) -> bool {
        let is_due = self.not_before.is_none_or(|time| time < millis);
        millis <= self.deadline && (is_due || store.has_granted(&self.call))
    }
}

impl SimulatedWaiter {
    fn is_in_line(&self) -> bool {
        matches!(self.place, Place::InLine { .. })
    }
}

impl Driver {
    fn is_calling(&self) -> bool {
        matches!(self.doing, Doing::Calling(_))
    }

    /// Whether it goes on when it is polled; a notification is used up.
    fn is_awake(&mut self, now: Instant) -> bool {
        if self.wakes(now) {
            self.doing = Doing::Ready;
            return true;
        }
        false
    }

    fn wakes(&mut self, now: Instant) -> bool {
        match self.doing {
            Doing::Ready => true,
            Doing::Calling(_) => false,
            Doing::Sleeping(until) => {
                let mut notified = pin!(self.notify.notified());
                let polled = notified
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                let is_awake = until <= now || polled == Poll::Ready(());
                if is_awake {
                    self.doing = Doing::Ready;
                }
                is_awake
            }
        }
    }
}

/// One of those that are meant, counted from `choice` on.
fn choose(count: usize, choice: u16, is_meant: impl Fn(usize) -> bool) -> Option<usize> {
    let from_choice = (0..count).map(|i| (i + usize::from(choice)) % count);
    from_choice.into_iter().find(|&i| is_meant(i))
}
