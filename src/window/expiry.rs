//! Whether a limiter is there, and for how long.

use super::{Pool, Timed, Window};

/// A key of any type, for operations on all five.
trait Key {
    fn expires_at(&self) -> Option<i64>;
    fn set_expires_at(&mut self, at: Option<i64>);
    fn is_there(&self) -> bool;
    fn remove(&mut self);
}

impl<T> Key for Timed<T> {
    fn expires_at(&self) -> Option<i64> {
        self.expires_at()
    }

    fn set_expires_at(&mut self, at: Option<i64>) {
        match at {
            Some(at) => self.expire_at(at),
            None => self.persist(),
        }
    }

    fn is_there(&self) -> bool {
        self.get().is_some()
    }

    fn remove(&mut self) {
        self.remove();
    }
}

/// Which keys a new time to live is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    /// Those without one.
    IfNotSet,
    /// Those with one.
    IfSet,
    /// Those whose own is sooner.
    IfGreater,
    /// Those whose own is later, or that have none.
    IfLess,
}

impl Condition {
    fn holds(self, current: Option<i64>, new: i64) -> bool {
        match self {
            Self::Always => true,
            Self::IfNotSet => current.is_none(),
            Self::IfSet => current.is_some(),
            Self::IfGreater => current.is_some_and(|at| new > at),
            Self::IfLess => current.is_none_or(|at| new < at),
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
    /// The keys that a client's calls touch.
    fn keys(&mut self, client: &str) -> impl Iterator<Item = &mut dyn Key> {
        let of_client = self.clients.get_mut(client).map(Pool::keys);
        [&mut self.settings as &mut dyn Key]
            .into_iter()
            .chain(self.overall.keys())
            .chain(of_client.into_iter().flatten())
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
        for key in self.keys(client) {
            if key.is_there() && condition.holds(key.expires_at(), at) {
                any = true;
                if at <= server {
                    key.remove();
                } else {
                    key.set_expires_at(Some(at));
                }
            }
        }
        any
    }

    /// Removes the time to live of every key, and returns whether any had one.
    pub(crate) fn clear_expire(&mut self, client: &str, server: i64) -> bool {
        self.drop_expired(client, server);
        let mut any = false;
        for key in self.keys(client) {
            any |= key.expires_at().is_some();
            key.set_expires_at(None);
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

impl Pool {
    fn keys(&mut self) -> [&mut dyn Key; 2] {
        [&mut self.value, &mut self.grants]
    }
}
