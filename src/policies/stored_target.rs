//! A target in memory. Its name, its state and its lock are one allocation, so that a decision
//! reads few cache lines: of many targets, hardly any is in the processor's cache.

use smallvec::SmallVec;

use super::algorithm::{Algorithm, AnyState};
use super::answer::Answer;
use super::call::{Opened, TargetRef};
use super::target_keys::TargetKeys;
use crate::window::{At, NotInitialized, Timed};

/// A name in a store. A short name needs no allocation of its own.
#[derive(Debug, Clone)]
pub(crate) struct Name(SmallVec<[u8; 31]>);

impl Name {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self(SmallVec::from_slice(name.as_bytes()))
    }
}

/// The state of a target of a policy, in one allocation with its header.
pub(crate) type StoredTarget = AnyState<Head>;

/// The header of a target's allocation.
#[derive(Debug)]
pub(crate) struct Head {
    name: Name,
    /// The latest time of a step, by the store's clock.
    latest: i64,
    /// Set while the target is locked out.
    lock: Timed<()>,
}

/// What remains of a target whose state is converted to keys.
pub(crate) struct Closed {
    pub(crate) latest: i64,
    pub(crate) lock: Timed<()>,
    pub(crate) keys: TargetKeys,
}

impl StoredTarget {
    /// A new target with this name; `None` for an RRateLimiter.
    pub(crate) fn of(model: &Algorithm, name: &str) -> Option<Self> {
        model.new_state(Head {
            name: name.into(),
            latest: i64::MIN,
            lock: Timed::default(),
        })
    }

    pub(crate) fn name(&self) -> &Name {
        &self.head().name
    }

    /// Checks one request. `passed` is the time by the client's clock, if it has its own, and
    /// `read` the time by the store's. `None` if the state is of another kind.
    #[inline]
    pub(crate) fn check(
        &mut self,
        target: TargetRef<'_>,
        passed: Option<i64>,
        read: i64,
        cost: u32,
    ) -> Option<Result<Answer, NotInitialized>> {
        let (mut paired, head) = self.with(target.model)?;
        let server = head.latest.max(read);
        head.latest = server;
        if head.lock.get().is_some() {
            head.lock.drop_expired(server);
            paired.drop_expired(server);
        }
        let mut opened = Opened {
            target,
            paired,
            lock: &mut head.lock,
        };
        let at = At {
            now: passed.unwrap_or(server),
            server,
        };
        Some(opened.check(at, cost))
    }

    /// Converts the state to keys, and returns them with the rest of the target.
    pub(crate) fn close_target(&mut self) -> Closed {
        let mut keys = TargetKeys::default();
        let head = keys.put(self);
        Closed {
            latest: head.latest,
            lock: std::mem::take(&mut head.lock),
            keys,
        }
    }

    /// Drops what has expired, and returns whether nothing is left of the target.
    pub(crate) fn is_gone(&mut self, server: i64) -> bool {
        let head = self.head_mut();
        head.lock.drop_expired(server);
        let is_locked = head.lock.get().is_some();
        !self.drop_expired(server) && !is_locked
    }
}
