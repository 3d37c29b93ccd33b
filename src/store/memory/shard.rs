//! One of the parts into which a store's targets and limiters are divided by their names.

use std::sync::Arc;

use hashbrown::HashTable;

use super::limiter::StoredLimiter;
use crate::name_hash::NameHash;
use crate::policies::stored_target::StoredTarget;

#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: HashTable<Slot>,
}

/// The state that the store has under one name.
#[derive(Debug)]
pub(super) enum Slot {
    /// The state of one policy.
    Target(StoredTarget),
    /// An RRateLimiter, a target of a joint decision, or a target of several policies one after
    /// another.
    Limiter(Arc<StoredLimiter>),
}

/// A table with room for more than this many times its limiters shrinks.
const MOST_ROOM: usize = 4;
/// A table with room for this many limiters does not shrink.
const LITTLE_ROOM: usize = 16;

impl Slot {
    fn name(&self) -> &[u8] {
        match self {
            Self::Target(target) => target.name().as_bytes(),
            Self::Limiter(limiter) => limiter.name.as_bytes(),
        }
    }

    /// The limiter of this name. If the slot has a target, turns it into a limiter with its state.
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

    /// Whether all of its state has expired at `server`, in ms of the store's clock, and nobody has
    /// a handle on it.
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
    /// The slot of a name with this hash. If there is none, inserts the one that `new` makes.
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

    /// Inserts a slot, and returns its place. A full table grows only by as much as what is not
    /// gone needs, so that a flood of new names does not outrun the sweeps.
    #[cold]
    fn insert(&mut self, hash: NameHash, server: i64, slot: Slot) -> usize {
        if self.slots.len() == self.slots.capacity() {
            self.drop_gone(server);
            // So much that it is not full again soon: each limiter is visited a few times at most.
            self.slots.reserve(self.slots.len() / 2 + 1, hash_of);
        }
        self.slots
            .insert_unique(hash.bits(), slot, hash_of)
            .bucket_index()
    }

    /// Drops what is empty and has no handle, and gives back memory that the others do not need.
    /// Returns how many places of the table were visited.
    pub(super) fn sweep(&mut self, server: i64) -> usize {
        let places = self.slots.num_buckets();
        self.drop_gone(server);
        if self.slots.capacity() > LITTLE_ROOM.max(self.slots.len() * MOST_ROOM) {
            self.shrink_to(self.slots.len() * 2);
        }
        places
    }

    /// Drops all limiters that are empty and have no handle, and gives back the memory that they
    /// took.
    pub(super) fn shrink(&mut self, server: i64) {
        self.drop_gone(server);
        self.shrink_to(0);
    }

    fn drop_gone(&mut self, server: i64) {
        self.slots.retain(|slot| !slot.is_gone(server));
    }

    fn shrink_to(&mut self, capacity: usize) {
        self.slots.shrink_to(capacity, hash_of);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
