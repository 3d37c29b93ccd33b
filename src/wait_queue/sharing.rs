//! How a process with a backlog leaves room for the other processes on its limiter, Java or Rust.
//!
//! A queue that asks right when permits come back takes all of them: a Redisson client wakes up to a timer tick of 100 ms
//! later and finds none. So a process that knows of others takes turns. In its *own* turn it asks for all that its waiters
//! want. In the *others'* turn it asks for all but some permits, leaves these for [`Sharing::hold`], and then asks for what
//! is left of them. A turn that brought permits is followed by the others'; one that brought none is not. Two processes
//! that take turns get half each, and a permit lies idle only as long as the others need to take it.
//!
//! **Learning.** The answer to each call tells how many permits others have taken since the last one. In the others' turn
//! the process leaves twice as many as they took of the last ones if that was all, else one more than they took: so a
//! neighbour with a small appetite costs little. After some turns in which they took nothing the process holds itself for
//! alone and leaves nothing.
//!
//! **Probing.** Who is starved takes nothing, so a process that is alone leaves a few permits now and then, seldom enough to
//! lose no more than half a percent of the rate.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::Share;

/// Longer than a timer tick of Redisson's (100 ms) and its 3 ms.
const LONGEST_HOLD: Duration = Duration::from_millis(110);
const SHORTEST_HOLD: Duration = Duration::from_millis(3);

/// A hold takes at most this part of the interval, so that short windows are not wasted.
const HOLDS_PER_INTERVAL: u32 = 9;

/// After so many turns in which others took nothing a process is alone.
const IDLE_TURNS: u32 = 3;

/// Probes hold back a 200th of the rate on average.
const PROBE_COST: u32 = 200;
const LONGEST_PROBE_PAUSE: Duration = Duration::from_secs(5);

/// How much later than it could a process asks that had permits last time, at most: who had none goes first.
const LONGEST_JITTER: Duration = Duration::from_millis(4);

#[derive(Debug, Default)]
pub(super) struct Sharing {
    others: Others,
    turn: Turn,
    /// How many permits to leave in the others' turn.
    leave: i64,
    /// How many the next probe leaves.
    probe: i64,
    probe_at: Option<Instant>,
    /// The hold of the turn in progress.
    held_until: Option<Instant>,
    /// The score of the last answer, and how many permits this process had been granted by then.
    last: Option<(i64, u64)>,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Others {
    #[default]
    Unseen,
    /// They took permits; since then there were so many turns in which they took none.
    Seen { idle_turns: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    #[default]
    Own,
    Others,
    /// The hold is over: what is left of the others' turn is taken.
    Rest,
}

/// How the next call asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ask {
    pub(super) share: Option<Share>,
    /// Has the answer tell how many permits were granted with a higher score.
    pub(super) newer_than: Option<i64>,
}

/// What a call's answer shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) sent_at: Instant,
    pub(super) score: i64,
    pub(super) rate: i64,
    /// Told where `newer` is.
    pub(super) interval: Option<Duration>,
    /// Permits that the call left.
    pub(super) left: i64,
    /// Permits that it took.
    pub(super) taken: i64,
    /// Permits granted to anybody since the score that was asked about.
    pub(super) newer: Option<i64>,
    /// All permits that this process has been granted, those of this call included.
    pub(super) own: u64,
    /// Whether some of the waiters it asked for were denied.
    pub(super) has_backlog: bool,
}

impl Sharing {
    /// How to ask now.
    pub(super) fn plan(&mut self, now: Instant) -> Ask {
        if self.turn == Turn::Own
            && self.others == Others::Unseen
            && self.probe_at.is_none_or(|at| at <= now)
        {
            self.turn = Turn::Others;
            self.leave = self.probe.max(1);
        }
        let leave = if self.turn == Turn::Others {
            self.leave.max(1)
        } else {
            0
        };
        Ask {
            share: (leave > 0).then(|| Share {
                permille: 1000,
                credit: -1000 * leave,
            }),
            newer_than: self.last.map(|(score, _own)| score),
        }
    }

