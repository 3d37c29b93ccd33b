//! How a process with waiters leaves permits to the other processes on its limiter, Java or Rust.
//!
//! A queue that asks right when permits come back takes all of them: a Redisson client wakes up to
//! a timer tick of 100 ms later and finds none. So a process that knows of others keeps an account.
//! It owes the others what it takes; what they take, or decline, reduces the debt. While it owes
//! permits, it leaves some of those that come back to the others for [`hold`], and only then asks
//! for the rest. Two processes that do so get half each, and a permit is idle no longer than the
//! others need to take it.
//!
//! **Learning.** The answer to each call says how many permits others have taken since the last
//! one. If they took most of what was left to them, the process leaves twice as many next time, and
//! otherwise one more than they took: a process that needs little costs little. If they took
//! nothing, each of their callers may want more than was left: the process leaves twice as many
//! before it counts them as gone. After some such holds it considers itself alone, and leaves
//! nothing.
//!
//! If others never took fewer than three permits between two calls, each of their callers may want
//! three. Then one or two permits are nothing to leave: nobody declined them, and the process goes
//! on owing until three are there at once. Otherwise a debt to large requests would be paid with
//! permits that are no use to them.
//!
//! A process that knows of others asks sooner, and for more of the permits, the less it was granted
//! recently. So three processes get a third each, although none of them owes the two others
//! anything. Asking sooner is what counts: the process that is behind finds what the others have
//! not taken yet. One that was granted nothing asks before those that consider themselves alone.
//!
//! **Probing.** A starved process takes nothing and is not noticed. So a process that is alone
//! leaves a few permits now and then, rarely enough to lose no more than a percent of the rate. At
//! the start, until a probe of one permit and one of several have found no other process, it does
//! so once per interval. With one permit per interval, the least it can leave is all of it. It does
//! so for one hold in five seconds, which costs two and a half percent.

#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod step_tests;

use std::time::Duration;

use tokio::time::Instant;

use crate::window::Share;

/// Longer than a timer tick of Redisson (100 ms) and its 3 ms.
const LONGEST_HOLD: Duration = Duration::from_millis(110);
const SHORTEST_HOLD: Duration = Duration::from_millis(3);

/// A hold takes at most this part of the interval, so that short windows are not wasted.
const HOLDS_PER_INTERVAL: u32 = 9;

/// After this many holds in which others took nothing, a process considers itself alone.
const IDLE_HOLDS: u32 = 3;

/// A process that recently took all permits asks for this many thousandths of them less than one
/// that took none.
const YIELD: f64 = 600.0;

/// What counts as recent: at most the permits of this many intervals.
const RECENT_INTERVALS: f64 = 4.0;

/// Probes hold back a 200th of the rate on average, or one at a time, [`LONGEST_PROBE_PAUSE`]
/// apart.
const PROBE_COST: u32 = 200;
const LONGEST_PROBE_PAUSE: Duration = Duration::from_secs(5);

/// The first probes, of one permit and of this many, follow each other fast. Each splits what comes
/// back together.
const LARGEST_FAST_PROBE: i64 = 8;

/// The longest delay, of a process that recently took all permits: the process with the least goes
/// first. Far more than the difference in travel time between the calls of two processes.
const LONGEST_DELAY: Duration = Duration::from_millis(12);

/// A process that was granted nothing recently asks this much sooner than one that considers itself
/// alone, and then 1 ms after permits are back.
const HEAD_START: Duration = Duration::from_millis(2);

/// At most this part of the delay is random, so that two processes with equal parts take turns.
const RANDOM_PART_OF_DELAY: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Sharing {
    others: Others,
    /// How many permits this process has taken beyond its share, less those it left to others.
    owed: i64,
    /// How many permits this process took recently.
    own_recently: f64,
    /// How many permits the others took recently.
    others_recently: f64,
    /// The most permits that it leaves at a time.
    appetite: i64,
    /// The fewest permits that others took between two calls, at most half of the rate; 0 before
    /// they took some. Fewer may be no use to them.
    least: i64,
    /// How many permits the next probe leaves.
    probe: i64,
    probe_at: Option<Instant>,
    /// Whether the first probes have found nobody.
    has_probed: bool,
    /// Whether the call in flight leaves permits to others.
    leaves_some: bool,
    /// Permits that the last call left to others.
    held: Option<i64>,
    /// Permits that the last call found.
    found: i64,
    /// The score of the last answer, and how many permits this process had been granted by then.
    last: Option<(i64, u64)>,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Others {
    #[default]
    Unseen,
    /// They took permits. They have taken none in `idle_holds` holds since, nor any of `declined`
    /// permits after these.
    Seen { idle_holds: u32, declined: i64 },
}

/// How the next call asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ask {
    pub(super) share: Option<Share>,
    /// Requests the number of permits granted with a higher score.
    pub(super) newer_than: Option<i64>,
}

