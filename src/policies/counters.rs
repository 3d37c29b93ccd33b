//! The counters of periods, ordered by the end of the period.

use crate::window::Timed;

/// Counters in ascending order. There are few, and nearly always the last ones are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counters(Vec<Counter>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counter {
    /// The last millisecond of its period.
    last: i64,
    count: Timed<i64>,
}

impl Counters {
    /// The counter of the period that ends at `last`, which is added if it is missing.
    #[inline]
    pub(super) fn of(&mut self, last: i64) -> &mut Timed<i64> {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(1); // most limiters with a key of their own have one counter
        }
        let place = match self.0.binary_search_by_key(&last, |counter| counter.last) {
            Ok(place) => place,
            Err(place) => {
                let count = Timed::default();
                self.0.insert(place, Counter { last, count });
                place
            }
        };
        &mut self.0[place].count
    }

    /// The last ms and the count of each period that ends after `from` and no later than `to`.
    #[inline]
    pub(super) fn between(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
        let first = self.0.partition_point(|counter| counter.last <= from);
        let counters = self.0[first..].iter();
        counters
            .take_while(move |counter| counter.last <= to)
            .filter_map(|counter| Some((counter.last, *counter.count.get()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (i64, &mut Timed<i64>)> {
        let counters = self.0.iter_mut();
        counters.map(|counter| (counter.last, &mut counter.count))
    }

    pub(super) fn drop_expired(&mut self, server: i64) {
        self.0.retain_mut(|counter| {
            counter.count.drop_expired(server);
            counter.count.get().is_some()
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(all(test, feature = "redis"))]
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &Timed<i64>)> {
        self.0.iter().map(|counter| (counter.last, &counter.count))
    }
}
