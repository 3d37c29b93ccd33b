//! The keys that are counted most, of any number of keys, in bounded memory.

use std::collections::HashMap;

use serde::Serialize;

/// A key that has this part of the requests is among those counted.
const MOST_KEYS: usize = 128;
const SHOWN_KEYS: usize = 10;

/// The counts of the current minute, and of the one before.
#[derive(Debug, Default)]
pub(super) struct Keys {
    now: Top,
    before: Top,
}

/// The algorithm "space saving": a new key takes the place and the rank of the least.
#[derive(Debug, Default)]
struct Top(HashMap<String, Count>);

#[derive(Debug, Clone, Copy)]
struct Count {
    /// How often it was seen since it has this place.
    seen: u64,
    /// How often it was seen, and the rank of the key that had its place before.
    rank: u64,
}

/// A key, and how often it asked, or was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Seen {
    pub(super) key: String,
    pub(super) requests: u64,
}

impl Keys {
    pub(super) fn note(&mut self, key: &str) {
        self.now.note(key);
    }

    /// Begins a new minute.
    pub(super) fn next(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    pub(super) fn most(&self) -> Vec<Seen> {
        let mut together: HashMap<&str, u64> = HashMap::new();
        for (key, count) in self.before.0.iter().chain(&self.now.0) {
            *together.entry(key).or_default() += count.seen;
        }
        let mut seen: Vec<_> = together
            .into_iter()
            .map(|(key, requests)| Seen {
                key: key.to_owned(),
                requests,
            })
            .collect();
        seen.sort_by(|one, other| {
            let by_requests = other.requests.cmp(&one.requests);
            by_requests.then_with(|| one.key.cmp(&other.key))
        });
        seen.truncate(SHOWN_KEYS);
        seen
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
        let hot = Seen {
            key: "hot".to_owned(),
            requests: 2_000,
        };
        assert_eq!(most[0], hot);
        assert_eq!(most.len(), SHOWN_KEYS);
        assert!(keys.now.0.len() <= MOST_KEYS);
    }
}
