//! `FixedWindow` as the fields of a configuration file: its rate, of a time or of a unit of the
//! calendar, and an offset.

use super::FixedWindow;
use super::calendar::{OffsetText, Unit, read_offset};
use crate::error::Result;
use crate::fields::{AsFields, Fields, PerTime, read_rate, read_time_of_rate};
use crate::policies::model::Model;

as_fields!(FixedWindow);

impl AsFields for FixedWindow {
    const FIELDS: &[&str] = &["rate", "utc_offset", "aligned_to_clock"];
    const ARGUMENTS: &[(&str, &str)] = &[
        ("limit", "rate"),
        ("window", "rate"),
        ("utc_offset_minutes", "utc_offset"),
    ];

    fn check(&self) -> Result<()> {
        self.validate()
    }

    fn write(&self, fields: &mut Fields) {
        // The offset has an effect on the calendar only, and what starts with it is aligned.
        match &self.calendar {
            Some(calendar) => {
                let unit = calendar.unit.word();
                fields.put("rate", format!("{}/{unit}", self.limit));
                if calendar.offset_minutes != 0 {
                    let offset = OffsetText(calendar.offset_minutes);
                    fields.put("utc_offset", offset.to_string());
                }
            }
            None => {
                fields.put("rate", PerTime(self.limit, self.window));
                if self.is_aligned_to_clock() {
                    fields.put("aligned_to_clock", true);
                }
            }
        }
    }

    fn read(fields: &mut Fields) -> Result<Self, String> {
        let rate: String = fields.require("rate")?;
        let (limit, time) = read_rate(&rate).map_err(of_rate)?;
        let Some(unit) = Unit::of_word(time) else {
            if fields.has("utc_offset") {
                return Err("`utc_offset` needs a `rate` such as \"9/day\"".into());
            }
            let policy = Self::new(limit, read_time_of_rate(time).map_err(of_rate)?);
            return Ok(match fields.take("aligned_to_clock")? {
                Some(true) => policy.aligned_to_clock(),
                _ => policy,
            });
        };
        if fields.take("aligned_to_clock")? == Some(true) {
            return Err(
                "`aligned_to_clock` and a `rate` of the calendar exclude each other".into(),
            );
        }
        let policy = Self::by_calendar(limit, unit);
        let Some(offset) = fields.take::<String>("utc_offset")? else {
            return Ok(policy);
        };
        let minutes = read_offset(&offset).ok_or("`utc_offset` must be like \"+09:00\"")?;
        Ok(policy.with_utc_offset_minutes(minutes))
    }
}

fn of_rate(reason: String) -> String {
    format!("`rate`: {reason}")
}
