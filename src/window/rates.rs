//! Setting, changing and reading the rate.

use super::{At, BOUNDS, Pool, Settings, Window};
use crate::rate::RateType;

impl Window {
    /// The settings, if the limiter exists.
    pub(crate) fn config(&mut self, server: i64) -> Option<Settings> {
        self.settings.drop_expired(server);
        self.settings.get().copied()
    }

    /// Sets the rate of a limiter that has none, and returns whether it did.
    pub(crate) fn try_set_rate(&mut self, at: At, client: &str, settings: Settings) -> bool {
        self.drop_expired(client, at.server);
        if self.settings.get().is_some() {
            return false;
        }
        self.overall = Pool::default();
        self.clients.remove(client);
        self.store(at, settings);
        true
    }

    /// Sets the rate, whatever it was, and resets the pool of its type.
    pub(crate) fn set_rate(&mut self, at: At, client: &str, settings: Settings) {
        self.drop_expired(client, at.server);
        self.store(at, settings);
        self.clear_pool(settings.rate_type, client);
    }

    /// Changes the rate, and keeps what is in use if `keep_state`. If the limiter is missing,
    /// creates it, or does nothing with `only_existing`. Returns whether the rate was set.
    pub(crate) fn update_rate(
        &mut self,
        at: At,
        client: &str,
        settings: Settings,
        keep_state: bool,
        only_existing: bool,
    ) -> bool {
        self.drop_expired(client, at.server);
        let before = self.settings.get().copied();
        let type_before = before.map(|settings| settings.rate_type);
        if only_existing && type_before.is_none() {
            return false;
        }
        self.store(at, settings);
        if type_before.is_some_and(|before| before != settings.rate_type) {
            self.overall = Pool::default();
            self.clients.remove(client);
        } else if keep_state {
            if let Ok(open) = self.open(client, at.server) {
                let expired = open.pool.grants().count_up_to(at.now - settings.interval);
                let number = open.pool.grants().len();
                let left = if number <= BOUNDS.most_summed || expired == number {
                    open.pool.change_grants(|grants| grants.drop_first(expired));
                    settings.rate - open.pool.grants().permits_after(0)
                } else {
                    // If the permits left are lost, they count as none.
                    let rate_before = before.map_or(settings.rate, |settings| settings.rate);
                    let left = open.pool.value.get().unwrap_or(&0) + settings.rate - rate_before;
                    left.min(settings.rate)
                };
                open.pool.value.set(left);
            }
        } else {
            self.clear_pool(settings.rate_type, client);
        }
        if let Ok(mut open) = self.open(client, at.server) {
            open.renew(at.server);
        }
        true
    }

    /// Writes the hash; its time to live changes only if there is a keep alive.
    pub(super) fn store(&mut self, at: At, settings: Settings) {
        match self.settings.get_mut() {
            Some(stored) => *stored = settings,
            None => self.settings.set(settings),
        }
        if settings.keep_alive > 0 {
            self.settings.expire_at(at.server + settings.keep_alive);
        }
    }

    /// Sets the permits left of each client to what this rate for each client leaves.
    pub(crate) fn state_client_rate(&mut self, rate: i64) {
        for pool in self.clients.values_mut() {
            let left = rate - pool.grants().permits_after(0);
            if let Some(value) = pool.value.get_mut() {
                *value = left;
            }
        }
    }

    fn clear_pool(&mut self, rate_type: RateType, client: &str) {
        match rate_type {
            RateType::Overall => self.overall = Pool::default(),
            RateType::PerClient => {
                self.clients.remove(client);
            }
        }
    }
}
