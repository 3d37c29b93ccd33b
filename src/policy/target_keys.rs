//! The keys of one target in memory, where another kind of limiter than the one that wrote them may ask.
//!
//! A kind works on a state of its own, which holds its keys. When another kind asks, the state is taken apart into the keys
//! that it stands for in Redis, and the other kind's state is made of those that it uses. So two kinds on one target get
//! the answers that they get over Redis: a key that holds what the asking kind does not is a bad state, one that both use
//! alike is used, and kinds that have no key in common know nothing of each other.

use std::any::Any;
use std::fmt;

use super::counters::Counters;
use crate::model::Timed;

#[derive(Debug, Default)]
pub(crate) struct TargetKeys {
    /// What stands under the target's own name.
    own: Option<Box<dyn Content>>,
    /// The key with `-st`.
    pub(super) start: Timed<i64>,
    /// The key with `-window`.
    pub(super) length: Timed<i64>,
    /// The keys with `-` and the last millisecond of a period.
    pub(super) counters: Counters,
}

/// What one key holds, of whatever type.
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

impl TargetKeys {
    /// Takes what stands under the target's own name; `None` where it is another kind's.
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

    /// Drops what is expired, and tells whether anything is left.
    pub(crate) fn drop_expired(&mut self, server: i64) -> bool {
        self.own.take_if(|own| {
            own.drop_expired(server);
            !own.is_there()
        });
        self.start.drop_expired(server);
        self.length.drop_expired(server);
        self.counters.drop_expired(server);
        self.is_left()
    }

    pub(crate) fn is_left(&self) -> bool {
        self.own.is_some()
            || self.start.get().is_some()
            || self.length.get().is_some()
            || !self.counters.is_empty()
    }
}
