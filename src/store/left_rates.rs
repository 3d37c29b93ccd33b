//! Limiters that keep another rate than the one that requests would have created them with: each is
//! reported once.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::escaped::Escaped;
use crate::event::{Event, Events};
use crate::lock::Lock;
use crate::window::{SetUp, Settings};

/// The most hashes that are remembered, some 100 kB; one more clears them.
const CAPACITY: usize = 4_096;

/// Reports each limiter whose rate differs once. It remembers hashes of the limiter's name and of
/// both settings; of two that share a hash, one is not reported.
#[derive(Debug, Default)]
pub(crate) struct LeftRates {
    events: Events,
    hasher: RandomState,
    reported: Lock<HashSet<u64>>,
}

impl LeftRates {
    pub(crate) fn reporting_to(events: Events) -> Self {
        Self {
            events,
            ..Self::default()
        }
    }

    /// Reports the settings of a limiter that a request has left as it found them.
    #[inline]
    pub(crate) fn left(&self, name: &str, set_up: Option<SetUp>, left: Option<Settings>) {
        if let (Some(set_up), Some(left)) = (set_up, left) {
            self.note(name, set_up.settings, left);
        }
    }

    /// Notes that a request `named` other settings than the limiter has.
    fn note(&self, name: &str, named: Settings, found: Settings) {
        let hash = self.hasher.hash_one((name, named, found));
        let mut reported = self.reported.lock();
        if reported.len() >= CAPACITY && !reported.contains(&hash) {
            reported.clear();
        }
        let is_new = reported.insert(hash);
        drop(reported);
        if !is_new {
            return;
        }
        let (named, found) = (named.rate(), found.rate());
        tracing::warn!(
            limiter = %Escaped(name),
            named = %Escaped(named),
            found = %Escaped(found),
            "the limiter has another rate than its handle here; it keeps its own"
        );
        self.events.tell(|| Event::RateDiffers { named, found });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::rate::Rate;

    fn settings(permits: u64) -> Settings {
        Settings::of(Rate::overall(permits, Duration::from_secs(1)))
    }

    #[test]
    fn each_pair_of_rates_of_a_limiter_is_reported_once_in_bounded_memory() {
        let told = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&told);
        let events = Events::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let rates = LeftRates::reporting_to(events);
        for (name, found) in [("a", 3), ("a", 3), ("a", 0), ("b", 3), ("a", 3)] {
            rates.note(name, settings(50), settings(found));
        }
        assert_eq!(told.load(Ordering::Relaxed), 3);
        for i in 0..2 * CAPACITY {
            rates.note(&i.to_string(), settings(50), settings(3));
        }
        assert!(rates.reported.lock().len() <= CAPACITY);
    }
}
