//! Entries in ascending order of their scores, as in a sorted set.
//!
//! The scores at both ends are kept beside the entries. Most steps read nothing else: of many
//! limiters, hardly any has its entries in the processor's cache. New entries nearly always go to
//! the end, and expired ones leave from the front.

use std::collections::VecDeque;
use std::collections::vec_deque;
use std::ops::Range;

/// An entry whose score does not change.
pub(crate) trait Scored {
    fn score(&self) -> i64;

    /// Whether it stays in front of an entry that is inserted.
    #[inline]
    fn is_before(&self, inserted: &Self) -> bool {
        self.score() <= inserted.score()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByScore<T> {
    entries: VecDeque<T>,
    /// Later than any score if there is no entry.
    oldest: i64,
    /// Earlier than any score if there is no entry.
    newest: i64,
}

impl<T> ByScore<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            oldest: i64::MAX,
            newest: i64::MIN,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn newest(&self) -> Option<i64> {
        (!self.is_empty()).then_some(self.newest)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.entries.get(place)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> vec_deque::Iter<'_, T> {
        self.entries.iter()
    }

    pub(crate) fn range(&self, places: Range<usize>) -> vec_deque::Iter<'_, T> {
        self.entries.range(places)
    }
}

impl<T: Scored> ByScore<T> {
    /// The number of entries scored up to `horizon`.
    #[inline]
    pub(crate) fn expired(&self, horizon: i64) -> usize {
        if self.oldest > horizon {
            return 0;
        }
        // Usually few: a search of the whole would look at entries all over a large queue.
        let is_expired = |place: usize| {
            let entry = self.entries.get(place);
            entry.is_some_and(|entry| entry.score() <= horizon)
        };
        let mut end = 1;
        while is_expired(end) {
            end *= 2;
        }
        let mut last = end / 2; // is expired, and the one at `end` is not
        while last + 1 < end {
            let middle = usize::midpoint(last, end);
            if is_expired(middle) {
                last = middle;
            } else {
                end = middle;
            }
        }
        end.min(self.len())
    }

    /// The index of the first entry with a higher score.
    pub(crate) fn later_than(&self, score: i64) -> usize {
        self.entries.partition_point(|entry| entry.score() <= score)
    }

    /// The score of the entry at this index.
    #[inline]
    pub(crate) fn score_at(&self, place: usize) -> Option<i64> {
        if place == 0 {
            return (!self.is_empty()).then_some(self.oldest);
        }
        self.entries.get(place).map(Scored::score)
    }

    /// The index of the first entry with this score that is accepted.
    #[inline]
    pub(crate) fn position(&self, score: i64, accepts: impl Fn(&T) -> bool) -> Option<usize> {
        if self.newest < score {
            return None;
        }
        let first = self.entries.partition_point(|entry| entry.score() < score);
        let of_score = self
            .entries
            .range(first..)
            .take_while(|entry| entry.score() == score);
        let place = of_score.map(accepts).position(|accepted| accepted)?;
        Some(first + place)
    }

    /// An entry with this score, which must stay.
    #[inline]
    pub(crate) fn with_score(&mut self, score: i64) -> Option<&mut T> {
        if self.newest == score {
            return self.entries.back_mut();
        }
        let place = self.position(score, |_| true)?;
        self.entries.get_mut(place)
    }

    #[inline]
    pub(crate) fn insert(&mut self, entry: T) {
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(1); // most limiters with a key of their own hold one
        }
        let score = entry.score();
        let is_last = self.newest < score
            || (self.entries.back()).is_none_or(|newest| newest.is_before(&entry));
        if is_last {
            self.entries.push_back(entry);
        } else {
            let place = self.entries.partition_point(|it| it.is_before(&entry));
            self.entries.insert(place, entry);
        }
        self.oldest = self.oldest.min(score);
        self.newest = self.newest.max(score);
    }

    pub(crate) fn remove(&mut self, place: usize) -> Option<T> {
        let removed = self.entries.remove(place);
        self.read_ends();
        removed
    }

    #[inline]
    pub(crate) fn drain(&mut self, places: Range<usize>) {
        if !places.is_empty() {
            self.entries.drain(places);
            self.read_ends();
        }
    }

    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn retain(&mut self, stays: impl FnMut(&T) -> bool) {
        self.entries.retain(stays);
        self.read_ends();
    }

    fn read_ends(&mut self) {
        self.oldest = self.entries.front().map_or(i64::MAX, Scored::score);
        self.newest = self.entries.back().map_or(i64::MIN, Scored::score);
    }
}

impl<T> Default for ByScore<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Scored for i64 {
        fn score(&self) -> i64 {
            *self
        }
    }

    proptest! {
        #[test]
        fn answers_from_the_ends_are_those_of_a_search(
            steps in prop::collection::vec((0..3_u8, 0..12_i64), 0..40),
        ) {
            let mut queue = ByScore::new();
            let mut sorted: Vec<i64> = Vec::new();
            for (step, number) in steps {
                let place = number as usize;
                match step {
                    0 => {
                        queue.insert(number);
                        sorted.push(number);
                        sorted.sort_unstable();
                    }
                    1 => {
                        let removed = (place < sorted.len()).then(|| sorted.remove(place));
                        prop_assert_eq!(queue.remove(place), removed);
                    }
                    _ => {
                        let gone = place.min(sorted.len());
                        queue.drain(0..gone);
                        sorted.drain(..gone);
                    }
                }
                prop_assert!(queue.range(0..queue.len()).eq(&sorted));
                prop_assert_eq!(queue.newest(), sorted.last().copied());
                prop_assert_eq!(queue.score_at(0), sorted.first().copied());
                for score in (-1..13).chain([i64::MIN, i64::MAX]) {
                    let up_to = sorted.iter().filter(|it| **it <= score).count();
                    prop_assert_eq!(queue.expired(score), up_to);
                    let first = sorted.iter().position(|it| *it == score);
                    prop_assert_eq!(queue.position(score, |_| true), first);
                    prop_assert_eq!(queue.position(score, |_| false), None);
                    let found = queue.with_score(score).copied();
                    prop_assert_eq!(found, first.map(|_| score));
                }
            }
        }
    }
}
