//! The fields of a rate.

use serde::{Deserialize, Serialize};

use crate::fields::Field;
use crate::rate::{Rate, RateType};

field_types! {
    permits: u64,
    interval_ms: u64,
    keep_alive_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateFields {
    #[serde(default, skip_serializing_if = "is_overall")]
    rate_type: RateTypeName,
    permits: permits,
    interval_ms: interval_ms,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_alive_ms: Option<keep_alive_ms>,
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum RateTypeName {
    #[default]
    Overall,
    PerClient,
}

fn is_overall(name: &RateTypeName) -> bool {
    *name == RateTypeName::Overall
}

impl From<&Rate> for RateFields {
    fn from(rate: &Rate) -> Self {
        Self {
            rate_type: match rate.rate_type() {
                RateType::Overall => RateTypeName::Overall,
                RateType::PerClient => RateTypeName::PerClient,
            },
            permits: permits {
                value: rate.permits(),
            },
            interval_ms: interval_ms {
                value: rate.interval().written(),
            },
            keep_alive_ms: rate.keep_alive_time().map(|time| keep_alive_ms {
                value: time.written(),
            }),
        }
    }
}

impl From<RateFields> for Rate {
    fn from(fields: RateFields) -> Self {
        let (permits, interval) = (fields.permits.value, Field::read(fields.interval_ms.value));
        let rate = match fields.rate_type {
            RateTypeName::Overall => Self::overall(permits, interval),
            RateTypeName::PerClient => Self::per_client(permits, interval),
        };
        match fields.keep_alive_ms {
            Some(millis) => rate.keep_alive(Field::read(millis.value)),
            None => rate,
        }
    }
}

as_fields!(
    Rate,
    RateFields,
    Rate::validate,
    [("interval", "interval_ms"), ("keep_alive", "keep_alive_ms")]
);
