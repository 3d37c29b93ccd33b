//! The window as one of several limiters that decide together: reading and taking are two steps,
//! and a limiter may be created by its first request.

use super::pool::{Reconciled, Removal};
use super::set_up::SettingsChange;
use super::{At, BOUNDS, Grants, NotInitialized, Pool, SetUp, Settings, Window};
use crate::permit::CallId;

/// What a request finds when it reads a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) rate: i64,
    pub(crate) available: i64,
    pub(crate) interval: i64,
    /// Milliseconds until the request fits; 0 if it does.
    pub(crate) until_fits: i64,
    /// Milliseconds until any permit is available, if none is left after the request.
    pub(crate) until_more: i64,
    /// Milliseconds until no permit is in use: at most the interval.
    pub(crate) until_all: i64,
}

/// The expired grants whose permits a reading counts as available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Only the grants that the following step removes.
    Removed,
    All,
}

impl Window {
    /// Reads what a request for `cost` permits would find. The caller has dropped what is expired.
    pub(crate) fn read(
        &self,
        at: At,
        client: &str,
        set_up: Option<SetUp>,
        cost: i64,
        counted: Expired,
    ) -> Result<Reading, NotInitialized> {
        let stored = self.settings.get();
        let stored = stored.copied();
        let (settings, rate) = match SetUp::change(set_up, stored.as_ref())? {
            SettingsChange::None => {
                let settings = stored.ok_or(NotInitialized)?;
                (settings, settings.rate)
            }
            SettingsChange::Settings(settings) => {
                (settings, stored.map_or(settings.rate, |it| it.rate))
            }
            SettingsChange::Afresh(settings) => {
                return Ok(Reading {
                    rate: settings.rate,
                    available: settings.rate,
                    interval: settings.interval,
                    until_fits: if cost <= settings.rate {
                        0
                    } else {
                        settings.interval
                    },
                    until_more: settings.interval,
                    until_all: 0,
                });
            }
        };
        let nothing = Pool::default();
        let pool = self.pool(settings, client).unwrap_or(&nothing);
        let value = pool
            .value
            .get()
            .map(|value| (value + settings.rate - rate).min(settings.rate));
        let reconciled = match counted {
            Expired::Removed => pool.reconcile_few(&settings, value, at.now),
            Expired::All => pool.peek(&settings, value, at.now, pool.is_small()),
        };
        let Settings { rate, interval, .. } = settings;
        let until_available = |permits: i64| {
            let (permits, most) = (permits.min(rate), BOUNDS.most_walked_jointly);
            let back = reconciled
                .oldest
                .map(|_| pool.until_available(&reconciled, &settings, at.now, permits, most));
            back.unwrap_or(interval).max(1)
        };
        let fits = cost <= reconciled.available;
        let until_more = until_available(if fits { cost + 1 } else { 1 });
        Ok(Reading {
            rate,
            available: reconciled.available,
            interval,
            until_fits: match cost {
                _ if fits => 0,
                2.. => until_available(cost),
                _ => until_more,
            },
            until_more,
            until_all: reconciled
                .oldest
                .and(pool.grants().newest())
                .map_or(0, |newest| (interval - at.now + newest).clamp(0, interval)),
        })
    }

    /// If many grants have expired, removes a few of them whatever is decided, and as many as the
    /// requests need, but at most `most`, and subtracts as many from `most`. Returns whether this
    /// must be repeated before requests for `wanted` permits are decided.
    pub(crate) fn prepare(
        &mut self,
        at: At,
        client: &str,
        set_up: Option<SetUp>,
        wanted: i64,
        most: &mut usize,
    ) -> Result<bool, NotInitialized> {
        self.drop_expired(client, at.server);
        let change = SetUp::change(set_up, self.settings.get())?;
        let settings = match change {
            SettingsChange::None => *self.settings.get().ok_or(NotInitialized)?,
            SettingsChange::Settings(settings) => settings,
            SettingsChange::Afresh(_) => return Ok(false),
        };
        let pool = self.pool(settings, client);
        if !pool.is_some_and(|pool| pool.are_many_expired(at.now - settings.interval)) {
            return Ok(false);
        }
        self.apply(&change, at, client);
        let mut open = self.open(client, at.server)?;
        let wanted = wanted.min(settings.rate);
        let reconciled = open.reconcile(at.now, false, Removal::jointly(wanted, *most));
        open.remove_expired(&reconciled, set_up, at.server);
        *most -= reconciled.gone;
        Ok(reconciled.is_unfinished(wanted))
    }

