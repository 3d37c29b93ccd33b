//! The window as one of several limiters that decide together: looking and taking are two steps, and a limiter may be
//! set up by its first request.

use super::{At, NotInitialized, Pool, Settings, Window};
use crate::permit::Random;
use crate::rate::RateType;

/// The settings that a limiter must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetUp {
    pub(crate) settings: Settings,
    /// Whether a limiter that is there must have this keep alive too.
    pub(crate) keep_alive_counts: bool,
}

/// What a request finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) rate: i64,
    pub(crate) balance: i64,
    /// Milliseconds until the first of the live grants are back; the interval where there is none.
    pub(crate) reset: i64,
}

/// What has to be done to the limiter before it is asked.
pub(super) enum Change {
    None,
    /// It gets these settings and keeps what is in use.
    Settings(Settings),
    /// It gets these settings, and nothing is in use.
    Afresh(Settings),
}

impl SetUp {
    pub(super) fn change(
        set_up: Option<Self>,
        stored: Option<&Settings>,
    ) -> Result<Change, NotInitialized> {
        let Some(Self {
            mut settings,
            keep_alive_counts,
        }) = set_up
        else {
            return stored.map(|_| Change::None).ok_or(NotInitialized);
        };
        let Some(stored) = stored.filter(|stored| stored.rate_type == settings.rate_type) else {
            return Ok(Change::Afresh(settings));
        };
        if !keep_alive_counts {
            settings.keep_alive = stored.keep_alive;
        }
        Ok(if *stored == settings {
            Change::None
        } else {
            Change::Settings(settings)
        })
    }
}

impl Window {
    /// What a request would find. The caller has dropped what is expired.
    pub(crate) fn look(
        &self,
        at: At,
        client: &str,
        set_up: Option<SetUp>,
    ) -> Result<Found, NotInitialized> {
        let stored = self.settings.get();
        let (settings, value_counts) = match SetUp::change(set_up, stored)? {
            Change::None => (*stored.ok_or(NotInitialized)?, true),
            Change::Settings(settings) => (settings, false),
            Change::Afresh(settings) => {
                return Ok(Found {
                    rate: settings.rate,
                    balance: settings.rate,
                    reset: settings.interval,
                });
            }
        };
        let nothing = Pool::default();
        let pool = match settings.rate_type {
            RateType::Overall => &self.overall,
            RateType::PerClient => self.clients.get(client).unwrap_or(&nothing),
        };
        let value = pool.value.get().copied().filter(|_| value_counts);
        let settled = pool.settle(&settings, value, at.now, pool.is_small());
        let interval = settings.interval;
        Ok(Found {
            rate: settings.rate,
            balance: settled.balance,
            reset: settled
                .oldest
                .map_or(interval, |oldest| interval - at.now + oldest),
        })
    }

    /// Takes what a look found, adding to the grant of the same call; with 0 permits only what a denial leaves behind.
    pub(crate) fn take(
        &mut self,
        at: At,
        client: &str,
        set_up: Option<SetUp>,
        random: &Random,
        permits: i64,
    ) {
        let Ok(change) = SetUp::change(set_up, self.settings.get()) else {
            return;
        };
        self.apply(&change, at, client);
        let Ok(mut open) = self.open(client, at.server) else {
            return;
        };
        let settled = open.settle(at.now, open.pool.is_small());
        // One after the other: where all grants go, so does their time to live.
        open.pool
            .change_grants(|grants| grants.take_from_oldest(settled.over, settled.excess));
        if permits > 0 {
            open.pool
                .change_grants(|grants| grants.add_to(at.now, random, permits as u32));
        }
        open.write(&settled, permits);
        open.renew(at.server);
    }

    /// Gives the limiter the settings that it must have.
    pub(super) fn apply(&mut self, change: &Change, at: At, client: &str) {
        match *change {
            Change::None => {}
            Change::Settings(settings) => {
                self.store(at, settings);
                if let Ok(open) = self.open(client, at.server) {
                    open.pool.value.remove(); // the new rate leaves what it has beyond the live grants
                }
            }
            Change::Afresh(settings) => {
                self.store(at, settings);
                self.overall = Pool::default();
                self.clients.remove(client);
            }
        }
    }
}
