//! `FixedWindow` as the fields of a configuration file: its length, or the unit of the calendar and
//! an offset.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};

use super::FixedWindow;
use super::calendar::{OffsetText, Unit, read_offset};
use crate::fields::{Field, by_field};
use crate::policies::algorithm::Model;

field_types! {
    limit: u32,
    window_ms: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    limit: limit,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_ms: Option<window_ms>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calendar: Option<Unit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    utc_offset: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aligned_to_clock: bool,
}

const NAMES: [(&str, &str); 2] = [
    ("window", "window_ms"),
    ("utc_offset_minutes", "utc_offset"),
];

impl Serialize for FixedWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        by_field(self.validate(), &NAMES).map_err(S::Error::custom)?;
        let offset = self.calendar.map_or(0, |calendar| calendar.offset_minutes);
        let fields = Fields {
            limit: limit { value: self.limit },
            window_ms: match self.calendar {
                Some(_) => None,
                None => Some(window_ms {
                    value: self.window.written(),
                }),
            },
            calendar: self.calendar.map(|calendar| calendar.unit),
            utc_offset: (offset != 0).then(|| OffsetText(offset).to_string()),
            aligned_to_clock: self.is_aligned_to_clock(),
        };
        fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FixedWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        let limit = fields.limit.value;
        let policy = match (fields.window_ms, fields.calendar) {
            (Some(window), None) => Self::new(limit, Duration::read(window.value)),
            (None, Some(unit)) => Self::by_calendar(limit, unit),
            (None, None) => return Err(D::Error::missing_field("window_ms")),
            (Some(_), Some(_)) => {
                return Err(D::Error::custom(
                    "`window_ms` and `calendar` exclude each other",
                ));
            }
        };
        let policy = match fields.utc_offset {
            None => policy,
            Some(_) if policy.calendar.is_none() => {
                return Err(D::Error::custom("`utc_offset` needs a `calendar`"));
            }
            Some(offset) => {
                let form = || D::Error::custom("`utc_offset` must be like \"+09:00\"");
                policy.with_utc_offset_minutes(read_offset(&offset).ok_or_else(form)?)
            }
        };
        let policy = match fields.aligned_to_clock {
            true if policy.calendar.is_some() => {
                let reason = "`aligned_to_clock` and `calendar` exclude each other";
                return Err(D::Error::custom(reason));
            }
            true => policy.aligned_to_clock(),
            false => policy,
        };
        by_field(policy.validate(), &NAMES).map_err(D::Error::custom)?;
        Ok(policy)
    }
}
