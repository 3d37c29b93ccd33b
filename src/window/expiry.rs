//! Whether a limiter exists, and when it expires.

use super::Window;
use super::timed::NEVER;

/// Which keys get a new time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    /// Keys without a time to live.
    IfNotSet,
    /// Keys with a time to live.
    IfSet,
    /// Keys that would expire earlier.
    IfGreater,
    /// Keys that would expire later, or never.
    IfLess,
}

impl Condition {
    fn holds(self, current: i64, new: i64) -> bool {
        match self {
            Self::Always => true,
            Self::IfNotSet => current == NEVER,
            Self::IfSet => current != NEVER,
            Self::IfGreater => new > current,
            Self::IfLess => new < current,
        }
    }
}

/// When the keys expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// In this many ms.
    In(i64),
    /// At this time, in ms since the epoch.
    At(i64),
}

impl Window {
    /// The times at which the keys that a client's calls touch expire, of those that exist.
    fn ends(&mut self, client: &str) -> impl Iterator<Item = &mut i64> {
        let pools = [Some(&mut self.overall), self.clients.get_mut(client)];
        let pools = pools.into_iter().flatten();
        let of_pools = pools.flat_map(|pool| [pool.value.end_mut(), pool.grants.end_mut()]);
        let ends = [self.settings.end_mut()].into_iter().chain(of_pools);
        ends.flatten()
    }

    /// Drops what has expired for any client, and returns whether nothing is left.
    pub(crate) fn is_gone(&mut self, server: i64) -> bool {
        self.settings.drop_expired(server);
        self.overall.drop_expired(server);
        self.clients.retain(|_, pool| {
            pool.drop_expired(server);
            !pool.is_gone()
        });
        self.settings.get().is_none() && self.overall.is_gone() && self.clients.is_empty()
    }

    pub(crate) fn exists(&mut self, server: i64) -> bool {
        self.settings.drop_expired(server);
        self.settings.get().is_some()
    }

    /// Gives each key that meets the condition a time to live, and returns whether any did. A time
    /// in the past removes the key.
    pub(crate) fn expire(
        &mut self,
        client: &str,
        server: i64,
        expiry: Expiry,
        condition: Condition,
    ) -> bool {
        self.drop_expired(client, server);
        let at = match expiry {
            Expiry::In(millis) => server + millis,
            Expiry::At(at) => at,
        };
        let mut any = false;
        for end in self.ends(client) {
            if condition.holds(*end, at) {
                any = true;
                *end = if at <= server { i64::MIN } else { at };
            }
        }
        self.drop_expired(client, server);
        any
    }

    /// Removes the time to live of every key, and returns whether any had one.
    pub(crate) fn clear_expire(&mut self, client: &str, server: i64) -> bool {
        self.drop_expired(client, server);
        let mut any = false;
        for end in self.ends(client) {
            any |= *end != NEVER;
            *end = NEVER;
        }
        any
    }

    /// Milliseconds until the hash expires: `None` if it is missing, `Some(None)` if it has no time
    /// to live.
    pub(crate) fn remain_time_to_live(&mut self, server: i64) -> Option<Option<i64>> {
        self.settings.drop_expired(server);
        self.settings.get()?;
        Some(self.settings.expires_at().map(|at| at - server))
    }
}
