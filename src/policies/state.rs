//! The state of one target, and the keys that it is made of where two kinds of limiters use the
//! same target.

use std::fmt;
use std::mem::take;

use super::counters::Counters;
use super::lengths::Lengths;
use crate::window::Timed;

/// What the keys of one target hold.
pub(crate) trait State: fmt::Debug + Default + Send {
    /// Drops what has expired, and returns whether anything is left.
    fn drop_expired(&mut self, server: i64) -> bool;

    /// Whether the key with the target's own name exists.
    fn has_own_key(&self) -> bool;

    /// Takes the state out of these keys; `None` if one of them holds another kind's content.
    fn open(keys: &mut SharedKeys) -> Option<Self>;

    /// Moves the content to the keys, where another kind of limiter may find it. If only its own
    /// kind can read the state, returns it instead.
    fn close(self, keys: &mut SharedKeys) -> Option<Self>;
}

/// The keys of one target that several kinds of limiters read alike.
#[derive(Debug, Default)]
pub(crate) struct SharedKeys {
    /// The key with the target's own name where it holds a number.
    pub(super) number: Timed<i64>,
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
    fn open(keys: &mut SharedKeys) -> Option<Timed<Self>> {
        keys.number.get().is_none().then(Timed::default)
    }

    fn close(held: Timed<Self>, _keys: &mut SharedKeys) -> Option<Timed<Self>> {
        held.get().is_some().then_some(held)
    }
}

impl Content for i64 {
    fn open(keys: &mut SharedKeys) -> Option<Timed<Self>> {
        Some(take(&mut keys.number))
    }

    fn close(held: Timed<Self>, keys: &mut SharedKeys) -> Option<Timed<Self>> {
        keys.number = held;
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

    fn open(keys: &mut SharedKeys) -> Option<Self> {
        T::open(keys)
    }

    fn close(self, keys: &mut SharedKeys) -> Option<Self> {
        T::close(self, keys)
    }
}
