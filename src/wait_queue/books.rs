//! When the live grants were summed last.

use std::time::Duration;

use tokio::time::Instant;

use super::looks::Looks;
use crate::model::Answer;

/// A queue has the grants summed now and then, because only the sum shows what a peer's retry or release did to the
/// books; not in each call, because it takes time on the server.
#[derive(Clone, Copy, Default)]
pub(super) struct Books {
    /// The rate that an answer told last.
    pub(super) rate: Option<i64>,
    due: Option<Instant>,
}

impl Books {
    /// The rate at which they were summed, unless it is time to do it again and the client has a look left for it.
    pub(super) fn summed_rate(&self, looks: &Looks) -> Option<i64> {
        let due = self.due?;
        let now = Instant::now();
        if now < due || !looks.take(now) {
            self.rate
        } else {
            None
        }
    }

    pub(super) fn note(&mut self, asked: Option<i64>, answer: &Answer) {
        if asked == Some(answer.rate) {
            return; // nothing was summed
        }
        self.rate = Some(answer.rate);
        if answer.counted == 0 && answer.balance < answer.rate {
            // More than the rate is in use, which each call has to look at.
            self.due = None;
            return;
        }
        // Summing a grant takes the server less than a microsecond, so this is a five-hundredth of its time.
        let grants = answer.counted.clamp(1, u64::from(u32::MAX)) as u32;
        let pause = Duration::from_micros(100) * grants;
        self.due = Some(Instant::now() + pause);
    }
}
