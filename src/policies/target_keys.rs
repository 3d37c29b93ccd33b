//! The keys of one target in memory, where two kinds of limiters may use the same target.
//!
//! A kind works on a state of its own, which holds its keys. When another kind uses the target, the
//! state is converted to the keys that it has in Redis, and the other kind's state is made of the
//! keys that it uses. So two kinds on one target give the answers that they give over Redis: a key
//! with another kind's content is a bad state, a key that both use alike is shared, and kinds
//! without a common key do not affect each other.

use std::fmt;
use std::mem::take;

use super::algorithm::AnyState;
use super::counters::Counters;
use super::lengths::Lengths;
use super::model::State;
use crate::window::Timed;

#[derive(Debug, Default)]
pub(crate) struct TargetKeys {
    /// The key with the target's own name where it holds a number.
    number: Timed<i64>,
    /// The state of a kind whose own key nobody else can read, in place of the number.
    pub(super) other: Option<AnyState>,
    /// The key with `-st`.
    pub(super) start: Timed<i64>,
    /// The key with `-periods`.
    pub(super) lengths: Timed<Lengths>,
    /// The keys with `-` and the last millisecond of a period.
    pub(super) counters: Counters,
}

/// The content of the key with the target's own name, of an algorithm that has no other key.
/// Several kinds of limiters store a number there; any other content belongs to one kind.
pub(super) trait Content: fmt::Debug + Send + Sized {
    fn open(keys: &mut TargetKeys) -> Option<Timed<Self>> {
        (!keys.has_own()).then(Timed::default)
    }

    fn close(held: Timed<Self>, _keys: &mut TargetKeys) -> Option<Timed<Self>> {
        held.get().is_some().then_some(held)
    }
}

impl Content for i64 {
    fn open(keys: &mut TargetKeys) -> Option<Timed<Self>> {
        keys.take_number()
    }

    fn close(held: Timed<Self>, keys: &mut TargetKeys) -> Option<Timed<Self>> {
        keys.put_number(held);
        None
    }
}

impl<T: Content> State for Timed<T> {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.drop_expired(server);
        self.get().is_some()
    }

    fn has_own_key(&self) -> bool {
        self.get().is_some()
    }

    fn open(keys: &mut TargetKeys) -> Option<Self> {
        T::open(keys)
    }

    fn close(self, keys: &mut TargetKeys) -> Option<Self> {
        T::close(self, keys)
    }
}

impl TargetKeys {
    /// Takes the number of the key with the target's own name; `None` if it holds something else.
    pub(super) fn take_number(&mut self) -> Option<Timed<i64>> {
        self.other.is_none().then(|| take(&mut self.number))
    }

    pub(super) fn put_number(&mut self, held: Timed<i64>) {
        self.number = held;
    }

    pub(crate) fn has_own(&self) -> bool {
        self.number.get().is_some() || self.other.is_some()
    }

    /// Drops what has expired, and returns whether anything is left.
    pub(crate) fn drop_expired(&mut self, server: i64) -> bool {
        self.number.drop_expired(server);
        self.other.take_if(|it| !it.drop_expired(server));
        self.start.drop_expired(server);
        self.lengths.drop_expired(server);
        self.counters.drop_expired(server);
        self.is_left()
    }

    pub(crate) fn is_left(&self) -> bool {
        self.has_own()
            || self.start.get().is_some()
            || self.lengths.get().is_some()
            || !self.counters.is_empty()
    }
}
