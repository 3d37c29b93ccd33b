//! Finds the most frequent of any number of keys in bounded memory.

use std::collections::HashMap;

use serde::Serialize;

/// The most keys that are counted. A key with more than one in 128 of the requests is always among
/// them.
const MOST_KEYS: usize = 128;
/// The most keys that the status page shows.
const SHOWN_KEYS: usize = 10;

/// The counts of the current minute, and of the one before.
#[derive(Debug, Default)]
pub(super) struct Keys {
    current: Top,
    previous: Top,
}

/// The algorithm "space saving": when all places are taken, a new key takes the place and the rank
/// of the key with the lowest rank.
#[derive(Debug, Default)]
struct Top(HashMap<String, Count>);

#[derive(Debug, Clone, Copy)]
struct Count {
    /// How often the key was counted since it took its place.
    seen: u64,
    /// `seen` plus the rank of the key that had the place before.
    rank: u64,
}

/// A key and the number of its requests, or of those that were denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct KeyCount {
    pub(super) key: String,
    pub(super) requests: u64,
}

impl Keys {
    pub(super) fn note(&mut self, key: &str) {
        self.current.note(key);
    }

    /// Begins a new minute.
    pub(super) fn next(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }

    pub(super) fn most(&self) -> Vec<KeyCount> {
        let mut together: HashMap<&str, u64> = HashMap::new();
        for (key, count) in self.previous.0.iter().chain(&self.current.0) {
            *together.entry(key).or_default() += count.seen;
        }
        let mut counts: Vec<_> = together
            .into_iter()
            .map(|(key, requests)| KeyCount {
                key: key.to_owned(),
                requests,
            })
            .collect();
        counts.sort_by(|one, other| {
            let by_requests = other.requests.cmp(&one.requests);
            by_requests.then_with(|| one.key.cmp(&other.key))
        });
        counts.truncate(SHOWN_KEYS);
        counts
    }
}

impl Top {
    fn note(&mut self, key: &str) {
        if let Some(count) = self.0.get_mut(key) {
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
        self.0.insert(key.to_owned(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_are_found_among_any_number_of_others() {
        let mut keys = Keys::default();
        for i in 0..100_000 {
            keys.note(&format!("once {i}"));
            if i % 50 == 0 {
                keys.note("hot");
            }
        }
        let most = keys.most();
        let hot = KeyCount {
            key: "hot".to_owned(),
            requests: 2_000,
        };
        assert_eq!(most[0], hot);
        assert_eq!(most.len(), SHOWN_KEYS);
        assert!(keys.current.0.len() <= MOST_KEYS);
    }
}
