//! `FixedWindow` as the fields of a configuration file: its rate, of a time or of a unit of the
//! calendar, and an offset.

use super::FixedWindow;
use super::calendar::{OffsetText, Unit, read_offset};
use crate::fields::{TimeText, read_rate, read_time_of_rate, small};
use crate::policies::model::Model;

field_types! {
    rate: String,
    utc_offset: String,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    rate: rate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    utc_offset: Option<utc_offset>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aligned_to_clock: bool,
}

const NAMES: [(&str, &str); 3] = [
    ("limit", "rate"),
    ("window", "rate"),
    ("utc_offset_minutes", "utc_offset"),
];

as_fields!(FixedWindow, Fields, Model::validate, NAMES);

impl From<&FixedWindow> for Fields {
    fn from(policy: &FixedWindow) -> Self {
        let offset = policy
            .calendar
            .map_or(0, |calendar| calendar.offset_minutes);
        let time = match policy.calendar {
            Some(calendar) => calendar.unit.word().to_owned(),
            None => TimeText(policy.window).to_string(),
        };
        Self {
            rate: rate {
                value: format!("{}/{time}", policy.limit),
            },
            utc_offset: (offset != 0).then(|| utc_offset {
                value: OffsetText(offset).to_string(),
            }),
            // Windows of the calendar are aligned already, and refused with this field.
            aligned_to_clock: policy.is_aligned_to_clock() && policy.calendar.is_none(),
        }
    }
}

impl TryFrom<Fields> for FixedWindow {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let (limit, time) = read_rate(&fields.rate.value).map_err(of_rate)?;
        let limit = small(limit).map_err(of_rate)?;
        let policy = match Unit::of_word(time) {
            Some(unit) => Self::by_calendar(limit, unit),
            None => Self::new(limit, read_time_of_rate(time).map_err(of_rate)?),
        };
        let is_of_calendar = policy.calendar.is_some();
        let policy = match fields.utc_offset {
            None => policy,
            Some(_) if !is_of_calendar => {
                return Err("`utc_offset` needs a `rate` such as \"9/day\"".into());
            }
            Some(offset) => {
                let minutes = read_offset(&offset.value);
                let minutes = minutes.ok_or("`utc_offset` must be like \"+09:00\"")?;
                policy.with_utc_offset_minutes(minutes)
            }
        };
        match fields.aligned_to_clock {
            true if is_of_calendar => {
                Err("`aligned_to_clock` and a `rate` of the calendar exclude each other".into())
            }
            true => Ok(policy.aligned_to_clock()),
            false => Ok(policy),
        }
    }
}

fn of_rate(reason: String) -> String {
    format!("`rate`: {reason}")
}
