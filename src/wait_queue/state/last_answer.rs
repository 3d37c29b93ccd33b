//! The store's last exact answer, for requests that are answered without a call: those whose denial
//! is remembered, and waits that cannot be served in time.
//!
//! Whatever this client does that may change the limiter drops the answer. Until it is done no
//! other answer is kept, and those of calls that are then in flight are discarded: see
//! [`Sending`](super::super::remembered::Sending), which each such call passes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::life::{Life, Made};
use super::observed::Observed;
use super::published::Published;
use crate::window::SetUp;

#[derive(Default)]
pub(in crate::wait_queue) struct LastAnswer {
    /// The calls under way that change the limiter.
    under_way: usize,
    /// The settings that this client's calls last gave the limiter, if it has not changed the
    /// limiter otherwise since.
    set_up: Option<SetUp>,
    /// Until when a change may still be made whose call was not answered.
    unsettled_until: Option<Instant>,
    life: Life,
    /// The answer.
    published: Arc<Published>,
}

/// A call that is sent. Its answer holds if nothing has changed since.
#[derive(Debug, Clone, Copy)]
pub(in crate::wait_queue) struct Sent {
    pub(in crate::wait_queue) at: Instant,
    pub(super) epoch: u64,
    pub(super) changes: u64,
}

/// What a call may change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// It takes permits, after giving the limiter these settings, or creating it with them.
    Takes(Option<SetUp>),
    /// It gives permits back.
    GivesBack,
    /// It sets a rate with this keep alive.
    SetsRate(Option<Duration>),
    /// It gives the limiter this time to live. `None` removes that, or the limiter.
    SetsLife(Option<Duration>),
    /// It gives those keys of the limiter this time to live that meet a condition.
    SetsLifeOfSome(Duration),
    /// It gives the limiter a time to live that ends at a time of the server's clock.
    SetsEnd,
}

/// One or more requests that are denied while the store's last answer denies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wait_queue) struct Deniable {
    pub(in crate::wait_queue) fewest: u32,
    pub(in crate::wait_queue) most: u32,
    pub(in crate::wait_queue) set_up: Option<SetUp>,
    /// The greatest age of the answer.
    pub(in crate::wait_queue) at_most: Duration,
}

impl Deniable {
    pub(in crate::wait_queue) fn one(
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
    ) -> Self {
        Self {
            fewest: permits,
            most: permits,
            set_up,
            at_most,
        }
    }

    /// What denies both.
    pub(in crate::wait_queue) fn and(self, other: Self) -> Option<Self> {
        (self.set_up == other.set_up).then(|| Self {
            fewest: self.fewest.min(other.fewest),
            most: self.most.max(other.most),
            set_up: self.set_up,
            at_most: self.at_most.min(other.at_most),
        })
    }
}

impl LastAnswer {
    pub(in crate::wait_queue) fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// This client has changed the limiter, or permits may have come free.
    pub(in crate::wait_queue) fn changed(&mut self) {
        self.published.next_epoch();
        self.set_up = None;
        self.published.publish(None);
    }

    /// A call is about to be sent. Returns whether it changes the limiter: then
    /// [`over`](Self::over) must be called.
    pub(in crate::wait_queue) fn begin(&mut self, effect: Effect) -> bool {
        self.may_keep_alive(effect);
        let changes = match effect {
            Effect::Takes(set_up) => self.is_changed_by(set_up),
            _ => true,
        };
        if changes {
            self.changed();
            self.under_way += 1;
        }
        changes
    }

    /// A call that changes the limiter is no longer under way.
    pub(in crate::wait_queue) fn over(&mut self) {
        self.under_way -= 1;
    }

    /// A call that gives the limiter these settings has been answered, and what it says is noted
    /// later.
    pub(in crate::wait_queue) fn has_set_up(&mut self, set_up: SetUp, sent: &mut Sent) {
        let is_current = self.published.is_current(sent);
        self.changed();
        self.set_up = Some(set_up);
        if is_current {
            // The call itself is the change.
            *sent = self.published.sent(sent.at, sent.changes);
        }
    }

