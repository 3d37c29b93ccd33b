//! When permits were really used, by one clock, and how many of them fall into one window.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The server counts whole ms.
pub const TICK: i64 = 1_000;

/// When a permit was used: after the first of these times and before the second, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub after: i64,
    pub before: i64,
}

/// By the clock that all processes of the machine share, in microseconds since the epoch.
pub fn micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("a clock").as_micros()).expect("it fits")
}

pub fn micros_of(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("it fits")
}

/// The uses of a test.
#[derive(Debug, Default)]
pub struct Uses(Mutex<Vec<Use>>);

impl Uses {
    pub fn add(&self, used: impl IntoIterator<Item = Use>) {
        self.0.lock().unwrap().extend(used);
    }

    /// Notes that this many permits are used at once when this request is granted. Returns whether
    /// it is.
    pub async fn note(&self, permits: u32, request: impl Future<Output = bool>) -> bool {
        let after = micros();
        let is_granted = request.await;
        if is_granted {
            let before = micros();
            self.add((0..permits).map(|_| Use { after, before }));
        }
        is_granted
    }

    pub fn all(&self) -> Vec<Use> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Those that were certainly between these times.
    pub fn between(&self, start: i64, end: i64) -> Vec<Use> {
        let mut used = self.all();
        used.retain(|it| it.after >= start && it.before < end);
        used
    }
}

/// The most permits that were certainly used within one window of this length.
pub fn most_in_a_window(mut used: Vec<Use>, interval: Duration) -> usize {
    let interval = micros_of(interval) - TICK;
    used.sort_unstable();
    let counts = (0..used.len()).map(|first| {
        let end = used[first].after + interval;
        let within = used[first..].iter().take_while(|it| it.after < end);
        within.filter(|it| it.before < end).count()
    });
    counts.max().unwrap_or(0)
}
