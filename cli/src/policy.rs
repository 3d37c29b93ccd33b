//! The policy that the arguments name: they are the fields of a configuration file's policy, so
//! that the library reads and checks both alike.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use redisson_rate_limiter::AnyPolicy;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::rate::duration;
use crate::report::millis;

#[derive(Debug, Args)]
#[command(next_help_heading = "Another algorithm than RRateLimiter")]
pub(crate) struct PolicyArguments {
    /// The algorithm; NAME is then the key that it counts for
    #[arg(long, value_name = "ALGORITHM", value_parser = algorithms())]
    policy: Option<String>,
    /// The most that a window holds
    #[arg(long, value_name = "N", requires = "policy")]
    limit: Option<u64>,
    /// The length of a window
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "policy")]
    window: Option<Duration>,
    /// The time in which the quantity flows or comes back, or by which a window slides
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "policy")]
    period: Option<Duration>,
    /// How many permits come back in a period
    #[arg(long, value_name = "N", requires = "policy")]
    quantity: Option<u64>,
    /// How many permits of a quota bucket come back in a period
    #[arg(long, value_name = "N", requires = "policy")]
    quota: Option<u64>,
    /// How many permits of a token bucket come back in a second
    #[arg(long, value_name = "N", requires = "policy")]
    per_second: Option<u64>,
    /// The most that a bucket holds
    #[arg(long, value_name = "N", requires = "policy")]
    capacity: Option<u64>,
    /// The most that is granted at once after a pause
    #[arg(long, value_name = "N", requires = "policy")]
    burst: Option<u64>,
    /// The windows are those of the calendar: hour, day, week, month or year
    #[arg(
        long,
        value_name = "UNIT",
        requires = "policy",
        conflicts_with = "window"
    )]
    calendar: Option<String>,
    /// By how much the calendar's clock is ahead of UTC, such as +09:00
    #[arg(
        long,
        value_name = "OFFSET",
        requires = "calendar",
        allow_hyphen_values = true
    )]
    utc_offset: Option<String>,
    /// Periods begin with the clock's, not with the first request
    #[arg(long, requires = "policy")]
    aligned_to_clock: bool,
}

/// The names of all algorithms but RRateLimiter's, which needs none.
fn algorithms() -> PossibleValuesParser {
    let policies = AnyPolicy::examples(1, Duration::from_secs(1));
    let others = policies.filter(|it| !matches!(it, AnyPolicy::SharedRate(_)));
    let names = others.map(|it| it.algorithm().replace('_', "-"));
    names.collect::<Vec<_>>().into()
}

impl PolicyArguments {
    pub(crate) fn policy(&self) -> Result<Option<AnyPolicy>, Failure> {
        let Some(algorithm) = &self.policy else {
            return Ok(None);
        };
        let mut fields = Map::new();
        fields.insert("algorithm".to_owned(), algorithm.replace('-', "_").into());
        let numbers = [
            ("limit", self.limit),
            ("window_ms", self.window.map(millis)),
            ("period_ms", self.period.map(millis)),
            ("quantity", self.quantity),
            ("quota", self.quota),
            ("per_second", self.per_second),
            ("capacity", self.capacity),
            ("burst", self.burst),
        ];
        for (field, number) in numbers {
            if let Some(number) = number {
                fields.insert(field.to_owned(), number.into());
            }
        }
        for (field, text) in [
            ("calendar", &self.calendar),
            ("utc_offset", &self.utc_offset),
        ] {
            if let Some(text) = text {
                fields.insert(field.to_owned(), text.as_str().into());
            }
        }
        if self.aligned_to_clock {
            fields.insert("aligned_to_clock".to_owned(), true.into());
        }
        let policy = serde_json::from_value(Value::Object(fields));
        policy.map(Some).map_err(|error| {
            let error = error.to_string().replace("_ms`", "`").replace('_', "-");
            Failure::usage(format!("--policy {algorithm}: {error}"))
        })
    }
}
