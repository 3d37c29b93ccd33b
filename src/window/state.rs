//! What the keys of one limiter hold, and the steps of any call over them.

use std::collections::BTreeMap;

use super::pool::{Reconciled, Removal};
use super::{At, BOUNDS, Grants, NotInitialized, Pool, SetUp, Settings, Timed};
use crate::grant::Grant;
use crate::permit::CallId;
use crate::rate::RateType;

/// What remains of a lease at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settlement {
    /// How many of its permits were used.
    pub(crate) used: u32,
    /// How many ms before the score of its grant the last of them was used, by the clock of the
    /// process that used it.
    pub(crate) early: i64,
}

/// What the keys of one limiter hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) settings: Timed<Settings>,
    pub(crate) overall: Pool,
    /// A pool for each client of this store.
    pub(crate) clients: BTreeMap<String, Pool>,
}

/// The settings and the pool of their type.
pub(super) struct Open<'a> {
    pub(super) settings: Settings,
    pub(super) hash: &'a mut Timed<Settings>,
    pub(super) pool: &'a mut Pool,
}

impl Window {
    #[inline]
    pub(super) fn open(&mut self, client: &str, server: i64) -> Result<Open<'_>, NotInitialized> {
        self.drop_expired(client, server);
        let settings = *self.settings.get().ok_or(NotInitialized)?;
        let pool = match settings.rate_type {
            RateType::Overall => &mut self.overall,
            RateType::PerClient => self.clients.entry(client.to_owned()).or_default(),
        };
        Ok(Open {
            settings,
            hash: &mut self.settings,
            pool,
        })
    }

    /// The pool of the type of these settings; `None` if this client has none.
    pub(super) fn pool(&self, settings: Settings, client: &str) -> Option<&Pool> {
        match settings.rate_type {
            RateType::Overall => Some(&self.overall),
            RateType::PerClient => self.clients.get(client),
        }
    }

    #[inline]
    pub(super) fn drop_expired(&mut self, client: &str, server: i64) {
        self.settings.drop_expired(server);
        self.overall.drop_expired(server);
        if let Some(pool) = self.clients.get_mut(client) {
            pool.drop_expired(server);
        }
    }

    /// Gives permits back without naming their grant: they come out of the oldest live grants.
    pub(crate) fn release(
        &mut self,
        at: At,
        client: &str,
        permits: u32,
        audited_rate: Option<i64>,
    ) -> Result<i64, NotInitialized> {
        let mut rest = i64::from(permits);
        let mut open = self.open(client, at.server)?;
        let Settings { rate, interval, .. } = open.settings;
        loop {
            let mut reconciled =
                open.reconcile(at.now, audited_rate != Some(rate), Removal::ALWAYS);
            let (found, has_more) = open.pool.change_grants(|grants| {
                grants.take_from_oldest(reconciled.gone, reconciled.excess);
                let expired = grants.count_up_to(at.now - interval);
                grants.take_from_oldest(expired, rest)
            });
            reconciled.credit(found, rate);
            open.pool.value.remove(); // it is written anew in any case, as in Redisson
            open.write(&reconciled, 0);
            open.renew(at.server);
            rest -= found;
            if rest == 0 || !has_more {
                return Ok(reconciled.available);
            }
        }
    }

    /// Takes all permits for `millis` ms, or until the limiter expires, by a grant of 2^32-1
    /// permits that expires then. Does nothing and returns `false` if the rate is larger than that.
    pub(crate) fn hold(
        &mut self,
        at: At,
        client: &str,
        millis: i64,
        call_id: &CallId,
        audited_rate: Option<i64>,
    ) -> Result<bool, NotInitialized> {
        let mut open = self.open(client, at.server)?;
        let Settings { rate, interval, .. } = open.settings;
        if rate > i64::from(u32::MAX) {
            return Ok(false);
        }
        let reconciled = open.reconcile(at.now, audited_rate != Some(rate), Removal::ALWAYS);
        let millis = open.life(at).map_or(millis, |life| millis.min(life));
        open.write_with(&reconciled, i64::from(u32::MAX), |grants| {
            let (score, ahead) = (at.now + millis - interval, (millis - interval).max(0));
            grants.add_ahead(score, call_id, ahead, u32::MAX);
        });
        open.renew(at.server);
        Ok(true)
    }

    /// Gives back permits of one grant, and returns how many came back: 0 if the grant has expired.
    pub(crate) fn refund(
        &mut self,
        at: At,
        client: &str,
        grant: &Grant,
        audited_rate: Option<i64>,
    ) -> Result<u32, NotInitialized> {
        let mut open = self.open(client, at.server)?;
        let grants = open.pool.grants();
        let mut place = grants.place_of(grant.score, &grant.call_id);
        if grant.span > 0 {
            let settled = grant.score - grant.span..=grant.score + 2;
            place = place.or_else(|| grants.place_of_lease(settled, &grant.call_id));
        }
        Ok(place.map_or(0, |place| {
            open.take_out(at, place, audited_rate, |grants, horizon| {
                grants.take_out((place, &grant.call_id), horizon, grant.permits)
            })
        }))
    }

    /// Settles a lease: gives back its unused permits, and returns how many came back. The used
    /// ones count from their last use, if no permits were taken out of a grant later than the fence
    /// of the lease. Otherwise they count from the score of the lease, since a client that named no
    /// grant may have released them. A settled lease never has the score with which it was made.
    pub(crate) fn settle(
        &mut self,
        at: At,
        client: &str,
        lease: &Grant,
        settlement: Settlement,
        audited_rate: Option<i64>,
    ) -> Result<u32, NotInitialized> {
        let Settlement { used, early } = settlement;
        let mut open = self.open(client, at.server)?;
        let unsettled = lease.score..=lease.score;
        let place = open.pool.grants().place_of_lease(unsettled, &lease.call_id);
        Ok(place.map_or(0, |place| {
            open.take_out(at, place, audited_rate, |grants, horizon| {
                let held = grants.permits_at(place);
                // Permits that the grant no longer holds came back before. They may be among the
                // used ones: the client does not know that they came back.
                let lost = lease.permits.saturating_sub(held);
                let left = used.saturating_sub(lost).min(held);
                // A later fence belongs to a copy of the call, which was granted too.
                let is_its = |fence: &i64| *fence <= lease.score - lease.span && early > 0;
                let score = |fence: Option<i64>| match fence.filter(is_its) {
                    Some(fence) => fence.max(lease.score - early),
                    None => lease.score + 2, // the script can write this difference in the member
                };
                grants.settle((place, lease), horizon, left, score);
                held - left
            })
        }))
    }

    /// Deletes the permits in use, for a rate per client those of this client, and returns whether
    /// there were keys with them.
    pub(crate) fn reset(&mut self, at: At, client: &str) -> Result<bool, NotInitialized> {
        let pool = std::mem::take(self.open(client, at.server)?.pool);
        Ok(pool.value.get().is_some() || pool.grants.get().is_some())
    }

    /// How many permits an acquire would find; 0 if more than the rate is in use.
    pub(crate) fn available_permits(
        &mut self,
        at: At,
        client: &str,
    ) -> Result<i64, NotInitialized> {
        let Open { settings, pool, .. } = self.open(client, at.server)?;
        let (value, is_summed) = (
            pool.value.get().copied(),
            pool.grants().len() <= BOUNDS.most_summed,
        );
        let found = pool.peek(&settings, value, at.now, is_summed);
        Ok(found.available.max(0))
    }
}

