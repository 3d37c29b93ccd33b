//! What the status page tells of use: of each rule over time, and which keys ask most and are denied most. All of it is bounded,
//! however many keys there are.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redisson_rate_limiter::{Event, RequestResult};
use serde::Serialize;

/// A slot of the series is so many ticks, which come once a second.
const TICKS: u64 = 5;
/// The series is five minutes.
const SLOTS: usize = 60;
/// Keys are counted in the last one to two of these.
const TICKS_OF_KEYS: u64 = 60;
/// A key that has this part of the requests is among those counted.
const MOST_KEYS: usize = 256;
/// Those that are told.
const SHOWN_KEYS: usize = 20;

#[derive(Debug)]
pub(super) struct Usage {
    pub(super) since: Instant,
    rules: Mutex<OfRules>,
    keys: Mutex<OfKeys>,
}

#[derive(Debug, Default)]
struct OfRules {
    ticks: u64,
    by_name: HashMap<String, OfRule>,
}

/// How the requests of one rule have ended.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct OfRule {
    pub(super) total: Counts,
    /// The last slot is the current one.
    pub(super) series: VecDeque<Counts>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) granted: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
}

#[derive(Debug, Default)]
struct OfKeys {
    ticks: u64,
    asking: Recent,
    denied: Recent,
}

/// The counts of the current minute, and of the one before.
#[derive(Debug, Default)]
struct Recent {
    now: Top,
    before: Top,
}

/// The keys that are counted most, by the algorithm "space saving": a new key takes the place and the rank of the least.
#[derive(Debug, Default)]
struct Top(HashMap<Key, Count>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    rule: String,
    key: String,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    /// How often it was seen since it has this place.
    seen: u64,
    /// At most as often as it was seen at all, and what the one had that was here before.
    rank: u64,
}

/// A key, and how often it asked, or was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    pub(super) rule: String,
    pub(super) key: String,
    pub(super) requests: u64,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            rules: Mutex::default(),
            keys: Mutex::default(),
        }
    }

    /// Counts a request by the rules that decided it.
    pub(super) fn event(&self, event: &Event<'_>) {
        let Event::Request {
            limiters, result, ..
        } = event
        else {
            return;
        };
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        for limiter in limiters.iter().filter(|it| it.is_deciding) {
            if !rules.by_name.contains_key(limiter.name) {
                rules
                    .by_name
                    .insert(limiter.name.to_owned(), OfRule::default());
            }
            if let Some(rule) = rules.by_name.get_mut(limiter.name) {
                rule.note(*result);
            }
        }
    }

    /// Counts a request for a key.
    pub(super) fn note(&self, rule: &str, key: String, is_granted: bool) {
        let key = Key {
            rule: rule.to_owned(),
            key,
        };
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_granted {
            keys.denied.now.note(key.clone());
        }
        keys.asking.now.note(key);
    }

    /// Forgets the rules that are no more.
    pub(super) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.by_name.retain(|name, _| is_there(name));
    }

    /// To be called once a second.
    pub(super) fn tick(&self) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.ticks += 1;
        if rules.ticks.is_multiple_of(TICKS) {
            rules.by_name.values_mut().for_each(OfRule::next_slot);
        }
        drop(rules);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.ticks += 1;
        if keys.ticks.is_multiple_of(TICKS_OF_KEYS) {
            keys.asking.next();
            keys.denied.next();
        }
    }

    pub(super) fn of_rule(&self, name: &str) -> OfRule {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.by_name.get(name).cloned().unwrap_or_default()
    }

    /// The keys that asked most, and those that were denied most.
    pub(super) fn hottest(&self) -> (Vec<Seen>, Vec<Seen>) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        (keys.asking.most(), keys.denied.most())
    }
}

impl OfRule {
    fn note(&mut self, result: RequestResult) {
        if self.series.is_empty() {
            self.next_slot();
        }
        let slot = self.series.back_mut();
        for counts in slot.into_iter().chain([&mut self.total]) {
            match result {
                RequestResult::Granted(_) => counts.granted += 1,
                RequestResult::Denied(_) => counts.denied += 1,
                _ => counts.failed += 1,
            }
        }
    }

