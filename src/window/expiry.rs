//! Times to live, as in Redis: one per key, and a key that is written anew loses its own.
//!
//! A key lives as long as what it holds counts under the settings of its callers. These may differ,
//! such as while a service is deployed. So a call never shortens a time to live, which another
//! caller's settings may need; and it extends one that is too short for its own settings, whatever
//! it decides. [`Timed::outlive`] and [`Timed::life`] are this rule, as `lua/shared/life.lua` is in
//! the scripts.

use super::{Pool, Window};

/// The value of a key, and when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timed<T>(Option<(T, i64)>);

/// When a key without a time to live expires: later than any time in use.
const NEVER: i64 = i64::MAX;

impl<T> Default for Timed<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Timed<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|(value, _)| value)
    }

    /// Changes the value in place; its time to live stays.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|(value, _)| value)
    }

    /// Writes the value anew, without a time to live.
    pub(crate) fn set(&mut self, value: T) {
        self.0 = Some((value, NEVER));
    }

    /// Changes the value in place; creates it without a time to live if it is missing.
    pub(crate) fn get_or_set(&mut self, make: impl FnOnce() -> T) -> &mut T {
        let (value, _) = self.0.get_or_insert_with(|| (make(), NEVER));
        value
    }

    pub(crate) fn remove(&mut self) {
        self.0 = None;
    }

    /// When it expires; `None` if it has no time to live or is missing.
    pub(crate) fn expires_at(&self) -> Option<i64> {
        let (_, at) = self.0.as_ref()?;
        (*at != NEVER).then_some(*at)
    }

    pub(crate) fn expire_at(&mut self, at: i64) {
        if let Some((_, expires_at)) = &mut self.0 {
            *expires_at = at;
        }
    }

    /// Removes the time to live.
    pub(crate) fn persist(&mut self) {
        self.expire_at(NEVER);
    }

    /// Extends the time to live to `end`, and returns whether it was shorter. A key that a peer
    /// left without one keeps none.
    #[inline]
    pub(crate) fn outlive(&mut self, end: i64) -> bool {
        let is_shorter = self.expires_at().is_some_and(|at| at < end);
        if is_shorter {
            self.expire_at(end);
        }
        is_shorter
    }

    /// When a key that is written expires: as this one does if that is no earlier than `needed`, or
    /// else at `extended`, so that not each call has to write it.
    #[inline]
    pub(crate) fn extended_life(&self, needed: i64, extended: i64) -> i64 {
        let at = self.expires_at().filter(|&at| at >= needed);
        at.unwrap_or(extended.max(needed))
    }

    /// When a key that is written expires: no earlier than `needed`, than a `new` one, or than this
    /// one does.
    #[inline]
    pub(crate) fn life(&self, needed: i64, new: i64) -> i64 {
        let end = needed.max(new);
        self.expires_at().map_or(end, |at| at.max(end))
    }

    #[inline]
    pub(crate) fn drop_expired(&mut self, server: i64) {
        if self.0.as_ref().is_some_and(|(_, at)| server > *at) {
            self.remove();
        }
    }
}

/// A key with a value and a time to live, for a strategy of states.
#[cfg(test)]
pub(crate) fn timed<T>(value: T, expires_at: Option<i64>) -> Timed<T> {
    Timed(Some((value, expires_at.unwrap_or(NEVER))))
}

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
        self.expire_at(at.unwrap_or(NEVER));
    }

    fn is_there(&self) -> bool {
        self.0.is_some()
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

    #[inline]
    pub(super) fn drop_expired(&mut self, client: &str, server: i64) {
        self.settings.drop_expired(server);
        self.overall.drop_expired(server);
        if let Some(pool) = self.clients.get_mut(client) {
            pool.drop_expired(server);
        }
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

    /// Removes all keys, and returns whether there was any.
    pub(crate) fn delete(&mut self, client: &str, server: i64) -> bool {
        self.drop_expired(client, server);
        let mut any = false;
        for key in self.keys(client) {
            any |= key.is_there();
            key.remove();
        }
        any
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

    fn drop_expired(&mut self, server: i64) {
        self.value.drop_expired(server);
        self.grants.drop_expired(server);
    }

    fn is_gone(&self) -> bool {
        self.value.get().is_none() && self.grants.get().is_none()
    }
}