    /// A call has been made, and answered now.
    pub(in crate::wait_queue) fn made(&mut self, effect: Effect, sent: &Sent, now: Instant) {
        self.note_life(effect, sent, now, self.published.is_current(sent));
        match effect {
            Effect::Takes(set_up) if !self.is_changed_by(set_up) => {}
            _ => self.changed(),
        }
    }

    /// A call was not answered. If it `changes` the limiter, it may have done so, or do so until
    /// then.
    pub(in crate::wait_queue) fn unsettled(
        &mut self,
        effect: Effect,
        changes: bool,
        sent: &Sent,
        until: Instant,
    ) {
        self.note_life(effect, sent, until, false);
        let changes = match effect {
            Effect::Takes(set_up) => changes || self.is_changed_by(set_up),
            _ => true,
        };
        if changes {
            self.changed();
            self.unsettled_until = self.unsettled_until.max(Some(until));
        }
    }

    fn may_keep_alive(&mut self, effect: Effect) {
        match effect {
            Effect::Takes(Some(set_up)) => {
                let keep_alive = set_up.settings.keep_alive.unsigned_abs();
                self.life.may_keep_alive(Duration::from_millis(keep_alive));
            }
            Effect::SetsRate(Some(keep_alive)) => self.life.may_keep_alive(keep_alive),
            _ => {}
        }
    }

    /// Notes what a call means for the time at which the limiter expires that was executed by then.
    fn note_life(&mut self, effect: Effect, sent: &Sent, by: Instant, is_certain: bool) {
        let made = &Made {
            from: sent.at,
            by,
            is_certain,
        };
        match effect {
            Effect::Takes(Some(set_up)) => {
                if let Some(set_up) = set_up.replacing() {
                    self.life.set_up(set_up, made);
                }
            }
            Effect::SetsRate(keep_alive) => self.life.rate_set(keep_alive, made),
            Effect::SetsLife(time_to_live) => self.life.set(time_to_live, made),
            Effect::SetsLifeOfSome(time_to_live) => {
                let is_certain = false; // perhaps not that of all keys
                let made = &Made {
                    is_certain,
                    ..*made
                };
                self.life.set(Some(time_to_live), made);
            }
            Effect::SetsEnd => self.life.set_at_any_time(made),
            Effect::Takes(None) | Effect::GivesBack => {}
        }
    }

    /// Whether a call with this set-up gives the limiter other settings than this client's calls
    /// before.
    fn is_changed_by(&self, set_up: Option<SetUp>) -> bool {
        let replacing = set_up.and_then(SetUp::replacing);
        replacing.is_some() && replacing != self.set_up
    }

    /// Notes what the answer to a call with this set-up says, if it was exact.
    pub(in crate::wait_queue) fn note(
        &mut self,
        observed: Option<Observed>,
        set_up: Option<SetUp>,
        sent: &Sent,
    ) {
        // The call itself may be the change.
        let is_current = self.published.is_current(sent);
        if set_up.is_some() {
            let effect = Effect::Takes(set_up);
            self.may_keep_alive(effect);
            self.note_life(effect, sent, Instant::now(), is_current);
        }
        if self.is_changed_by(set_up) {
            self.changed();
            self.set_up = set_up;
        }
        let before = self.published.last();
        let is_last = before.is_none_or(|before| before.sent_at <= sent.at);
        let is_settled =
            self.under_way == 0 && { self.unsettled_until }.is_none_or(|until| until <= sent.at);
        if is_current && is_last && is_settled {
            let limit = self.life.limit(sent.at);
            let observed = observed.map(|it| limit.map_or(it, |limit| it.until(limit)));
            self.published.publish(observed);
        }
    }
}
