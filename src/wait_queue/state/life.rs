//! When the limiter may expire, as far as this client has had a part in it.
//!
//! A limiter without a keep alive keeps the time to live that it has: one that `expire` has set, or
//! that a keep alive has left. A call that gives the limiter settings extends such a one to its
//! interval. The store's answers do not contain it. So they are relied upon until the earliest time
//! at which the limiter may expire, and again after the latest.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::LATE;
use crate::window::SetUp;

#[derive(Default)]
pub(super) struct Life {
    /// The earliest and the latest time at which the limiter expires, if it has a time to live
    /// without a keep alive.
    ends: Option<(Instant, Instant)>,
    /// The longest keep alive that this client has given the limiter, or may give it by a call
    /// under way.
    keep_alive: Duration,
}

/// When a call was executed: between these times.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) from: Instant,
    pub(super) by: Instant,
    /// Whether it was answered, and made while no other call could change the limiter.
    pub(super) is_certain: bool,
}

/// A key expires when the millisecond of its end is over.
const TICK: Duration = Duration::from_millis(1);

impl Made {
    /// The earliest and the latest time at which a time to live ends that the call set.
    fn ends_after(&self, time_to_live: Duration) -> (Instant, Instant) {
        let time_to_live = time_to_live.min(LATE);
        (self.from + time_to_live, self.by + time_to_live + TICK)
    }
}

impl Life {
    /// A call is made that may give the limiter this keep alive.
    pub(super) fn may_keep_alive(&mut self, keep_alive: Duration) {
        self.keep_alive = self.keep_alive.max(keep_alive);
    }

    /// A rate was set. One without a keep alive leaves the limiter's time to live.
    pub(super) fn rate_set(&mut self, keep_alive: Option<Duration>, made: &Made) {
        match keep_alive {
            // From then on the answers contain it.
            Some(_) if made.is_certain => self.ends = None,
            None if !self.keep_alive.is_zero() => {
                let (_, latest) = made.ends_after(self.keep_alive);
                self.widen(made.from, latest);
            }
            _ => {}
        }
    }

    /// The limiter got this time to live; `None` if it has none any more, or is gone.
    pub(super) fn set(&mut self, time_to_live: Option<Duration>, made: &Made) {
        let ends = time_to_live.map(|time_to_live| made.ends_after(time_to_live));
        match ends {
            _ if made.is_certain => self.ends = ends,
            Some((earliest, latest)) => self.widen(earliest, latest),
            None => {}
        }
    }

    /// The limiter got a time to live that ends at a time of the server's clock, which this
    /// client's clock does not tell.
    pub(super) fn set_at_any_time(&mut self, made: &Made) {
        self.ends = Some((made.from, made.by + LATE));
    }

    /// A call gave the limiter these settings: it lives for their interval at least.
    pub(super) fn set_up(&mut self, set_up: SetUp, made: &Made) {
        let interval = Duration::from_millis(set_up.settings.interval.unsigned_abs());
        let needed = made.ends_after(interval);
        if let Some((earliest, latest)) = &mut self.ends
            && made.from <= *latest
        {
            *latest = needed.1.max(*latest);
            if made.is_certain {
                *earliest = needed.0.max(*earliest);
            }
        }
    }

    fn widen(&mut self, earliest: Instant, latest: Instant) {
        let before = self.ends.unwrap_or((earliest, latest));
        self.ends = Some((before.0.min(earliest), before.1.max(latest)));
    }

    /// Until when the answer to a call that was sent then is relied upon, if the limiter may
    /// expire.
    pub(super) fn limit(&self, sent_at: Instant) -> Option<Instant> {
        let (earliest, latest) = self.ends?;
        (sent_at <= latest).then_some(earliest)
    }
}