    /// Learns from an answer. Returns until when the process leaves the permits that it left to others.
    pub(super) fn note(&mut self, seen: Seen) -> Option<Instant> {
        let others_took = self.others_took(&seen);
        self.last = Some((seen.score, seen.own));
        if others_took > 0 {
            self.others = Others::Seen { idle_turns: 0 };
            self.leave = self.leave.max(1);
        }
        if !seen.has_backlog {
            self.turn = Turn::Own;
            return None;
        }
        match self.turn {
            Turn::Own => {
                if seen.taken > 0 && self.others != Others::Unseen {
                    self.turn = Turn::Others;
                }
                None
            }
            Turn::Others if seen.left > 0 => {
                self.turn = Turn::Rest;
                let hold = hold(seen.interval);
                let until = seen.sent_at + hold + self.random_up_to(hold / 4);
                self.held_until = Some(until);
                self.held_until
            }
            // Nothing was there to be left: others were first.
            Turn::Others => {
                self.turn = Turn::Own;
                None
            }
            Turn::Rest => {
                self.end_turn(others_took, &seen);
                None
            }
        }
    }

    /// The others' turn is over, and they took so many permits.
    fn end_turn(&mut self, others_took: i64, seen: &Seen) {
        self.turn = Turn::Own;
        self.held_until = None;
        let left = self.leave;
        match &mut self.others {
            Others::Unseen => {
                // A probe found nobody. One that needs more than a permit at a time takes nothing of a small one.
                let pause = hold(seen.interval) * PROBE_COST;
                let rate = u32::try_from(seen.rate.max(1)).unwrap_or(u32::MAX);
                let pause = pause.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)) / rate;
                let pause = pause.clamp(seen.probe_interval(), LONGEST_PROBE_PAUSE);
                self.probe_at = Some(seen.sent_at + pause);
                let largest = (seen.rate / 2).max(1);
                self.probe = if left >= largest { 1 } else { left * 2 };
            }
            Others::Seen { idle_turns } if others_took == 0 => {
                *idle_turns += 1;
                self.leave = 1;
                if *idle_turns >= IDLE_TURNS {
                    self.others = Others::Unseen;
                    self.probe = 1;
                    self.probe_at = Some(seen.sent_at + seen.probe_interval());
                }
            }
            Others::Seen { .. } => {
                self.leave = if others_took >= left {
                    left.saturating_mul(2).min(seen.rate)
                } else {
                    others_took + 1
                };
            }
        }
    }

    /// How many permits others were granted since the last answer.
    fn others_took(&self, seen: &Seen) -> i64 {
        let (Some(newer), Some((_score, own_before))) = (seen.newer, self.last) else {
            return 0;
        };
        let own = seen.own.saturating_sub(own_before);
        let own_before_call = i64::try_from(own).unwrap_or(i64::MAX) - seen.taken;
        (newer - own_before_call).max(0)
    }

    /// How much later than permits come back the process asks.
    pub(super) fn jitter(&mut self, interval: Option<Duration>, had_permits: bool) -> Duration {
        if self.others == Others::Unseen || !had_permits {
            return Duration::ZERO;
        }
        self.random_up_to(LONGEST_JITTER.min(hold(interval)))
    }

    /// Permits were freed by this process: nothing is held back from its waiters.
    pub(super) fn release_hold(&mut self) {
        if self.held_until.take().is_some() {
            self.turn = Turn::Own;
        }
    }

    fn random_up_to(&mut self, most: Duration) -> Duration {
        if self.random == 0 {
            self.random = u64::from_ne_bytes(
                crate::permit::new_random()[8..]
                    .try_into()
                    .unwrap_or_default(),
            ) | 1;
        }
        // Xorshift: any spread will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        most * ((self.random >> 40) as u32 % 1024) / 1024
    }
}

impl Seen {
    /// The shortest time from one probe to the next.
    fn probe_interval(&self) -> Duration {
        self.interval.unwrap_or_default().min(LONGEST_PROBE_PAUSE)
    }
}

/// How long permits are left for others.
fn hold(interval: Option<Duration>) -> Duration {
    let interval = interval.unwrap_or_default();
    (interval / HOLDS_PER_INTERVAL).clamp(SHORTEST_HOLD, LONGEST_HOLD)
}
