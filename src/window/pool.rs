//! The permits left and the grants, and what is available at a time.

use super::{BOUNDS, Grants, Settings, Timed};

/// The permits left, as of the last call, and the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) value: Timed<i64>,
    pub(crate) grants: Timed<Grants>,
}

/// Which expired grants a step may remove.
#[derive(Debug, Clone, Copy)]
pub(super) struct Removal {
    /// Removes grants until this many permits are available.
    pub(super) wanted: i64,
    /// Removes this many grants in any case.
    pub(super) always: usize,
    /// Removes at most this many grants.
    pub(super) most: usize,
}

impl Removal {
    pub(super) const NONE: Self = Self {
        wanted: 0,
        always: 0,
        most: 0,
    };
    /// The few that any step removes.
    pub(super) const ALWAYS: Self = Self::until(0);
    /// The few that a joint decision removes of each of its limiters.
    pub(super) const ALWAYS_JOINTLY: Self = Self::jointly(0, BOUNDS.always_removed_jointly);

    pub(super) const fn until(wanted: i64) -> Self {
        Self {
            wanted,
            always: BOUNDS.always_removed,
            most: BOUNDS.most_read,
        }
    }

    pub(super) const fn jointly(wanted: i64, most: usize) -> Self {
        Self {
            wanted,
            always: BOUNDS.always_removed_jointly,
            most,
        }
    }
}

/// The result of [`Pool::reconcile`].
pub(super) struct Reconciled {
    /// How many of the oldest grants the step must remove.
    pub(super) gone: usize,
    /// How many grants have expired beside these.
    pub(super) rest: usize,
    /// The permits available once these grants are removed; below zero if more than the rate is in
    /// use.
    pub(super) available: i64,
    /// The score of the oldest live grant with permits.
    pub(super) oldest: Option<i64>,
    /// Whether all grants have expired.
    pub(super) all_expired: bool,
    /// The permits of the remaining grants less `excess`; `None` if they were not summed.
    pub(super) used: Option<i64>,
    /// The permits of the remaining grants that a peer's release has given back.
    pub(super) excess: i64,
    /// How many grants were summed.
    pub(super) counted: u64,
    /// Whether the grants should have been summed, but are too many.
    pub(super) audit_due: bool,
}

impl Reconciled {
    /// Adds permits that came back out of live grants. If a peer's release has given them back too,
    /// the grants may hold fewer than that.
    pub(super) fn credit(&mut self, permits: i64, rate: i64) {
        match &mut self.used {
            Some(used) => {
                *used = (*used - permits).max(0);
                self.available = rate - *used;
            }
            None => self.available = (self.available + permits).min(rate),
        }
    }

    /// Whether the step must be repeated, because expired grants remain whose permits it needs.
    #[inline]
    pub(super) fn is_unfinished(&self, wanted: i64) -> bool {
        self.rest > 0 && self.available < wanted
    }
}

impl Pool {
    #[inline]
    pub(crate) fn grants(&self) -> &Grants {
        static NONE: Grants = Grants::new();
        self.grants.get().unwrap_or(&NONE)
    }

    /// Whether there are so few grants that any call may sum them.
    pub(super) fn is_small(&self) -> bool {
        self.grants().len() <= BOUNDS.always_summed
    }

    /// Whether more grants have expired than any joint decision removes, and others have not.
    pub(super) fn are_many_expired(&self, horizon: i64) -> bool {
        let expired = self.grants().count_up_to(horizon);
        expired > BOUNDS.always_removed_jointly && expired < self.grants().len()
    }

    /// What is available at `now` once expired grants are removed, by the stored permits left,
    /// which are `value`. Without it, or if `check`, by the sum of the other grants. Only reads.
    #[inline]
    pub(super) fn reconcile(
        &self,
        settings: &Settings,
        value: Option<i64>,
        now: i64,
        check: bool,
        removal: Removal,
    ) -> Reconciled {
        let mut reconciled = self.unused(settings, now);
        if reconciled.all_expired {
            return reconciled;
        }
        let (grants, expired) = (self.grants(), reconciled.gone);
        let gone = expired.min(removal.always).min(removal.most);
        let mut available = value.unwrap_or(0) + grants.permits_of_first(gone);
        reconciled.gone = gone;
        if gone < expired && available < removal.wanted {
            reconciled.gone = expired.min(removal.most);
            available += grants.permits_between(gone, reconciled.gone);
        }
        reconciled.rest = expired - reconciled.gone;
        self.settle(settings, value, available, check, reconciled)
    }