    fn next_slot(&mut self) {
        if self.series.len() == SLOTS {
            self.series.pop_front();
        }
        self.series.push_back(Counts::default());
    }
}

impl Recent {
    fn next(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    fn most(&self) -> Vec<Seen> {
        let mut together = self.before.0.clone();
        for (key, count) in &self.now.0 {
            let sum = together
                .entry(key.clone())
                .or_insert(Count { seen: 0, rank: 0 });
            sum.seen += count.seen;
        }
        let mut seen: Vec<_> = { together.into_iter() }
            .map(|(Key { rule, key }, count)| Seen {
                rule,
                key,
                requests: count.seen,
            })
            .collect();
        seen.sort_by(|one, other| {
            let by_requests = other.requests.cmp(&one.requests);
            by_requests.then_with(|| (&one.rule, &one.key).cmp(&(&other.rule, &other.key)))
        });
        seen.truncate(SHOWN_KEYS);
        seen
    }
}

impl Top {
    fn note(&mut self, key: Key) {
        if let Some(count) = self.0.get_mut(&key) {
            count.seen += 1;
            count.rank += 1;
            return;
        }
        let mut rank = 0;
        if self.0.len() == MOST_KEYS {
            let least = self.0.iter().min_by_key(|(_, count)| count.rank);
            if let Some((least, count)) = least.map(|(key, count)| (key.clone(), *count)) {
                rank = count.rank;
                self.0.remove(&least);
            }
        }
        let count = Count {
            seen: 1,
            rank: rank + 1,
        };
        self.0.insert(key, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(seen: &[Seen]) -> Vec<(&str, u64)> {
        seen.iter().map(|it| (&*it.key, it.requests)).collect()
    }

    #[test]
    fn hot_keys_are_found_among_any_number_of_others() {
        let usage = Usage::new();
        for i in 0..100_000 {
            usage.note("rule", format!("once {i}"), true);
            if i % 100 == 0 {
                usage.note("rule", "hot".to_owned(), true);
                usage.note("rule", "denied".to_owned(), i % 200 == 0);
            }
        }
        let (asking, denied) = usage.hottest();
        assert_eq!(requests(&asking)[..2], [("denied", 1_000), ("hot", 1_000)]);
        assert_eq!(requests(&denied), [("denied", 500)]);
        assert!(usage.keys.lock().unwrap().asking.now.0.len() <= MOST_KEYS);
    }

    #[test]
    fn keys_are_forgotten_after_two_minutes() {
        let usage = Usage::new();
        usage.note("rule", "alice".to_owned(), false);
        for _ in 0..TICKS_OF_KEYS {
            usage.tick();
        }
        usage.note("rule", "alice".to_owned(), true);
        assert_eq!(requests(&usage.hottest().0), [("alice", 2)]);
        for _ in 0..2 * TICKS_OF_KEYS {
            usage.tick();
        }
        assert_eq!(usage.hottest(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn rules_that_are_no_more_are_forgotten() {
        let usage = Usage::new();
        let mut rules = usage.rules.lock().unwrap();
        for name in ["old", "kept"] {
            let mut rule = OfRule::default();
            rule.note(RequestResult::TimedOut);
            rules.by_name.insert(name.to_owned(), rule);
        }
        drop(rules);
        usage.keep(|name| name == "kept");
        assert_eq!(usage.of_rule("kept").total.failed, 1);
        assert_eq!(usage.rules.lock().unwrap().by_name.len(), 1);
    }

    #[test]
    fn a_series_has_the_last_five_minutes() {
        let mut rule = OfRule::default();
        for _ in 0..SLOTS + 10 {
            rule.next_slot();
            rule.note(RequestResult::TimedOut);
        }
        assert_eq!(rule.series.len(), SLOTS);
        assert_eq!(rule.total.failed, SLOTS as u64 + 10);
        assert!(rule.series.iter().all(|slot| slot.failed == 1));
    }
}
