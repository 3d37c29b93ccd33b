//! The window as one of several limiters that decide together: reading and taking are two steps,
//! and a limiter may be created by its first request.

use std::time::Duration;

use super::{At, BOUNDS, Grants, NotInitialized, Pool, Reconciled, Removal, Settings, Window};
use crate::permit::CallId;
use crate::rate::{RateType, ValidRate};

/// The settings that a missing limiter gets with a request, and what becomes of those that an
/// existing one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetUp {
    pub(crate) settings: Settings,
    pub(crate) existing: Existing,
}

/// What a request does with the settings that a limiter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It leaves them: somebody else may have set the rate.
    Left,
    /// It replaces them. A longer keep alive stays, and none becomes shorter than the interval:
    /// what the keys hold may count longer for another client. This holds for a limiter of the
    /// other type too, which is reset: clients with a longer interval may come back. A limiter
    /// without a keep alive gets none.
    Replaced,
    /// It replaces them, and a limiter without a keep alive gets one, or one with a keep alive
    /// loses it. It is then no shorter than the interval before.
    ReplacedWithKeepAlive,
}

#[cfg(test)]
pub(crate) fn any_existing() -> impl proptest::strategy::Strategy<Value = Existing> {
    proptest::sample::select(vec![
        Existing::Left,
        Existing::Replaced,
        Existing::ReplacedWithKeepAlive,
    ])
}

#[cfg(feature = "redis")]
impl Existing {
    /// As the scripts have it.
    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Replaced => 0,
            Self::ReplacedWithKeepAlive => 1,
            Self::Left => 2,
        }
    }
}

/// What a request finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
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

/// Which expired grants a reading counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Those that the step after it removes.
    Removed,
    All,
}

/// How the limiter must change before a request.
pub(super) enum SettingsChange {
    None,
    /// It gets these settings and keeps what is in use.
    Settings(Settings),
    /// It gets these settings, and nothing is in use.
    Afresh(Settings),
}

impl SetUp {
    /// The rate of a limiter that others may share: one that exists keeps its own.
    pub(crate) fn where_missing(rate: ValidRate) -> Self {
        Self {
            settings: rate.into(),
            existing: Existing::Left,
        }
    }

    /// The rate of a limiter that has it from its next request on, and expires: without a keep
    /// alive of its own, an interval after its last request.
    pub(crate) fn expiring(rate: ValidRate) -> Self {
        let mut settings = Settings::from(rate);
        let existing = match settings.keep_alive {
            0 => {
                settings.keep_alive = settings.interval;
                Existing::Replaced
            }
            _ => Existing::ReplacedWithKeepAlive,
        };
        Self { settings, existing }
    }

    /// The same, where permits are leased for up to this time: a limiter that expires then lives as
    /// long as a lease counts.
    pub(crate) fn with_room_for(mut self, lease: Duration) -> Self {
        if self.existing == Existing::Replaced {
            let interval = self.settings.interval;
            let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
            self.settings.keep_alive = interval + lease.min(interval / 2);
        }
        self
    }

    /// This, if it replaces what an existing limiter has.
    pub(crate) fn replacing(self) -> Option<Self> {
        (self.existing != Existing::Left).then_some(self)
    }

    /// That of a call for several requests, which have these: the last one that replaces what a
    /// limiter has, or else the last.
    pub(crate) fn of_all(set_ups: impl Iterator<Item = Self>) -> Option<Self> {
        set_ups.max_by_key(|it| it.existing != Existing::Left)
    }

    /// The settings of a limiter that has others, and keeps them.
    #[inline]
    pub(crate) fn leaves(self, stored: Settings) -> Option<Settings> {
        (self.existing == Existing::Left && stored != self.settings).then_some(stored)
    }

    /// Whether a request with these settings may have what was taken with the others: only a keep
    /// alive that it requires makes a difference.
    pub(crate) fn may_have_what_was_taken_with(&self, others: &Self) -> bool {
        let alike = Settings {
            keep_alive: others.settings.keep_alive,
            ..self.settings
        };
        self == others || self.existing == Existing::Replaced && alike == others.settings
    }

    pub(super) fn change(
        set_up: Option<Self>,
        stored: Option<&Settings>,
    ) -> Result<SettingsChange, NotInitialized> {
        let Some(Self {
            mut settings,
            existing,
        }) = set_up
        else {
            return stored.map(|_| SettingsChange::None).ok_or(NotInitialized);
        };
        let Some(stored) = stored else {
            return Ok(SettingsChange::Afresh(settings));
        };
        if existing == Existing::Left {
            return Ok(SettingsChange::None);
        }
        let keep_alive_counts = existing == Existing::ReplacedWithKeepAlive;
        settings.keep_alive = match (settings.keep_alive, stored.keep_alive) {
            (0, _) if keep_alive_counts => 0,
            (_, 0) if !keep_alive_counts => 0,
            (required, 0) => required.max(stored.interval).max(settings.interval),
            (required, before) => required.max(before).max(settings.interval),
        };
        Ok(if stored.rate_type != settings.rate_type {
            SettingsChange::Afresh(settings)
        } else if *stored == settings {
            SettingsChange::None
        } else {
            SettingsChange::Settings(settings)
        })
    }
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
    ) -> Result<Found, NotInitialized> {
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
                return Ok(Found {
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
        let pool = match settings.rate_type {
            RateType::Overall => &self.overall,
            RateType::PerClient => self.clients.get(client).unwrap_or(&nothing),
        };
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
        Ok(Found {
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
        let pool = match settings.rate_type {
            RateType::Overall => Some(&self.overall),
            RateType::PerClient => self.clients.get(client),
        };
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
    /// permits, only writes what a denial leaves.
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

    /// Counts permits that were granted elsewhere, and may be used until so many ms ahead of now,
    /// even if there are fewer. Those of one part of the interval are one grant, made when the last
    /// of them was.
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
        // One after the other: if all grants go, their time to live goes too.
        open.pool
            .change_grants(|grants| grants.take_from_oldest(reconciled.gone, reconciled.excess));
        let settings = open.settings;
        open.write_with(&reconciled, permits, |grants| add(grants, &settings));
        open.renew_for(set_up, at.server);
    }

    /// Has the limiter live as long as these settings need where a request takes nothing.
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
    /// What a request finds: expired grants are removed while they are few.
    fn reconcile_few(&self, settings: &Settings, value: Option<i64>, now: i64) -> Reconciled {
        let removal = if self.are_many_expired(now - settings.interval) {
            Removal::NONE
        } else {
            Removal::ALWAYS_JOINTLY
        };
        self.reconcile(settings, value, now, self.is_small(), removal)
    }
}
