//! What a client knew of limiters whose queue is gone.
//!
//! A service that names its limiter anew with each request has a new queue each time. What the last one knew spares
//! the new one to have the grants summed, and to learn the limiter's type by a second round trip.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::books::Books;
use crate::rate::RateType;

/// So many limiters are known at most, some 1 MB; one more, and all are forgotten.
const MOST: usize = 16_384;

#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) books: Books,
    pub(super) rate_type: RateType,
}

/// By the hash of the name: where two names share one, a round trip or a sum is made or spared, and nothing else.
#[derive(Default)]
pub(crate) struct FormerQueues {
    hasher: RandomState,
    known: Mutex<HashMap<u64, Known>>,
}

impl FormerQueues {
    pub(super) fn recall(&self, name: &str) -> Option<Known> {
        self.known().remove(&self.hasher.hash_one(name))
    }

    pub(super) fn remember(&self, name: &str, known: Known) {
        let name = self.hasher.hash_one(name);
        let mut former = self.known();
        if former.len() >= MOST {
            former.clear();
        }
        former.insert(name, known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        // Nothing panics while the lock is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(rate: i64) -> Known {
        let mut books = Books::default();
        books.rate = Some(rate);
        Known {
            books,
            rate_type: RateType::PerClient,
        }
    }

    #[test]
    fn what_was_known_is_recalled_once() {
        let former = FormerQueues::default();
        former.remember("a", known(1));
        former.remember("b", known(2));
        let recalled = former.recall("a").unwrap();
        assert_eq!(recalled.books.rate, Some(1));
        assert_eq!(recalled.rate_type, RateType::PerClient);
        assert!(former.recall("a").is_none());
        assert!(former.recall("b").is_some());
    }

    #[test]
    fn names_without_end_cost_no_memory_without_end() {
        let former = FormerQueues::default();
        for i in 0..3 * MOST {
            former.remember(&i.to_string(), known(1));
        }
        assert!(former.known().len() <= MOST);
        assert!(former.recall(&(3 * MOST - 1).to_string()).is_some());
    }
}