/// What a call's answer shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) sent_at: Instant,
    pub(super) score: i64,
    pub(super) rate: i64,
    pub(super) interval: Duration,
    /// Permits that the call left.
    pub(super) left: i64,
    /// Permits that it took.
    pub(super) taken: i64,
    /// Permits granted to anybody since the requested score.
    pub(super) newer: Option<i64>,
    /// All permits granted to this process, including those of this call.
    pub(super) own: u64,
    /// The permits of the first waiter that was denied.
    pub(super) denied: Option<u32>,
}

impl Others {
    /// They took permits just now.
    const SEEN: Self = Self::Seen {
        idle_holds: 0,
        declined: 0,
    };
}

impl Sharing {
    /// With delays whose random part is the same each time.
    #[cfg(test)]
    pub(super) fn with_random(random: u64) -> Self {
        Self {
            random,
            ..Self::default()
        }
    }

    /// How the call that is sent now asks.
    pub(super) fn plan(&mut self, now: Instant) -> Ask {
        let leave = match self.others {
            // The others have had their time to take what the last call left.
            _ if self.held.is_some() => None,
            Others::Seen { .. } => Some(self.leave()),
            Others::Unseen if self.probe_at.is_none_or(|at| at <= now) => {
                Some(all_but(self.probe.max(1)))
            }
            Others::Unseen => None,
        };
        self.leaves_some = leave.is_some();
        Ask {
            share: leave,
            newer_than: self.last.map(|(score, _own)| score),
        }
    }

    /// What to ask for while others want permits too: less of them while this process owes some.
    fn leave(&self) -> Share {
        let least = self.least.max(1);
        if self.owed >= least || self.appetite * 2 < self.found {
            let permits = self.appetite.min(self.owed.max(self.found / 2));
            return all_but(permits.max(least));
        }
        Share {
            permille: (1000.0 - YIELD * self.own_recent_part()) as i64,
            // A fraction of a permit counts as one.
            credit: 999,
        }
    }

    /// Learns from an answer. Returns until when the process leaves to others what the call left.
    pub(super) fn note(&mut self, seen: Seen) -> Option<Instant> {
        let others_took = self.others_took(&seen);
        self.last = Some((seen.score, seen.own));
        if others_took > 0 {
            let least = match self.others {
                Others::Unseen => others_took,
                Others::Seen { .. } => self.least.min(others_took),
            };
            self.others = Others::SEEN;
            self.least = least.min(seen.largest_probe());
            self.appetite = self.appetite.max(1);
        }
        self.owed -= others_took;
        self.own_recently += seen.taken as f64;
        self.others_recently += others_took as f64;
        if self.own_recently + self.others_recently > RECENT_INTERVALS * seen.rate as f64 {
            self.own_recently /= 2.0;
            self.others_recently /= 2.0;
        }
        match self.held.take() {
            // Permits that the others left although they were enough for one of their requests were
            // declined, and may be taken.
            Some(held) => {
                let declined = if held < self.least {
                    0
                } else {
                    (held - others_took).max(0)
                };
                self.owed += seen.taken - declined.min(seen.taken) - declined;
                self.end_hold(held, others_took, &seen);
            }
            None => self.owed += seen.taken,
        }
        self.owed = self.owed.clamp(0, seen.rate);
        self.found = seen.left + seen.taken;
        // Permits that the process cannot use itself are not left to others: it waits for more, as
        // they do.
        let could_use = seen
            .denied
            .is_some_and(|permits| i64::from(permits) <= seen.left);
        if !self.leaves_some || !could_use {
            return None;
        }
        self.held = Some(seen.left);
        let hold = hold(seen.interval);
        Some(seen.sent_at + hold + self.random_up_to(hold / 4))
    }

