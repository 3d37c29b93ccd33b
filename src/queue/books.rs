//! When the live grants were summed last.

use std::time::Duration;

use tokio::time::Instant;

use crate::window::Answer;

/// A queue has the grants summed now and then, because only the sum shows what a peer's retry or release did to the
/// books; not in each call, because it takes time on the server.
#[derive(Default)]
pub(super) struct Books {
    /// The rate that an answer told last.
    pub(super) rate: Option<i64>,
    due: Option<Instant>,
}

impl Books {
    pub(super) fn summed_rate(&self) -> Option<i64> {
        self.due
            .is_some_and(|due| Instant::now() < due)
            .then_some(self.rate)
            .flatten()
    }

    pub(super) fn note(&mut self, asked: Option<i64>, answer: &Answer) {
        if asked == Some(answer.rate) {
            return; // nothing was summed
        }
        self.rate = Some(answer.rate);
        if answer.counted == 0 {
            // There was nothing to sum, or more than the rate is in use, which each call has to look at.
            self.due = None;
            return;
        }
        // Summing a grant takes the server less than a microsecond, so this is a five-hundredth of its time.
        let grants = answer.counted.min(u64::from(u32::MAX)) as u32;
        let pause = Duration::from_micros(100) * grants;
        self.due = Some(Instant::now() + pause);
    }
}
