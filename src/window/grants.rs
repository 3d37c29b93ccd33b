//! The grants of a pool in the order of their scores, as the permits zset holds them.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::permit::{self, Random};

/// One member and its score. Equal scores are ordered by the members' bytes, as Redis orders them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    score: i64,
    member: Bytes,
}

impl Entry {
    /// The permits it holds; none where it is no well-formed grant.
    fn permits(&self) -> i64 {
        permit::decode(&self.member).map_or(0, |(_, permits)| i64::from(permits))
    }
}

/// Members in ascending order. New ones nearly always go to the end, and old ones leave from the front.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    entries: VecDeque<Entry>,
}

impl Grants {
    pub(crate) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn add(&mut self, score: i64, random: &[u8], permits: u32) {
        self.insert(Entry {
            score,
            member: permit::encode(random, permits),
        });
    }

    fn insert(&mut self, entry: Entry) {
        if self.entries.back().is_none_or(|last| *last < entry) {
            self.entries.push_back(entry);
        } else {
            let place = self.entries.partition_point(|other| *other < entry);
            self.entries.insert(place, entry);
        }
    }

    /// How many grants are over, scored up to `horizon`.
    fn over(&self, horizon: i64) -> usize {
        if self
            .entries
            .front()
            .is_none_or(|first| first.score > horizon)
        {
            return 0;
        }
        self.entries.partition_point(|entry| entry.score <= horizon)
    }

    /// Permits and number of the grants that are over.
    pub(super) fn expired(&self, horizon: i64) -> (i64, usize) {
        let over = self.over(horizon);
        (self.entries.range(..over).map(Entry::permits).sum(), over)
    }

    /// Permits of the grants that are not over.
    pub(super) fn live(&self, horizon: i64) -> i64 {
        self.entries
            .range(self.over(horizon)..)
            .map(Entry::permits)
            .sum()
    }

    pub(super) fn oldest_live(&self, horizon: i64) -> Option<i64> {
        self.entries
            .get(self.over(horizon))
            .map(|entry| entry.score)
    }

    pub(super) fn newest(&self) -> Option<i64> {
        self.entries.back().map(|entry| entry.score)
    }

    pub(super) fn drop_expired(&mut self, horizon: i64) {
        let over = self.over(horizon);
        self.entries.drain(..over);
    }

    /// Score and permits of the grant with these random bytes.
    pub(super) fn find(&self, random: &Random) -> Option<(i64, u32)> {
        self.entries.iter().find_map(|entry| {
            let (bytes, permits) = permit::decode(&entry.member)?;
            (bytes == random).then_some((entry.score, permits))
        })
    }

    /// Takes permits out of the oldest live grants, whole ones first.
    pub(super) fn take_from_oldest(&mut self, horizon: i64, mut permits: i64) {
        let mut at = self.over(horizon);
        while permits > 0 && at < self.entries.len() {
            let held = self.entries[at].permits();
            if held == 0 {
                at += 1;
                continue;
            }
            let taken = held.min(permits);
            permits -= taken;
            if !self.shrink_at(at, (held - taken) as u32) {
                continue; // it is gone, and the next one stands in its place
            }
            at += 1;
        }
    }

    /// Takes up to `permits` out of the grant with this score and these random bytes, and tells how many.
    pub(super) fn shrink(&mut self, score: i64, random: &Random, permits: u32) -> u32 {
        let from = self.entries.partition_point(|entry| entry.score < score);
        let found = self
            .entries
            .range(from..)
            .take_while(|entry| entry.score == score)
            .position(|entry| {
                permit::decode(&entry.member).is_some_and(|(bytes, _)| bytes == random)
            });
        let Some(offset) = found else { return 0 };
        let held = self.entries[from + offset].permits() as u32;
        let back = permits.min(held);
        self.shrink_at(from + offset, held - back);
        back
    }

    /// Leaves `permits` in the grant at this place; one with none goes. Tells whether it stays.
    fn shrink_at(&mut self, at: usize, permits: u32) -> bool {
        let Some(entry) = self.entries.remove(at) else {
            return false;
        };
        match permit::decode(&entry.member) {
            Some((random, _)) if permits > 0 => {
                self.add(entry.score, random, permits);
                true
            }
            _ => false,
        }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Bytes)> {
        self.entries
            .iter()
            .map(|entry| (entry.score, &entry.member))
    }

    #[cfg(test)]
    pub(crate) fn insert_member(&mut self, score: i64, member: Bytes) {
        self.entries.retain(|entry| entry.member != member);
        self.insert(Entry { score, member });
    }
}