    /// Learns from the end of a hold, in which `held` permits were left to others, who took
    /// `others_took` of them.
    fn end_hold(&mut self, held: i64, others_took: i64, seen: &Seen) {
        let largest = seen.largest_probe();
        match &mut self.others {
            Others::Unseen => self.note_vain_probe(held, seen),
            Others::Seen {
                idle_holds,
                declined,
            } if others_took == 0 => {
                if held < self.least {
                    return;
                }
                *declined += held;
                // They may need more at a time: permits that come back one by one are added up.
                if *declined < self.appetite.min(largest) {
                    return;
                }
                *declined = 0;
                *idle_holds += 1;
                self.appetite = (2 * self.appetite).clamp(1, largest);
                if *idle_holds >= IDLE_HOLDS {
                    self.others = Others::Unseen;
                    self.least = 0;
                    self.owed = 0;
                    self.others_recently = 0.0;
                    self.probe = self.appetite;
                    self.probe_at = Some(seen.sent_at + seen.probe_interval());
                }
            }
            Others::Seen { .. } => {
                // They took most of it: the rest may be too little for their next caller.
                self.appetite = if others_took * 3 >= held * 2 {
                    self.appetite.max(held).saturating_mul(2).min(seen.rate)
                } else {
                    others_took + 1
                };
            }
        }
    }

    /// Plans the next probe after one that found nobody: when it is sent, and how large it is. A
    /// process that needs more than one permit at a time takes nothing of a small probe.
    fn note_vain_probe(&mut self, held: i64, seen: &Seen) {
        let largest = seen.largest_probe();
        let pause = if self.has_probed {
            let pause = hold(seen.interval) * PROBE_COST;
            let rate = u32::try_from(seen.rate.max(1)).unwrap_or(u32::MAX);
            let pause = pause.saturating_mul(u32::try_from(held).unwrap_or(u32::MAX)) / rate;
            pause.clamp(seen.probe_interval(), LONGEST_PROBE_PAUSE)
        } else {
            // If less came back than it was to leave, the next probe is sent when other permits
            // come back.
            let parts = if held < self.probe { 2 } else { 1 };
            seen.interval.min(LONGEST_PROBE_PAUSE) / parts
        };
        self.probe_at = Some(seen.sent_at + pause);
        self.has_probed |= held >= largest.min(LARGEST_FAST_PROBE);
        self.probe = if held >= largest {
            1
        } else if self.has_probed {
            self.probe.max(2 * held).min(largest)
        } else {
            LARGEST_FAST_PROBE.min(largest)
        };
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

    /// When to ask, where a process that is alone asks after `wait`: the sooner, the less this one
    /// was granted recently.
    pub(super) fn ask_after(&mut self, wait: Duration, interval: Duration) -> Duration {
        if self.others == Others::Unseen {
            return wait;
        }
        let longest = LONGEST_DELAY.min(hold(interval));
        let delay = longest.mul_f64(self.own_recent_part());
        let soonest = wait - HEAD_START.min(wait / 2);
        soonest + delay + self.random_up_to(longest / RANDOM_PART_OF_DELAY)
    }

    /// This process's part of the permits taken recently.
    fn own_recent_part(&self) -> f64 {
        self.own_recently / (self.own_recently + self.others_recently).max(1.0)
    }

    /// When to ask for a head that must be asked for by `last_chance`. A process that considers
    /// itself alone keeps no permits from a head beyond its time.
    pub(super) fn hold_until(&self, ask_at: Instant, last_chance: Option<Instant>) -> Instant {
        let is_probe = self.held.is_some() && self.others == Others::Unseen;
        let last = last_chance.filter(|_| is_probe);
        last.map_or(ask_at, |last| last.min(ask_at))
    }

    /// Notes that permits came free: the hold begins anew with what is available then. Otherwise a
    /// process that releases often would never leave others the time to take permits.
    pub(super) fn permits_freed(&mut self) {
        self.held = None;
    }

    fn random_up_to(&mut self, most: Duration) -> Duration {
        if self.random == 0 {
            self.random = uuid::Uuid::new_v4().as_u64_pair().1 | 1;
        }
        // Xorshift: any distribution will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        most * ((self.random >> 40) as u32 % 1024) / 1024
    }
}

impl Seen {
    /// The most permits that a process leaves to others it does not know of.
    fn largest_probe(&self) -> i64 {
        // Redisson accepts a rate of 0.
        ((self.rate + 1) / 2).max(1)
    }

    /// The shortest time between two probes: each splits what comes back together, which costs one
    /// call per window.
    fn probe_interval(&self) -> Duration {
        (5 * self.interval).min(LONGEST_PROBE_PAUSE)
    }
}

/// All permits except this many.
fn all_but(permits: i64) -> Share {
    Share {
        permille: 1000,
        credit: -1000 * permits,
    }
}

/// How long permits are left to others.
fn hold(interval: Duration) -> Duration {
    (interval / HOLDS_PER_INTERVAL).clamp(SHORTEST_HOLD, LONGEST_HOLD)
}
