//! Entries in ascending order of their scores, as in a sorted set.
//!
//! New entries are nearly always added at the end, and expired ones removed from the front.

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
pub(crate) struct ByScore<T>(VecDeque<T>);

impl<T> ByScore<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.0.get(place)
    }

    pub(crate) fn range(&self, places: Range<usize>) -> vec_deque::Iter<'_, T> {
        self.0.range(places)
    }
}

impl<T: Scored> ByScore<T> {
    /// The score of the newest entry.
    #[inline]
    pub(crate) fn newest(&self) -> Option<i64> {
        self.0.back().map(Scored::score)
    }

    /// The score of the entry at this index.
    #[inline]
    pub(crate) fn score_at(&self, place: usize) -> Option<i64> {
        self.0.get(place).map(Scored::score)
    }

    /// How many entries are scored up to `score`: the index of the first one with a higher score.
    #[inline]
    pub(crate) fn count_up_to(&self, score: i64) -> usize {
        if self.score_at(0).is_none_or(|oldest| oldest > score) {
            return 0; // usually none has expired
        }
        self.0.partition_point(|entry| entry.score() <= score)
    }

    /// The index of the first entry with this score that is accepted.
    #[inline]
    pub(crate) fn position(&self, score: i64, accepts: impl Fn(&T) -> bool) -> Option<usize> {
        if self.newest().is_none_or(|newest| newest < score) {
            return None;
        }
        let first = self.0.partition_point(|entry| entry.score() < score);
        let of_score = self
            .0
            .range(first..)
            .take_while(|entry| entry.score() == score);
        let place = of_score.map(accepts).position(|accepted| accepted)?;
        Some(first + place)
    }

    /// The entry at this index, whose score must stay.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.0.get_mut(place)
    }

    /// An entry with this score, which must stay.
    #[inline]
    pub(crate) fn with_score(&mut self, score: i64) -> Option<&mut T> {
        if self.newest() == Some(score) {
            return self.0.back_mut();
        }
        let place = self.position(score, |_| true)?;
        self.0.get_mut(place)
    }

    #[inline]
    pub(crate) fn insert(&mut self, entry: T) {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(1); // most limiters with a key of their own hold one
        }
        if self.0.back().is_none_or(|newest| newest.is_before(&entry)) {
            self.0.push_back(entry);
        } else {
            let place = self.0.partition_point(|it| it.is_before(&entry));
            self.0.insert(place, entry);
        }
    }

    pub(crate) fn remove(&mut self, place: usize) -> Option<T> {
        self.0.remove(place)
    }

    #[inline]
    pub(crate) fn drain(&mut self, places: Range<usize>) {
        self.0.drain(places);
    }

    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn retain(&mut self, stays: impl FnMut(&T) -> bool) {
        self.0.retain(stays);
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
        fn each_answer_is_that_of_a_search_through_a_sorted_list(
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
                    prop_assert_eq!(queue.count_up_to(score), up_to);
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