impl Open<'_> {
    /// The ms until the limiter expires if it has no more requests; `None` if it does not expire.
    #[inline]
    pub(super) fn life(&self, at: At) -> Option<i64> {
        match self.settings.keep_alive {
            0 => self
                .hash
                .expires_at()
                .map(|expires_at| expires_at - at.server),
            keep_alive => Some(keep_alive),
        }
    }

    /// What is available at `now`, once the expired grants are back. Only reads.
    #[inline]
    pub(super) fn reconcile(&self, now: i64, check: bool, removal: Removal) -> Reconciled {
        let value = self.pool.value.get().copied();
        self.pool
            .reconcile(&self.settings, value, now, check, removal)
    }

    /// Gives back the permits that `take` takes out of the grant at this index, and returns how
    /// many came back: 0 if the grant has expired.
    pub(super) fn take_out(
        &mut self,
        at: At,
        place: usize,
        audited_rate: Option<i64>,
        take: impl FnOnce(&mut Grants, i64) -> u32,
    ) -> u32 {
        let Settings { rate, interval, .. } = self.settings;
        let score = self.pool.grants().score_at(place);
        if score.is_none_or(|score| score <= at.now - interval) {
            return 0;
        }
        let mut reconciled = self.reconcile(at.now, audited_rate != Some(rate), Removal::ALWAYS);
        let back = self.pool.change_grants(|grants| {
            // The grant first: a peer's release is corrected with the remaining grants.
            let back = take(grants, at.now - interval);
            grants.take_from_oldest(reconciled.gone, reconciled.excess);
            back
        });
        reconciled.credit(i64::from(back), rate);
        self.write(&reconciled, 0);
        self.renew(at.server);
        back
    }

    /// Writes what `reconcile` found, and takes no permits.
    pub(super) fn remove_expired(
        &mut self,
        reconciled: &Reconciled,
        set_up: Option<SetUp>,
        server: i64,
    ) {
        self.write_with(reconciled, 0, |_| {});
        self.renew_for(set_up, server);
    }

    /// Writes what `reconcile` found, and adds a grant if permits are taken.
    #[inline]
    pub(super) fn write_with(
        &mut self,
        reconciled: &Reconciled,
        taken: i64,
        add: impl FnOnce(&mut Grants),
    ) {
        if reconciled.excess > 0 {
            // Before a grant is added: if all grants go, their time to live goes too.
            self.pool.change_grants(|grants| {
                grants.take_from_oldest(reconciled.gone, reconciled.excess)
            });
        }
        if taken > 0 {
            self.pool.change_grants(add);
        }
        self.write(reconciled, taken);
    }

    #[inline]
    pub(super) fn write(&mut self, reconciled: &Reconciled, taken: i64) {
        match self.pool.value.get_mut() {
            // DECRBY keeps a time to live, SET drops it.
            Some(value) if *value == reconciled.available => *value -= taken,
            _ => self.pool.value.set(reconciled.available - taken),
        }
        if reconciled.gone > 0 {
            self.pool
                .change_grants(|grants| grants.drop_first(reconciled.gone));
            if reconciled.all_expired {
                // In Redis the key is removed with its time to live before the new grant is added.
                self.pool.grants.persist();
            }
        }
    }

    /// Renews the times to live for a call that may bring settings. If these replace the limiter's
    /// and have no keep alive, the hash lives for at least their interval.
    #[inline]
    pub(super) fn renew_for(&mut self, set_up: Option<SetUp>, server: i64) {
        if set_up.and_then(SetUp::replacing).is_some() && self.settings.keep_alive == 0 {
            self.hash.outlive(server + self.settings.interval);
        }
        self.renew(server);
    }

    /// Renews the keep alive of all keys. Without a keep alive, gives the other keys the time to
    /// live of the hash, or one more millisecond in its last one: none may stay for ever.
    #[inline]
    pub(super) fn renew(&mut self, server: i64) {
        let Self {
            settings,
            hash,
            pool,
        } = self;
        if settings.keep_alive > 0 {
            let at = server + settings.keep_alive;
            hash.expire_at(at);
            pool.expire_at(at);
        } else if let Some(at) = hash.expires_at() {
            pool.expire_at(at.max(server + 1));
        }
    }
}
