//! The keys of one target in memory, where two kinds of limiters may use the same target.
//!
//! A kind works on a state of its own, which holds its keys. When another kind uses the target, the
//! state is converted to the keys that it has in Redis, and the other kind's state is made of the
//! keys that it uses. So two kinds on one target give the answers that they give over Redis: a key
//! with another kind's content is a bad state, a key that both use alike is shared, and kinds
//! without a common key do not affect each other.

use super::algorithm::{Algorithm, AnyState};
use super::state::SharedKeys;

#[derive(Debug, Default)]
pub(crate) struct TargetKeys {
    shared: SharedKeys,
    /// The key with the target's own name where it holds content that only one kind can read.
    other: Option<AnyState>,
}

impl TargetKeys {
    /// Takes the state of this algorithm out of the keys; `None` if a key that it uses holds
    /// another kind's state, and for an RRateLimiter.
    pub(crate) fn take(&mut self, algorithm: &Algorithm) -> Option<AnyState> {
        match self.other.take_if(|it| it.is_of(algorithm)) {
            None if self.other.is_some() && algorithm.properties().has_own_key => None,
            None => algorithm.open((), &mut self.shared),
            own => own,
        }
    }

    /// Moves the content of a state to the keys, and returns the header of the state.
    pub(crate) fn put<'a, H>(&mut self, state: &'a mut AnyState<H>) -> &'a mut H {
        let (head, own) = state.close(&mut self.shared);
        self.other = own.or(self.other.take());
        head
    }

    pub(crate) fn has_own(&self) -> bool {
        self.shared.number.get().is_some() || self.other.is_some()
    }

    /// Drops what has expired, and returns whether anything is left.
    pub(crate) fn drop_expired(&mut self, server: i64) -> bool {
        let shared = &mut self.shared;
        shared.number.drop_expired(server);
        self.other.take_if(|it| !it.drop_expired(server));
        shared.start.drop_expired(server);
        shared.lengths.drop_expired(server);
        shared.counters.drop_expired(server);
        self.is_left()
    }

    pub(crate) fn is_left(&self) -> bool {
        self.has_own()
            || self.shared.start.get().is_some()
            || self.shared.lengths.get().is_some()
            || !self.shared.counters.is_empty()
    }
}
