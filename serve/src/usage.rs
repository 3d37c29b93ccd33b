//! The usage that the status page shows: the requests over time, in all and by rule; the keys with
//! the most requests and the most denials; and how long answers take. Its memory is bounded,
//! however many keys there are.

mod keys;
mod series;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redisson_rate_limiter::Event;
use serde::Serialize;
use sketches_ddsketch::DDSketch;

pub(super) use self::keys::KeyCount;
use self::keys::Keys;
use self::series::{Counts, Series};

/// The number of ticks in a period, one minute. Keys and times are those of the current period and
/// the one before.
const TICKS_OF_RECENT: u64 = 60;

pub(super) struct Usage {
    pub(super) since: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ticks: u64,
    requests: Series,
    unmatched: Keys,
    times: Times,
    rules: HashMap<String, Rule>,
}

#[derive(Debug, Default)]
struct Rule {
    series: Series,
    asking: Keys,
    denied: Keys,
}

/// How long the requests of the current minute and of the one before took, in milliseconds.
#[derive(Default)]
struct Times {
    current: DDSketch,
    previous: DDSketch,
}

/// How the requests of the last minute have ended.
#[derive(Debug, Serialize)]
pub(super) struct Recent {
    #[serde(flatten)]
    counts: Counts,
    per_second: f64,
    unmatched_per_second: f64,
    /// The time within which 99 of 100 requests were answered, in milliseconds.
    p99_ms: Option<f64>,
}

/// How the requests of one rule have ended.
#[derive(Debug, Default, Serialize)]
pub(super) struct OfRule {
    total: Counts,
    recent: Counts,
    per_second: f64,
    /// The counts of each five seconds; the last element is the current slot.
    series: Vec<Counts>,
    #[serde(skip)]
    pub(super) asking: Vec<KeyCount>,
    #[serde(skip)]
    pub(super) denied: Vec<KeyCount>,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Counts the event of a request, in all and for each rule that decided it.
    pub(super) fn event(&self, event: &Event<'_>) {
        let Event::Request {
            limiters,
            result,
            took,
            is_shadow,
            ..
        } = event
        else {
            return;
        };
        let counts = Counts::of(*result);
        let mut state = self.state();
        if !is_shadow {
            state.requests.note(counts);
            state.times.note(*took);
        }
        for limiter in limiters.iter().filter(|it| it.is_deciding) {
            state.with_rule(limiter.name, |rule| rule.series.note(counts));
        }
    }

    /// Counts a request for a key of a rule.
    pub(super) fn note(&self, rule: &str, key: &str, is_granted: bool) {
        self.state().with_rule(rule, |rule| {
            if !is_granted {
                rule.denied.note(key);
            }
            rule.asking.note(key);
        });
    }

    /// Counts a request that no rule matched. `source` is its domain and the names of its entries.
    pub(super) fn note_unmatched(&self, source: &str) {
        let mut state = self.state();
        state.requests.note(Counts::UNMATCHED);
        state.unmatched.note(source);
    }

    /// Forgets the rules for which `is_there` returns false.
    pub(super) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.state().rules.retain(|name, _| is_there(name));
    }

    /// Moves the series on by a second, and begins a new minute when one is over. It must be called
    /// once a second.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        state.ticks += 1;
        let is_new_minute = state.ticks.is_multiple_of(TICKS_OF_RECENT);
        state.requests.tick();
        for rule in state.rules.values_mut() {
            rule.series.tick();
            if is_new_minute {
                rule.asking.next();
                rule.denied.next();
            }
        }
        if is_new_minute {
            state.unmatched.next();
            state.times.next();
        }
    }

    pub(super) fn recent(&self) -> Recent {
        let state = self.state();
        let rate = state.requests.per_second();
        Recent {
            counts: state.requests.last_minute(),
            per_second: rate.decided,
            unmatched_per_second: rate.unmatched,
            p99_ms: state.times.p99_ms(),
        }
    }

    pub(super) fn of_rule(&self, name: &str) -> OfRule {
        let state = self.state();
        let Some(rule) = state.rules.get(name) else {
            return OfRule::default();
        };
        OfRule {
            total: rule.series.total(),
            recent: rule.series.last_minute(),
            per_second: rule.series.per_second().decided,
            series: rule.series.slots(),
            asking: rule.asking.most(),
            denied: rule.denied.most(),
        }
    }

    /// The most frequent sources of requests that no rule matched.
    pub(super) fn unmatched(&self) -> Vec<KeyCount> {
        self.state().unmatched.most()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Calls `note` with the counts of the rule, which are created if it has none. The name is
    /// copied only then.
    fn with_rule(&mut self, name: &str, note: impl FnOnce(&mut Rule)) {
        match self.rules.get_mut(name) {
            Some(rule) => note(rule),
            None => note(self.rules.entry(name.to_owned()).or_default()),
        }
    }
}

impl Times {
    fn note(&mut self, took: Duration) {
        self.current.add(took.as_secs_f64() * 1_000.0);
    }

    fn next(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }

    fn p99_ms(&self) -> Option<f64> {
        let mut together = self.previous.clone();
        together.merge(&self.current).ok()?;
        together.quantile(0.99).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::RequestResult;

    use super::*;

    #[test]
    fn removed_rules_are_forgotten() {
        let usage = Usage::new();
        for name in ["old", "kept"] {
            let failed = Counts::of(RequestResult::TimedOut);
            let mut state = usage.state();
            state.with_rule(name, |rule| rule.series.note(failed));
        }
        usage.keep(|name| name == "kept");
        assert_eq!(usage.of_rule("kept").total.failed, 1);
        assert_eq!(usage.state().rules.len(), 1);
    }

    #[test]
    fn keys_are_forgotten_after_two_minutes() {
        let usage = Usage::new();
        let asking = || usage.of_rule("rule").asking;
        usage.note("rule", "alice", false);
        for _ in 0..TICKS_OF_RECENT {
            usage.tick();
        }
        usage.note("rule", "alice", true);
        assert_eq!(asking()[0].requests, 2);
        for _ in 0..2 * TICKS_OF_RECENT {
            usage.tick();
        }
        assert_eq!(asking(), []);
        assert_eq!(usage.of_rule("rule").denied, []);
    }

    #[test]
    fn ninety_nine_of_a_hundred_requests_were_answered_within_the_time_shown() {
        let mut times = Times::default();
        assert_eq!(times.p99_ms(), None);
        for ms in 1..=100 {
            times.note(Duration::from_millis(ms));
        }
        let shown = |times: &Times| times.p99_ms().map(|it| it.round() as u64);
        let p99 = shown(&times);
        assert!(p99.is_some_and(|it| (97..=101).contains(&it)), "{p99:?}");
        times.next();
        assert_eq!(shown(&times), p99);
        times.next();
        assert_eq!(times.p99_ms(), None);
    }

    #[test]
    fn requests_that_no_rule_matched_are_counted_by_their_source() {
        let usage = Usage::new();
        for from in ["domain=a", "domain=b", "domain=a"] {
            usage.note_unmatched(from);
        }
        for _ in 0..5 {
            usage.tick();
        }
        let unmatched = usage.unmatched();
        assert_eq!(unmatched[0].key, "domain=a");
        assert_eq!(unmatched[0].requests, 2);
        let recent = usage.recent();
        assert_eq!((recent.per_second, recent.unmatched_per_second), (0.0, 0.6));
    }
}
