//! The keys of one target in memory, where two kinds of limiters may use the same target.
//!
//! A kind works on a state of its own, which holds its keys. When another kind uses the target, the
//! state is converted to the keys that it has in Redis, and the other kind's state is made of the
//! keys that it uses. So two kinds on one target give the answers that they give over Redis: a key
//! with another kind's content is a bad state, a key that both use alike is shared, and kinds
//! without a common key do not affect each other.

use std::any::Any;
use std::fmt;

use super::algorithm::State;
use super::counters::Counters;
use super::lengths::Lengths;
use crate::window::Timed;

#[derive(Debug, Default)]
pub(crate) struct TargetKeys {
    /// The content of the key with the target's own name.
    own: Option<Box<dyn Content>>,
    /// The key with `-st`.
    pub(super) start: Timed<i64>,
    /// The key with `-periods`.
    pub(super) lengths: Timed<Lengths>,
    /// The keys with `-` and the last millisecond of a period.
    pub(super) counters: Counters,
}

/// What one key holds, of any type.
trait Content: Any + fmt::Debug + Send {
    fn drop_expired(&mut self, server: i64);
    fn is_there(&self) -> bool;
}

impl<T: fmt::Debug + Send + 'static> Content for Timed<T> {
    fn drop_expired(&mut self, server: i64) {
        self.drop_expired(server);
    }

    fn is_there(&self) -> bool {
        self.get().is_some()
    }
}

/// The state of an algorithm that has only the key with the target's own name.
impl<T: fmt::Debug + Send + 'static> State for Timed<T> {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.drop_expired(server);
        self.get().is_some()
    }

    fn has_own_key(&self) -> bool {
        self.get().is_some()
    }

    fn open(keys: &mut TargetKeys) -> Option<Self> {
        keys.take_own()
    }

    fn close(&mut self, keys: &mut TargetKeys) {
        keys.put_own(std::mem::take(self));
    }
}

impl TargetKeys {
    /// Takes the content of the key with the target's own name; `None` if it is another kind's.
    pub(super) fn take_own<T: fmt::Debug + Send + 'static>(&mut self) -> Option<Timed<T>> {
        let Some(own) = &mut self.own else {
            return Some(Timed::default());
        };
        let own: &mut dyn Any = &mut **own;
        let taken = own.downcast_mut().map(std::mem::take)?;
        self.own = None;
        Some(taken)
    }

    pub(super) fn put_own<T: fmt::Debug + Send + 'static>(&mut self, held: Timed<T>) {
        self.own = held.get().is_some().then(|| Box::new(held) as _);
    }

    pub(crate) fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Drops what has expired, and returns whether anything is left.
    pub(crate) fn drop_expired(&mut self, server: i64) -> bool {
        self.own.take_if(|own| {
            own.drop_expired(server);
            !own.is_there()
        });
        self.start.drop_expired(server);
        self.lengths.drop_expired(server);
        self.counters.drop_expired(server);
        self.is_left()
    }

    pub(crate) fn is_left(&self) -> bool {
        self.own.is_some()
            || self.start.get().is_some()
            || self.lengths.get().is_some()
            || !self.counters.is_empty()
    }
}
