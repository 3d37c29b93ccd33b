//! The progress of a long command: one line on the standard error, if that is a terminal. It
//! appears after a tenth of a second, changes at most ten times a second, and is cleared before
//! anything else is printed.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(100);

pub(crate) struct Progress {
    /// The time of the last update, or of the start.
    last: Instant,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            last: Instant::now(),
            is_shown: false,
        }
    }

    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.last.elapsed() < EVERY || !io::stderr().is_terminal() {
            return;
        }
        (self.last, self.is_shown) = (Instant::now(), true);
        eprint!("\r\x1b[K{}", text());
        let _ = io::stderr().flush();
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
