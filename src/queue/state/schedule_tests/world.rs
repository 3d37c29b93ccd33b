//! What surrounds the state: runtimes with their drivers, waiters, and the store.

mod attempts;
mod coming_back;
mod drivers;
mod ending;
mod invariants;
mod runtimes;
mod waiters;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::super::super::ledger_in_tests::Ledger;
use super::super::super::sharing::Sharing;
use super::super::availability::LONGEST_SLEEP;
use super::super::{Answered, Availability, Left, Next, Outbox, Rest, State, Waiter, Watched};
use crate::batch::LONGEST_HOLD_UP;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::store::AcquireCall;
use crate::store::acquire_call;
use crate::window::{Acquired, Requests};
use attempts::Attempt;

/// What happens, and a number to choose by.
pub(super) type Step = (u8, u16);

/// For how long a driver makes a call.
const DEADLINE: Duration = Duration::from_secs(3);

/// How long each of its attempts may take.
const ATTEMPT: Duration = Duration::from_millis(750);

/// What a denied waiter waits beyond the first grant's window.
const SLACK: Duration = Duration::from_millis(3);

/// The longest time for which permits are left to others, and the delay of the process that took
/// the most recently.
const SHARING: Duration = Duration::from_millis(110 * 5 / 4 + 1 + 12 + 1);

pub(super) struct World {
    state: State,
    start: Instant,
    now: Instant,
    store: Ledger,
    runtimes: Vec<SimulatedRuntime>,
    waiters: Vec<SimulatedWaiter>,
    /// Attempts on the way to the store whose answers nobody will read.
    stray: Vec<Attempt>,
    /// Grants on their way back, until the store has them.
    refunds: Vec<Grant>,
    reclaims: Vec<Arc<AcquireCall>>,
    /// Refunds that the store has executed, which this process does not know yet.
    unheard: usize,
    /// When others last gave permits back, in milliseconds.
    freed_elsewhere_at: Option<i64>,
    /// Until then the queue may sleep although the head fits: others gave permits back.
    unknown_until: Instant,
    /// Since when the head fits.
    fits_since: Option<(u64, Instant)>,
    failed: Vec<[u8; 16]>,
    /// Since when a task watches the call in flight.
    watched_since: Option<Instant>,
    /// All permits granted to this process.
    own: u64,
    /// Whether permits are left to other processes.
    has_peers: bool,
}

struct SimulatedRuntime {
    /// Idle; only its id is used.
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
    Calling(Box<Attempt>),
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
        answer: Option<Acquired>,
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
                ..State::over(Duration::MAX)
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
            freed_elsewhere_at: None,
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
}

/// One of those that `is_meant` selects, counted from `choice` on.
fn choose(count: usize, choice: u16, is_meant: impl Fn(usize) -> bool) -> Option<usize> {
    let from_choice = (0..count).map(|i| (i + usize::from(choice)) % count);
    from_choice.into_iter().find(|&i| is_meant(i))
}
