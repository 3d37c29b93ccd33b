//! A part of a store's targets and limiters, by their names.

use std::sync::Arc;

use hashbrown::HashTable;

use super::limiter::StoredLimiter;
use crate::name_hash::NameHash;
use crate::policies::stored_target::StoredTarget;

#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: HashTable<Slot>,
    /// The places in the table from here on have been swept in this round.
    swept_from: usize,
}

/// What a name has.
#[derive(Debug)]
pub(super) enum Slot {
    /// The state of one policy.
    Target(StoredTarget),
    /// An RRateLimiter, or what several limiters have used at once, or several kinds one after
    /// another.
    Limiter(Arc<StoredLimiter>),
}

/// A table with room for more than this many times its limiters shrinks.
const MOST_ROOM: usize = 4;
/// A table with room for this many limiters does not shrink.
const LITTLE_ROOM: usize = 16;
/// How many places are swept for each new limiter: so many that a flood of new names does not
/// outrun the sweep. At least seven of 16 places are in use when a table grows.
const SWEPT_FOR_A_NEW_ONE: usize = 5;

impl Slot {
    fn name(&self) -> &[u8] {
        match self {
            Self::Target(target) => target.name().as_bytes(),
            Self::Limiter(limiter) => limiter.name.as_bytes(),
        }
    }

    /// The limiter of this name. A target becomes one, with what it holds.
    pub(super) fn limiter(&mut self) -> &mut Arc<StoredLimiter> {
        if let Self::Target(target) = self {
            let limiter = StoredLimiter::of_target(target.name().clone(), target.close_target());
            *self = Self::Limiter(Arc::new(limiter));
        }
        match self {
            Self::Limiter(limiter) => limiter,
            Self::Target(_) => unreachable!("it was replaced"),
        }
    }

    /// Whether nothing is left of it, and nobody has a handle.
    fn is_gone(&mut self, server: i64) -> bool {
        match self {
            Self::Target(target) => target.is_gone(server),
            // Only a slot hands out more handles, so a limiter without a handle stays without one.
            Self::Limiter(limiter) => {
                Arc::get_mut(limiter).is_some_and(|limiter| limiter.is_gone(server))
            }
        }
    }
}

fn hash_of(slot: &Slot) -> u64 {
    NameHash::of(slot.name()).bits()
}

impl Shard {
    /// What this name has, which has this hash: something new if it has nothing.
    #[inline]
    pub(super) fn slot(
        &mut self,
        name: &str,
        hash: NameHash,
        server: i64,
        new: impl FnOnce() -> Slot,
    ) -> &mut Slot {
        let is_named = |slot: &Slot| slot.name() == name.as_bytes();
        let place = match self.slots.find_bucket_index(hash.bits(), is_named) {
            Some(place) => place,
            None => self.insert(hash, server, new()),
        };
        // Nothing is removed between finding or inserting the slot and this.
        let slot = self.slots.get_bucket_mut(place);
        slot.expect("a slot was found or inserted at this place")
    }

    #[cold]
    fn insert(&mut self, hash: NameHash, server: i64, slot: Slot) -> usize {
        self.sweep(SWEPT_FOR_A_NEW_ONE, server);
        if self.is_round_over() {
            self.start_round();
        }
        self.slots
            .insert_unique(hash.bits(), slot, hash_of)
            .bucket_index()
    }

    /// Visits up to `most` places of the round, and drops what is empty and has no handle. Returns
    /// the number of places.
    pub(super) fn sweep(&mut self, most: usize, server: i64) -> usize {
        let from = self.swept_from.min(self.slots.num_buckets());
        let to = from.saturating_sub(most);
        for place in to..from {
            if let Ok(mut slot) = self.slots.get_bucket_entry(place)
                && slot.get_mut().is_gone(server)
            {
                slot.remove();
            }
        }
        self.swept_from = to;
        from - to
    }

    pub(super) fn is_round_over(&self) -> bool {
        self.swept_from == 0
    }

    /// Starts to sweep all limiters again.
    pub(super) fn start_round(&mut self) {
        self.swept_from = self.slots.num_buckets();
    }

    /// Gives memory back that the limiters no longer need.
    pub(super) fn give_back_room(&mut self) {
        if self.slots.capacity() > LITTLE_ROOM.max(self.slots.len() * MOST_ROOM) {
            self.shrink_to(self.slots.len() * 2);
        }
    }

    /// Drops all limiters that are empty and have no handle, and gives back the memory that they
    /// took.
    pub(super) fn shrink(&mut self, server: i64) {
        self.slots.retain(|slot| !slot.is_gone(server));
        self.shrink_to(0);
    }

    fn shrink_to(&mut self, capacity: usize) {
        self.slots.shrink_to(capacity, hash_of);
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
