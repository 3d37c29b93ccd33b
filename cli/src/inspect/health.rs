//! The health of a limiter, as far as one bounded script call shows it.

use super::settings::Settings;
use std::time::Duration;

use crate::report::{lasting, number_of};

/// The health of a limiter, the worst variant first. Numbers are permits unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// The settings or keys cannot be a limiter's, for this reason.
    Unreadable(String),
    /// The value is above the rate by this number: Redisson grants that much.
    AboveRate(i64),
    /// The value is missing although grants hold this number: Redisson's next call grants all
    /// permits again.
    ValueMissing(i64),
    /// This number of members are no grants: once they have expired, Redisson's calls fail.
    Malformed(u64),
    /// The value and the grants add up to more than the rate, by this number.
    TooMany(i64),
    /// The value and the grants add up to less than the rate, by this number.
    Lost(i64),
    /// The keep alive is shorter than the interval.
    Vanishes,
    /// The rate is set to 0.
    Stopped,
    /// A hold takes all permits for this time, in ms.
    Held(i64),
    /// There are more grants than one call reads.
    Unchecked,
    Well,
}

/// What one script call finds of a limiter besides its settings.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The text of the value; empty if it is missing.
    pub(super) value: String,
    /// The types of the keys with the value and with the grants.
    pub(super) types: [String; 2],
    /// The permits of all grants; `None` if there are too many grants to read.
    pub(super) held: Option<i64>,
    /// The number of grants.
    pub(super) grants: u64,
    /// The number of members that are no grants.
    pub(super) malformed: u64,
    /// The time for which a hold still takes all permits, in ms.
    pub(super) held_for: Option<i64>,
}

impl Health {
    pub(super) fn of(settings: &Settings, observed: &Observed) -> Self {
        if settings.is_stopped() && matches!(settings.rate_type.as_str(), "0" | "1") {
            return Self::Stopped;
        }
        if let Some(fault) = settings.faults().into_iter().next() {
            return Self::Unreadable(fault);
        }
        let Some((rate, _)) = settings.numbers() else {
            return Self::Unchecked; // never: unreadable numbers are among the faults
        };
        for (key, found, expected) in [
            ("value", &observed.types[0], "string"),
            ("grants", &observed.types[1], "zset"),
        ] {
            if found != "none" && found != expected {
                return Self::Unreadable(format!("the key of its {key} is a {found}"));
            }
        }
        let of_keys = match super::reply::integer(&observed.value) {
            _ if settings.is_per_client() => Self::Well, // each client has keys of its own
            None if observed.types[0] != "none" => {
                Self::Unreadable(format!("the value is `{}`", observed.value.escape_debug()))
            }
            Some(value) if value > rate => Self::AboveRate(value - rate),
            None if observed.grants > 0 => Self::ValueMissing(observed.held.unwrap_or(0)),
            _ if observed.malformed > 0 => Self::Malformed(observed.malformed),
            None => Self::Well,
            Some(value) => match observed.held.map(|held| value.saturating_add(held) - rate) {
                Some(more @ 1..) => Self::TooMany(more),
                Some(0) => Self::Well,
                Some(less) => Self::Lost(-less),
                None => Self::Unchecked,
            },
        };
        match (of_keys, settings.short_keep_alive()) {
            (Self::Well | Self::Unchecked, Some(_)) => Self::Vanishes,
            (Self::Well, None) => observed.held_for.map_or(Self::Well, Self::Held),
            (of_keys, _) => of_keys,
        }
    }

    pub(crate) fn is_sick(&self) -> bool {
        !matches!(
            self,
            Self::Well | Self::Unchecked | Self::Stopped | Self::Held(_)
        )
    }