    /// Takes permits that `read` found, and adds them to the grant of the same call. With 0
    /// permits, only applies the settings and renews the times to live, as a denial does.
    pub(crate) fn take(
        &mut self,
        at: At,
        client: &str,
        set_up: Option<SetUp>,
        call_id: &CallId,
        permits: i64,
    ) {
        self.take_by(at, client, set_up, permits, |grants, _| {
            grants.add_to(at.now, call_id, permits as u32);
        });
    }

    /// Takes permits that were granted elsewhere, even if fewer are left. They may be used until
    /// `ahead` ms from now. The permits of one part of the interval become one grant, with the
    /// score of the last of them.
    pub(crate) fn count(&mut self, at: At, client: &str, set_up: SetUp, permits: u32, ahead: i64) {
        const PARTS: i64 = 32;
        const COUNTED: CallId = [0; 16];
        let set_up = Some(set_up);
        let mut most = BOUNDS.most_read;
        if self.prepare(at, client, set_up, 0, &mut most).is_err() {
            return;
        }
        self.take_by(
            at,
            client,
            set_up,
            i64::from(permits),
            |grants, settings| {
                let part = (settings.interval / PARTS).max(1);
                let score = at.now + ahead;
                let begins = score - score.rem_euclid(part);
                grants.add_to_newest(score, begins, &COUNTED, permits);
            },
        );
    }

    fn take_by(
        &mut self,
        at: At,
        client: &str,
        set_up: Option<SetUp>,
        permits: i64,
        add: impl FnOnce(&mut Grants, &Settings),
    ) {
        let Ok(change) = SetUp::change(set_up, self.settings.get()) else {
            return;
        };
        self.apply(&change, at, client);
        let Ok(mut open) = self.open(client, at.server) else {
            return;
        };
        let value = open.pool.value.get().copied();
        let reconciled = open.pool.reconcile_few(&open.settings, value, at.now);
        let settings = open.settings;
        open.write_with(&reconciled, permits, |grants| add(grants, &settings));
        open.renew_for(set_up, at.server);
    }

    /// Applies the settings of a request that takes nothing, so that the limiter lives as long as
    /// they need.
    pub(crate) fn keep(&mut self, at: At, client: &str, set_up: Option<SetUp>) {
        let change = SetUp::change(set_up, self.settings.get());
        if matches!(change, Ok(SettingsChange::Settings(_))) {
            self.take(at, client, set_up, &CallId::default(), 0);
        }
    }

    /// Gives the limiter its new settings.
    pub(super) fn apply(&mut self, change: &SettingsChange, at: At, client: &str) {
        match *change {
            SettingsChange::None => {}
            SettingsChange::Settings(settings) => {
                let rate_before = self.settings.get().map(|settings| settings.rate);
                self.store(at, settings);
                let rate = rate_before.unwrap_or(settings.rate);
                if let Ok(open) = self.open(client, at.server)
                    && let Some(value) = open.pool.value.get()
                {
                    let value = (value + settings.rate - rate).min(settings.rate);
                    open.pool.value.set(value);
                }
            }
            SettingsChange::Afresh(settings) => {
                self.store(at, settings);
                self.overall = Pool::default();
                self.clients.remove(client);
            }
        }
    }
}

impl Pool {
    /// Reconciles for a joint decision, which removes expired grants itself if they are few.
    fn reconcile_few(&self, settings: &Settings, value: Option<i64>, now: i64) -> Reconciled {
        let removal = if self.are_many_expired(now - settings.interval) {
            Removal::NONE
        } else {
            Removal::ALWAYS_JOINTLY
        };
        self.reconcile(settings, value, now, self.is_small(), removal)
    }
}
