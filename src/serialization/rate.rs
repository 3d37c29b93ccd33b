//! The fields of a rate.

use serde::{Deserialize, Serialize};

use crate::fields::{Field, TimeText, read_rate, read_time_of_rate};
use crate::rate::{Rate, RateType};

field_types! {
    rate: String,
    keep_alive: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateFields {
    rate: rate,
    /// Overall if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_type: Option<RateType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_alive: Option<keep_alive>,
}

impl From<&Rate> for RateFields {
    fn from(given: &Rate) -> Self {
        Self {
            rate: rate {
                value: format!("{}/{}", given.permits(), TimeText(given.interval())),
            },
            rate_type: Some(given.rate_type()).filter(|it| *it != RateType::Overall),
            keep_alive: given.keep_alive_time().map(|time| keep_alive {
                value: time.written(),
            }),
        }
    }
}

impl TryFrom<RateFields> for Rate {
    type Error = String;

    fn try_from(fields: RateFields) -> Result<Self, String> {
        let of_rate = |reason| format!("`rate`: {reason}");
        let (permits, interval) = read_rate(&fields.rate.value).map_err(of_rate)?;
        let interval = read_time_of_rate(interval).map_err(of_rate)?;
        let rate = match fields.rate_type {
            None | Some(RateType::Overall) => Self::overall(permits, interval),
            Some(RateType::PerClient) => Self::per_client(permits, interval),
        };
        Ok(match fields.keep_alive {
            Some(time) => {
                let time = Field::read(time.value);
                rate.keep_alive(time.map_err(|reason| format!("`keep_alive`: {reason}"))?)
            }
            None => rate,
        })
    }
}

as_fields!(
    Rate,
    RateFields,
    Rate::validate,
    [("permits", "rate"), ("interval", "rate")]
);
