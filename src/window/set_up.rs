//! Settings that a request brings to its limiter, which it creates if it is missing.

use std::time::Duration;

use super::{NotInitialized, Settings};

/// The settings that a missing limiter gets with a request, and what happens to those of an
/// existing one.
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

impl Existing {
    /// The number for the scripts.
    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Replaced => 0,
            Self::ReplacedWithKeepAlive => 1,
            Self::Left => 2,
        }
    }
}

/// How the limiter must change before a request.
pub(super) enum SettingsChange {
    None,
    /// The limiter gets these settings and keeps what is in use.
    Settings(Settings),
    /// The limiter gets these settings, and nothing is in use.
    Afresh(Settings),
}

impl SetUp {
    /// The rate of a limiter that others may share: one that exists keeps its own.
    pub(crate) fn where_missing(settings: Settings) -> Self {
        Self {
            settings,
            existing: Existing::Left,
        }
    }

    /// The rate of a limiter that has it from its next request on, and expires: without a keep
    /// alive of its own, an interval after its last request.
    pub(crate) fn expiring(mut settings: Settings) -> Self {
        let existing = match settings.keep_alive {
            0 => {
                settings.keep_alive = settings.interval;
                Existing::Replaced
            }
            _ => Existing::ReplacedWithKeepAlive,
        };
        Self { settings, existing }
    }

    /// These settings for a limiter whose permits are leased for up to this time: one that expires
    /// lives as long as a lease counts.
    pub(crate) fn with_room_for(mut self, lease: Duration) -> Self {
        if self.existing == Existing::Replaced {
            let interval = self.settings.interval;
            let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
            self.settings.keep_alive = interval + lease.min(interval / 2);
        }
        self
    }

    /// `Some(self)` if it replaces the settings of an existing limiter.
    pub(crate) fn replacing(self) -> Option<Self> {
        (self.existing != Existing::Left).then_some(self)
    }

    /// The settings of a call for requests that bring these: the last ones that replace a limiter's
    /// settings, or if none do, the last ones.
    pub(crate) fn of_all(set_ups: impl Iterator<Item = Self>) -> Option<Self> {
        set_ups.max_by_key(|it| it.existing != Existing::Left)
    }

    /// The stored settings, if they differ from these and a request leaves them.
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