    /// What is available at `now` with the permits of all expired grants, for a step that removes
    /// none.
    pub(super) fn peek(
        &self,
        settings: &Settings,
        value: Option<i64>,
        now: i64,
        check: bool,
    ) -> Reconciled {
        let reconciled = self.unused(settings, now);
        if reconciled.all_expired {
            return reconciled;
        }
        let (grants, expired) = (self.grants(), reconciled.gone);
        let available =
            if expired > BOUNDS.most_read && grants.len() - expired <= BOUNDS.most_summed {
                // As in the script, few live grants are summed rather than many expired ones.
                settings.rate - grants.permits_after(expired)
            } else {
                value.unwrap_or(0) + grants.permits_of_first(expired)
            };
        self.settle(settings, value, available, check, reconciled)
    }

    /// What is available if nothing is in use, and which grants have expired.
    #[inline]
    fn unused(&self, settings: &Settings, now: i64) -> Reconciled {
        let grants = self.grants();
        let expired = grants.count_up_to(now - settings.interval);
        Reconciled {
            gone: expired,
            rest: 0,
            available: settings.rate,
            oldest: grants.oldest(expired),
            all_expired: expired == grants.len(),
            used: None,
            excess: 0,
            counted: 0,
            audit_due: false,
        }
    }

    /// Milliseconds until `permits`, which are at most the rate, are available if nobody takes any.
    /// If more than `most` live grants must expire for that, until all have.
    pub(super) fn until_available(
        &self,
        reconciled: &Reconciled,
        settings: &Settings,
        now: i64,
        permits: i64,
        most: usize,
    ) -> i64 {
        let missing = permits - reconciled.available + reconciled.excess;
        let grants = self.grants();
        grants.until_back(reconciled.gone, missing, now - settings.interval, most)
    }

    /// Sums the remaining grants if the invariant may not hold. `available` is what the permits
    /// left and the removed grants say.
    #[inline]
    fn settle(
        &self,
        settings: &Settings,
        value: Option<i64>,
        available: i64,
        check: bool,
        mut reconciled: Reconciled,
    ) -> Reconciled {
        let (rate, grants) = (settings.rate, self.grants());
        reconciled.available = available.min(rate);
        let others = grants.len() - reconciled.gone;
        let (number, room) = (others as i64, rate - available);
        let is_few = others <= BOUNDS.always_summed;
        let must_sum = value.is_none()
            || check
            || (reconciled.gone > 0 && (number > room || (is_few && number != room)));
        if must_sum && others > BOUNDS.most_summed {
            reconciled.audit_due = true;
        } else if must_sum {
            let used = grants.permits_after(reconciled.gone);
            if let Some(value) = value {
                // A value that leaves less room than these grants need was raised by a peer's
                // release. A peer that lowers the rate below what is in use writes 0, so only what
                // is above 0 can be a release.
                let left = value.min(rate);
                let most = if left < 0 { used } else { left };
                reconciled.excess = (used + left - rate).clamp(0, most);
            }
            let used = used - reconciled.excess;
            reconciled.used = Some(used);
            // Below zero if the rate was lowered below what is in use.
            reconciled.available = rate - used;
            reconciled.counted = others as u64;
        }
        reconciled
    }

    /// Changes the grants. As in Redis, a set without members is removed with its time to live.
    #[inline]
    pub(super) fn change_grants<T>(&mut self, change: impl FnOnce(&mut Grants) -> T) -> T {
        let grants = self.grants.get_or_set(Grants::new);
        let answer = change(grants);
        if grants.is_empty() {
            self.grants.remove();
        }
        answer
    }

    pub(super) fn expire_at(&mut self, at: i64) {
        self.value.expire_at(at);
        self.grants.expire_at(at);
    }

    pub(super) fn drop_expired(&mut self, server: i64) {
        self.value.drop_expired(server);
        self.grants.drop_expired(server);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.value.get().is_none() && self.grants.get().is_none()
    }
}
