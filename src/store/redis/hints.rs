//! A cache of hints on limiters that have no handle.
//!
//! A service that asks the client for a limiter with each request makes a new
//! [`super::limiter::RedisLimiter`] each time. The hint saves an audit, and the second round trip
//! that finds out the limiter's type.

use std::collections::HashMap;

use super::audit::Audit;
use crate::lock::Lock;
use crate::name_hash::NameHash;
use crate::rate::RateType;

/// The most limiters in the cache, some 1 MB; one more clears it.
const CAPACITY: usize = 16_384;

#[derive(Debug)]
pub(super) struct Hint {
    pub(super) audit: Audit,
    pub(super) rate_type: RateType,
}

/// The hints by the hash of the limiter's name. If two names share a hash, a round trip or an audit
/// is added or saved, and nothing else.
#[derive(Debug, Default)]
pub(super) struct HintCache(Lock<HashMap<u64, Hint>>);

impl HintCache {
    pub(super) fn take(&self, name: &str) -> Option<Hint> {
        self.0.lock().remove(&NameHash::of(name).bits())
    }

    pub(super) fn insert(&self, name: &str, hint: Hint) {
        let mut hints = self.0.lock();
        if hints.len() >= CAPACITY {
            hints.clear();
        }
        hints.insert(NameHash::of(name).bits(), hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Acquired;

    fn hint(rate: i64) -> Hint {
        let audit = Audit::default();
        audit.note(None, &Acquired::new(0, rate, 0, 0, 0));
        Hint {
            audit,
            rate_type: RateType::PerClient,
        }
    }

    #[test]
    fn a_hint_is_taken_once() {
        let hints = HintCache::default();
        hints.insert("a", hint(1));
        hints.insert("b", hint(2));
        let taken = hints.take("a").unwrap();
        assert_eq!(taken.audit.rate(), Some(1));
        assert_eq!(taken.rate_type, RateType::PerClient);
        assert!(hints.take("a").is_none());
        assert!(hints.take("b").is_some());
    }

    #[test]
    fn the_cache_never_grows_beyond_its_capacity() {
        let hints = HintCache::default();
        for i in 0..3 * CAPACITY {
            hints.insert(&i.to_string(), hint(1));
        }
        assert!(hints.0.lock().len() <= CAPACITY);
        assert!(hints.take(&(3 * CAPACITY - 1).to_string()).is_some());
    }
}