    /// The place in the order of health: the worst has the lowest.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Unreadable(_) => 0,
            Self::AboveRate(_) => 1,
            Self::ValueMissing(_) => 2,
            Self::Malformed(_) => 3,
            Self::TooMany(_) => 4,
            Self::Lost(_) => 5,
            Self::Vanishes => 6,
            Self::Stopped => 7,
            Self::Held(_) => 8,
            Self::Unchecked => 9,
            Self::Well => 10,
        }
    }

    /// The health in at most 11 letters, for a column of a table.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::AboveRate(_) => "above rate",
            Self::ValueMissing(_) => "value lost",
            Self::Malformed(_) => "old members",
            Self::TooMany(_) => "too many",
            Self::Lost(_) => "lost",
            Self::Vanishes => "vanishes",
            Self::Stopped => "stopped",
            Self::Held(_) => "held",
            Self::Unchecked => "unchecked",
            Self::Well => "ok",
        }
    }

    /// The code of the finding that `doctor` reports for it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "settings-unreadable",
            Self::AboveRate(_) | Self::TooMany(_) => "permits-too-many",
            Self::ValueMissing(_) => "value-missing",
            Self::Malformed(_) => "malformed-members",
            Self::Lost(_) => "permits-lost",
            Self::Vanishes => "keep-alive-too-short",
            Self::Stopped => "stopped",
            Self::Held(_) => "held",
            Self::Unchecked => "not-checked",
            Self::Well => "well",
        }
    }

    /// What the health means, in a sentence; `None` if the limiter is well or unchecked.
    pub(crate) fn text(&self) -> Option<String> {
        let permits = |number: &i64| number_of(number.unsigned_abs(), "permit");
        Some(match self {
            Self::Unreadable(fault) => fault.clone(),
            Self::AboveRate(more) => {
                format!("the value is {more} above the rate, and Redisson grants it")
            }
            Self::ValueMissing(held) => format!(
                "the value is lost: Redisson grants all permits again, although {held} are in use"
            ),
            Self::Malformed(members) => format!(
                "{} that Redisson from 3.17 on cannot read",
                number_of(*members, "member")
            ),
            Self::TooMany(more) => format!("{} too many", permits(more)),
            Self::Lost(less) => format!("{} lost: they never come back", permits(less)),
            Self::Vanishes => "the keep alive is shorter than the interval".to_owned(),
            Self::Stopped => "the rate is 0: each request is refused".to_owned(),
            Self::Held(ms) => {
                let time = Duration::from_millis(ms.unsigned_abs());
                format!("held: nobody gets a permit for {}", lasting(time))
            }
            Self::Unchecked | Self::Well => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(settings: [&str; 4], value: &str, held: i64, malformed: u64) -> Health {
        let [rate, interval, rate_type, keep_alive] = settings.map(str::to_owned);
        let settings = Settings {
            rate,
            interval,
            rate_type,
            keep_alive,
        };
        let types = [if value.is_empty() { "none" } else { "string" }, "zset"];
        let observed = Observed {
            value: value.to_owned(),
            types: types.map(str::to_owned),
            held: Some(held),
            grants: u64::from(held > 0),
            malformed,
            held_for: None,
        };
        Health::of(&settings, &observed)
    }

    #[test]
    fn the_health_of_a_limiter_follows_from_its_numbers() {
        let orders = ["10", "1000", "0", "0"];
        for (settings, value, held, malformed, expected) in [
            (orders, "7", 3, 0, Health::Well),
            (orders, "", 0, 0, Health::Well),
            (orders, "-3", 13, 0, Health::Well),
            (orders, "5", 3, 0, Health::Lost(2)),
            (orders, "9", 3, 0, Health::TooMany(2)),
            (orders, "13", 0, 0, Health::AboveRate(3)),
            (orders, "", 4, 0, Health::ValueMissing(4)),
            (orders, "6", 3, 1, Health::Malformed(1)),
            (["10", "1000", "0", "999"], "7", 3, 0, Health::Vanishes),
            (["0", "1000", "0", "0"], "", 0, 0, Health::Stopped),
        ] {
            let found = health(settings, value, held, malformed);
            assert_eq!(found, expected, "{settings:?} {value} {held}");
        }
        for (settings, value) in [
            (["5e9", "1000", "0", "0"], "7"),
            (["10", "", "0", "0"], "7"),
            (["10", "1000", "", "0"], "7"),
            (["10", "1000", "2", "0"], "7"),
            (orders, "seven"),
        ] {
            let found = health(settings, value, 3, 0);
            assert!(
                matches!(found, Health::Unreadable(_)),
                "{settings:?} {value}: {found:?}"
            );
        }
    }
}
