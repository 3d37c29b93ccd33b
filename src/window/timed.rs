//! Times to live, as in Redis: one per key, and a key that is written anew loses its own.
//!
//! A key lives as long as what it holds counts under the settings of its callers. These may differ,
//! such as while a service is deployed. So a call never shortens a time to live, which another
//! caller's settings may need; and it extends one that is too short for its own settings, whatever
//! it decides. [`Timed::outlive`] and [`Timed::life`] are this rule, as `lua/shared/life.lua` is in
//! the scripts.

/// The value of a key, and when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timed<T>(Option<(T, i64)>);

/// When a key without a time to live expires: later than any time in use.
pub(super) const NEVER: i64 = i64::MAX;

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

    /// When it expires: [`NEVER`] without a time to live; `None` if it is missing.
    pub(super) fn end_mut(&mut self) -> Option<&mut i64> {
        self.0.as_mut().map(|(_, at)| at)
    }

    /// Removes the time to live.
    pub(crate) fn persist(&mut self) {
        self.expire_at(NEVER);
    }

    /// Extends the time to live to `end`, and returns whether it was shorter. A key that a peer has
    /// left without a time to live gets none.
    #[inline]
    pub(crate) fn outlive(&mut self, end: i64) -> bool {
        let is_shorter = self.expires_at().is_some_and(|at| at < end);
        if is_shorter {
            self.expire_at(end);
        }
        is_shorter
    }

    /// When a key that is written now must expire: when it does already, if that is no earlier than
    /// `needed`, and otherwise at `extended`, so that few calls have to extend it.
    #[inline]
    pub(crate) fn extended_life(&self, needed: i64, extended: i64) -> i64 {
        let at = self.expires_at().filter(|&at| at >= needed);
        at.unwrap_or(extended.max(needed))
    }

    /// When a key that is written now must expire: no earlier than `needed`, than `new`, and than
    /// it does already.
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
