//! How far it is, on a terminal, at most ten times a second.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(100);

pub(super) struct Progress {
    is_shown: bool,
    last: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
            last: None,
        }
    }

    pub(super) fn show(&mut self, limiters: u64, findings: u64) {
        if !self.is_shown || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        eprint!("\r\x1b[K{limiters} limiters, {findings} findings");
        let _ = io::stderr().flush();
    }

    pub(super) fn clear(&mut self) {
        if self.last.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
