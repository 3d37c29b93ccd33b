//! What can happen to a request on its way, and which of it happens next, determined by a seed.

use std::sync::Mutex;
use std::time::Duration;

use crate::resp::Command;
use crate::seeded::Seeded;

/// One fault. The times are how long something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is lost, and its connection is reset.
    ResetBeforeServer,
    /// The server runs the request; its answer is lost, and the connection is closed.
    AnswerDropped,
    /// The server runs the request; its answer is lost, and the connection is reset.
    ResetAfterServer,
    /// The connection is closed at once, and the server gets the request later, over another
    /// connection.
    RequestLate(Duration),
    /// The request and all behind it wait, and then go on over the same connection, whether its
    /// client is still there or not.
    RequestDelayed(Duration),
    /// The answer and all behind it wait.
    AnswerDelayed(Duration),
    /// A part of the answer comes, and then the end of the connection.
    AnswerTorn,
    /// A part of the answer comes, and the rest later.
    AnswerTornDelayed(Duration),
    /// Nothing passes any more; the request is lost, and the connection stays open.
    FrozenBeforeServer,
    /// Nothing passes any more; the server runs the request, and the connection stays open.
    FrozenAfterServer,
    /// The server gets the request twice, first over another connection. Its answer is that to the
    /// second one.
    ReplayedAtOnce,
    /// The server gets the request a second time over another connection, after the response
    /// timeout.
    ReplayedLate(Duration),
}

const LONGEST_ATTEMPT: Duration = Duration::from_millis(500);

/// How many kinds of [`Fault`] there are.
pub const KINDS: usize = 12;

impl Fault {
    fn draw(random: &mut Seeded, response_timeout: Duration) -> Self {
        // Some are shorter than an attempt, some longer than the call.
        let longest = match random.below(2) {
            0 => LONGEST_ATTEMPT,
            _ => response_timeout * 3 / 2,
        };
        let time = Duration::from_millis(random.below(longest.as_millis() as u64));
        match random.below(KINDS as u64) {
            0 => Self::ResetBeforeServer,
            1 => Self::AnswerDropped,
            2 => Self::ResetAfterServer,
            3 => Self::RequestLate(time),
            4 => Self::RequestDelayed(time),
            5 => Self::AnswerDelayed(time),
            6 => Self::AnswerTorn,
            7 => Self::AnswerTornDelayed(time),
            8 => Self::FrozenBeforeServer,
            9 => Self::FrozenAfterServer,
            10 => Self::ReplayedAtOnce,
            _ => Self::ReplayedLate(response_timeout + Duration::from_millis(100) + time / 3),
        }
    }

    pub fn kind(self) -> usize {
        match self {
            Self::ResetBeforeServer => 0,
            Self::AnswerDropped => 1,
            Self::ResetAfterServer => 2,
            Self::RequestLate(_) => 3,
            Self::RequestDelayed(_) => 4,
            Self::AnswerDelayed(_) => 5,
            Self::AnswerTorn => 6,
            Self::AnswerTornDelayed(_) => 7,
            Self::FrozenBeforeServer => 8,
            Self::FrozenAfterServer => 9,
            Self::ReplayedAtOnce => 10,
            Self::ReplayedLate(_) => 11,
        }
    }
}

/// Which requests may reach the server twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replays {
    /// Acquires, at any time: the id of the call identifies the second one.
    Acquires,
    /// All, but only after the response timeout: their deadline has passed. A decision has no id.
    LateDecisions,
}

/// The faults of one round.
pub struct Plan {
    random: Mutex<Seeded>,
    every: u64,
    response_timeout: Duration,
    replays: Replays,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    left: u64,
    met: [u64; KINDS],
}

impl Plan {
    /// One in `every` requests meets a fault.
    pub fn new(random: Seeded, every: u64, response_timeout: Duration, replays: Replays) -> Self {
        Self {
            random: Mutex::new(random),
            every,
            response_timeout,
            replays,
            state: Mutex::default(),
        }
    }

    /// From now on this many faults happen.
    pub fn arm(&self, faults: u64) {
        self.state.lock().unwrap().left = faults;
    }

    pub fn is_over(&self) -> bool {
        self.state.lock().unwrap().left == 0
    }

    /// How many faults of each kind have happened.
    pub fn met(&self) -> [u64; KINDS] {
        self.state.lock().unwrap().met
    }

    /// What happens to this request.
    pub fn fault_of(&self, command: &Command) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        if state.left == 0 {
            return None;
        }
        let mut random = self.random.lock().unwrap();
        if random.below(self.every) > 0 {
            return None;
        }
        let fault = loop {
            let fault = Fault::draw(&mut random, self.response_timeout);
            if self.may_happen(fault, command) {
                break fault;
            }
        };
        state.left -= 1;
        state.met[fault.kind()] += 1;
        Some(fault)
    }

    fn may_happen(&self, fault: Fault, command: &Command) -> bool {
        match (fault, self.replays) {
            (Fault::ReplayedAtOnce, Replays::Acquires) => is_acquire(command),
            (Fault::ReplayedAtOnce, Replays::LateDecisions) => false,
            (Fault::ReplayedLate(_), Replays::Acquires) => is_acquire(command),
            (Fault::ReplayedLate(_), Replays::LateDecisions) => is_script(command),
            _ => true,
        }
    }
}

fn is_script(command: &Command) -> bool {
    command.name().starts_with("EVAL")
}

/// Whether it is an acquire on one limiter or on several. The scripts that give back have the same
/// five keys in another order, and neither id nor deadline.
fn is_acquire(command: &Command) -> bool {
    let third_key = command.0.get(5).filter(|_| is_script(command));
    third_key.is_some_and(|key| key.windows(8).any(|part| part == b":permits"))
}
