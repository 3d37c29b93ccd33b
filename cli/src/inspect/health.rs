//! Whether a limiter is well, as far as one look at it says.

use super::settings::Settings;
use std::time::Duration;

use crate::report::{lasting, number_of};

/// The worst first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// Settings or keys are such as no limiter has.
    Unreadable(String),
    /// The value is above the rate: Redisson grants as much.
    AboveRate(i64),
    /// There are grants and no value: Redisson's next call grants all permits again.
    ValueMissing(i64),
    /// Members that are no grants: once they have expired, Redisson's calls fail.
    Malformed(u64),
    TooMany(i64),
    Lost(i64),
    /// The keep alive is shorter than the interval.
    Vanishes,
    /// Somebody has set the rate to 0.
    Stopped,
    /// Somebody has taken all permits for so many ms.
    Held(i64),
    /// More grants than one look reads.
    Unchecked,
    Well,
}

/// What one look at a limiter finds besides its settings.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// As it is stored; empty if missing.
    pub(super) value: String,
    pub(super) types: [String; 2],
    /// Permits of all grants; `None` if they are too many to read.
    pub(super) held: Option<i64>,
    pub(super) grants: u64,
    pub(super) malformed: u64,
    /// How long a hold still takes all permits, in ms.
    pub(super) held_for: Option<i64>,
}

impl Health {
    pub(super) fn of(settings: &Settings, looked: &Looked) -> Self {
        if settings.is_stopped() && matches!(settings.rate_type.as_str(), "0" | "1") {
            return Self::Stopped;
        }
        if let Some(fault) = settings.faults().into_iter().next() {
            return Self::Unreadable(fault);
        }
        let Some((rate, _)) = settings.numbers() else {
            return Self::Unchecked; // the faults say so
        };
        for (key, found, expected) in [
            ("value", &looked.types[0], "string"),
            ("grants", &looked.types[1], "zset"),
        ] {
            if found != "none" && found != expected {
                return Self::Unreadable(format!("the key of its {key} is a {found}"));
            }
        }
        let of_keys = match super::reply::integer(&looked.value) {
            _ if settings.is_per_client() => Self::Well, // each client has keys of its own
            None if looked.types[0] != "none" => {
                Self::Unreadable(format!("the value is `{}`", looked.value.escape_debug()))
            }
            Some(value) if value > rate => Self::AboveRate(value - rate),
            None if looked.grants > 0 => Self::ValueMissing(looked.held.unwrap_or(0)),
            _ if looked.malformed > 0 => Self::Malformed(looked.malformed),
            None => Self::Well,
            Some(value) => match looked.held.map(|held| value.saturating_add(held) - rate) {
                Some(more @ 1..) => Self::TooMany(more),
                Some(0) => Self::Well,
                Some(less) => Self::Lost(-less),
                None => Self::Unchecked,
            },
        };
        match (of_keys, settings.short_keep_alive()) {
            (Self::Well | Self::Unchecked, Some(_)) => Self::Vanishes,
            (Self::Well, None) => looked.held_for.map_or(Self::Well, Self::Held),
            (of_keys, _) => of_keys,
        }
    }

    pub(crate) fn is_sick(&self) -> bool {
        !matches!(
            self,
            Self::Well | Self::Unchecked | Self::Stopped | Self::Held(_)
        )
    }

    /// The worst has the least.
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

    /// Of at most 11 letters.
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

    /// The code of `doctor`'s finding.
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

    /// What that means, in a sentence; `None` of what is well.
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
        let looked = Looked {
            value: value.to_owned(),
            types: types.map(str::to_owned),
            held: Some(held),
            grants: u64::from(held > 0),
            malformed,
            held_for: None,
        };
        Health::of(&settings, &looked)
    }

    #[test]
    fn what_is_wrong_with_a_limiter_is_told_by_its_numbers() {
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
