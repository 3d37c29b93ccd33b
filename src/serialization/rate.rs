//! The fields of a rate.

use crate::error::Result;
use crate::fields::{AsFields, FieldValue, Fields, PerTime, Scalar, unknown};
use crate::rate::{Rate, RateType};

as_fields!(Rate);

impl AsFields for Rate {
    const FIELDS: &[&str] = &["rate", "rate_type", "keep_alive"];
    const ARGUMENTS: &[(&str, &str)] = &[("permits", "rate"), ("interval", "rate")];

    fn check(&self) -> Result<()> {
        self.validate()
    }

    fn write(&self, fields: &mut Fields) {
        fields.put("rate", PerTime(self.permits(), self.interval()));
        if self.rate_type() != RateType::Overall {
            fields.put("rate_type", self.rate_type());
        }
        if let Some(time) = self.keep_alive_time() {
            fields.put("keep_alive", time);
        }
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        let PerTime(permits, interval) = fields.require("rate")?;
        let rate_type = fields.take("rate_type")?.unwrap_or(RateType::Overall);
        let rate = Self::new(rate_type, permits, interval);
        Ok(match fields.take("keep_alive")? {
            Some(time) => rate.keep_alive(time),
            None => rate,
        })
    }
}

impl FieldValue for RateType {
    fn written(self) -> Scalar {
        let word = match self {
            Self::Overall => "overall",
            Self::PerClient => "per_client",
        };
        word.to_owned().written()
    }

    fn read(value: Scalar) -> Result<Self, String> {
        match &*String::read(value)? {
            "overall" => Ok(Self::Overall),
            "per_client" => Ok(Self::PerClient),
            other => Err(unknown("variant", other, &["overall", "per_client"])),
        }
    }
}
