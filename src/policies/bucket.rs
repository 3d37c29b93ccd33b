//! A bucket whose level changes with whole units of time: the state of a LeakyBucket and of a PenaltyTokenBucket.

use super::algorithm::State;
use super::target_keys::TargetKeys;
use crate::window::Timed;

/// One target's bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// What it holds: requests, or tokens.
    pub(super) level: Timed<i64>,
    /// When the unit began up to which the level is counted.
    pub(super) start: Timed<i64>,
}

impl Bucket {
    /// The bucket that these keys hold, which are removed; `None` if one holds another kind's state.
    pub(super) fn open(keys: &mut TargetKeys) -> Option<Self> {
        Some(Self {
            level: keys.take_own()?,
            start: std::mem::take(&mut keys.start),
        })
    }
}

impl State for Bucket {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.level.drop_expired(server);
        self.start.drop_expired(server);
        self.level.get().is_some() || self.start.get().is_some()
    }

    fn has_own_key(&self) -> bool {
        self.level.get().is_some()
    }

    fn close(self: Box<Self>, keys: &mut TargetKeys) {
        keys.put_own(self.level);
        keys.start = self.start;
    }
}
