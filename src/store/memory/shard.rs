//! A part of a store's limiters, by their names.

use std::sync::Arc;

use indexmap::IndexMap;
use indexmap::map::raw_entry_v1::{RawEntryApiV1, RawEntryMut};

use super::limiter::Limiter;

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Each limiter has an index, so that a sweep can stop and go on later. The store hashes the names: the hash also
    /// selects the shard.
    by_name: IndexMap<Box<str>, Arc<Limiter>, ()>,
    /// The indexes from here on have been swept in this round.
    swept_from: usize,
}

/// A map with room for more than this many times its limiters shrinks.
const MOST_ROOM: usize = 4;
/// A map with room for this many limiters does not shrink.
const LITTLE_ROOM: usize = 64;
/// How many limiters are swept for each new one: more than one, so that a flood of new names does not outrun the sweep.
const SWEPT_FOR_A_NEW_ONE: usize = 2;

impl Shard {
    /// The limiter of this name, which has this hash.
    #[inline]
    pub(super) fn find(&self, name: &str, hash: u64) -> Option<&Arc<Limiter>> {
        let found = self.by_name.raw_entry_v1();
        let found = found.from_hash(hash, |other| **other == *name);
        found.map(|(_, limiter)| limiter)
    }

    /// The limiter of this name, which is created unless it exists by now.
    #[cold]
    pub(super) fn find_or_create(&mut self, name: &str, hash: u64, server: i64) -> Arc<Limiter> {
        if let Some(limiter) = self.find(name, hash) {
            return Arc::clone(limiter);
        }
        self.sweep(SWEPT_FOR_A_NEW_ONE, server);
        if self.is_round_over() {
            self.start_round();
        }
        let limiter = Arc::new(Limiter::new());
        let entry = self.by_name.raw_entry_mut_v1();
        if let RawEntryMut::Vacant(place) = entry.from_hash(hash, |_| false) {
            place.insert_hashed_nocheck(hash, name.into(), Arc::clone(&limiter));
        }
        limiter
    }

    /// Visits up to `most` limiters of the round, and drops those that are empty and have no handle. Returns the number
    /// of limiters visited.
    pub(super) fn sweep(&mut self, most: usize, server: i64) -> usize {
        let from = self.swept_from.min(self.by_name.len());
        let to = from.saturating_sub(most);
        for place in (to..from).rev() {
            let gone = self
                .by_name
                .get_index_mut(place)
                .is_some_and(|(_, limiter)| {
                    // Only this map hands out more handles, so a limiter without a handle stays without one.
                    Arc::get_mut(limiter).is_some_and(|limiter| limiter.is_gone(server))
                });
            if gone {
                // The last limiter, which was swept, takes its index.
                self.by_name.swap_remove_index(place);
            }
        }
        self.swept_from = to;
        from - to
    }

    pub(super) fn is_round_over(&self) -> bool {
        self.swept_from == 0
    }

    /// Begins a round with all limiters of this moment.
    pub(super) fn start_round(&mut self) {
        self.swept_from = self.by_name.len();
    }

    pub(super) fn give_back_room(&mut self) {
        if self.by_name.capacity() > LITTLE_ROOM.max(self.by_name.len() * MOST_ROOM) {
            self.by_name.shrink_to(self.by_name.len() * 2);
        }
    }

    /// Drops all limiters that are gone, and shrinks the map.
    pub(super) fn shrink(&mut self, server: i64) {
        self.swept_from = self.by_name.len();
        self.sweep(usize::MAX, server);
        self.by_name.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.by_name.capacity()
    }
}
