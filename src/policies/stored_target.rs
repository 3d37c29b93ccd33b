//! A target in memory. Its name, its state and its lock are one allocation, so that a decision
//! reads few cache lines: of many targets, hardly any is in the processor's cache.

use smallvec::SmallVec;

use super::algorithm::{AnyModel, State, Unusable};
use super::answer::Answer;
use super::call::{Opened, TargetRef};
use super::target_keys::TargetKeys;
use crate::permit::CallId;
use crate::window::{At, Timed};

/// A name in a store. Unless it is long, it is part of what it names.
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

/// What one kind of limiter holds of a target.
#[derive(Debug)]
pub(crate) struct StoredTarget<S: ?Sized = dyn State> {
    pub(crate) name: Name,
    /// The latest time of a step, by the store's clock.
    latest: i64,
    /// Set while the target is locked out.
    lock: Timed<()>,
    state: S,
}

/// What is left of a target when its state is given up.
pub(crate) struct Closed {
    pub(crate) latest: i64,
    pub(crate) lock: Timed<()>,
    pub(crate) keys: TargetKeys,
}

impl<S> StoredTarget<S> {
    pub(super) fn new(name: Name, state: S) -> Self {
        Self {
            name,
            latest: i64::MIN,
            lock: Timed::default(),
            state,
        }
    }
}

impl StoredTarget {
    /// A new target of this name.
    pub(crate) fn of(model: &dyn AnyModel, name: &str) -> Option<Box<Self>> {
        model.new_target(name.into())
    }

    /// Checks one request. `passed` is the time by the client's clock if it has its own, `read` by
    /// the store's.
    #[inline]
    pub(crate) fn check(
        &mut self,
        target: TargetRef<'_>,
        passed: Option<i64>,
        read: i64,
        cost: u32,
    ) -> Result<Answer, Unusable> {
        let server = self.latest.max(read);
        self.latest = server;
        let now = passed.unwrap_or(server);
        if self.lock.get().is_some() {
            self.lock.drop_expired(server);
            self.state.drop_expired(server);
        }
        let mut opened = Opened {
            target,
            state: &mut self.state,
            lock: &mut self.lock,
        };
        let call_id = CallId::default(); // only an RRateLimiter's grants are named
        opened.check(At { now, server }, &call_id, cost)
    }

    /// Gives the state up. What it holds is left as keys.
    pub(crate) fn close(&mut self) -> Closed {
        let mut keys = TargetKeys::default();
        self.state.close(&mut keys);
        Closed {
            latest: self.latest,
            lock: std::mem::take(&mut self.lock),
            keys,
        }
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&mut self, server: i64) -> bool {
        self.lock.drop_expired(server);
        !self.state.drop_expired(server) && self.lock.get().is_none()
    }
}
