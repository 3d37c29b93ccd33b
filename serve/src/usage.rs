//! What the status page shows of use: of all requests and of each rule over time, which keys ask
//! most and are denied most, and how long answers take. All of it is bounded, however many keys
//! there are.

mod keys;
mod series;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redisson_rate_limiter::Event;
use serde::Serialize;
use sketches_ddsketch::DDSketch;

use self::keys::Keys;
pub(super) use self::keys::Seen;
use self::series::{Counts, Series};

/// Keys and times are those of the last one to two of these.
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

/// How long the requests of this minute and of the one before took, in milliseconds.
#[derive(Default)]
struct Times {
    now: DDSketch,
    before: DDSketch,
}

/// How the requests of the last minute have ended.
#[derive(Debug, Serialize)]
pub(super) struct Recent {
    #[serde(flatten)]
    counts: Counts,
    per_second: f64,
    unmatched_per_second: f64,
    /// 99 of 100 were answered within so many milliseconds.
    p99_ms: Option<f64>,
}

/// How the requests of one rule have ended.
#[derive(Debug, Default, Serialize)]
pub(super) struct OfRule {
    total: Counts,
    recent: Counts,
    per_second: f64,
    /// The last slot is the current one.
    series: Vec<Counts>,
    #[serde(skip)]
    pub(super) asking: Vec<Seen>,
    #[serde(skip)]
    pub(super) denied: Vec<Seen>,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Counts a request, and by the rules that decided it.
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

    /// Counts a request for a key.
    pub(super) fn note(&self, rule: &str, key: &str, is_granted: bool) {
        self.state().with_rule(rule, |rule| {
            if !is_granted {
                rule.denied.note(key);
            }
            rule.asking.note(key);
        });
    }

    /// Counts a request that no rule matched, by what it came from.
    pub(super) fn note_unmatched(&self, from: &str) {
        let mut state = self.state();
        state.requests.note(Counts::UNMATCHED);
        state.unmatched.note(from);
    }

    /// Forgets the rules that are no more.
    pub(super) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.state().rules.retain(|name, _| is_there(name));
    }

    /// To be called once a second.
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

    /// Where the requests that no rule matched came from.
    pub(super) fn unmatched(&self) -> Vec<Seen> {
        self.state().unmatched.most()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The name is copied for a new rule only.
    fn with_rule(&mut self, name: &str, note: impl FnOnce(&mut Rule)) {
        match self.rules.get_mut(name) {
            Some(rule) => note(rule),
            None => note(self.rules.entry(name.to_owned()).or_default()),
        }
    }
}

impl Times {
    fn note(&mut self, took: Duration) {
        self.now.add(took.as_secs_f64() * 1_000.0);
    }

    fn next(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    fn p99_ms(&self) -> Option<f64> {
        let mut together = self.before.clone();
        together.merge(&self.now).ok()?;
        together.quantile(0.99).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::RequestResult;

    use super::*;

    #[test]
    fn rules_that_are_no_more_are_forgotten() {
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
    fn requests_that_no_rule_matched_are_counted_by_where_they_came_from() {
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
