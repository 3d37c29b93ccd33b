//! The policy that the arguments describe. They become the fields of a policy in a configuration
//! file, so that the library reads and checks both alike.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use redisson_rate_limiter::AnyPolicy;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::rate::{RateArgument, as_argument, duration};

#[derive(Debug, Args)]
#[command(next_help_heading = "Another algorithm than RRateLimiter")]
pub(crate) struct PolicyArguments {
    /// The algorithm; NAME is then the key that it counts for
    #[arg(long, value_name = "ALGORITHM", value_parser = algorithms())]
    policy: Option<String>,
    /// The most that a bucket holds
    #[arg(long, value_name = "N", requires = "policy")]
    capacity: Option<u64>,
    /// The most that is granted at once after a pause
    #[arg(long, value_name = "N", requires = "policy")]
    burst: Option<u64>,
    /// By how much a window slides
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "policy")]
    period: Option<Duration>,
    /// By how much the calendar's clock is ahead of UTC, such as +09:00
    #[arg(
        long,
        value_name = "OFFSET",
        requires = "policy",
        allow_hyphen_values = true
    )]
    utc_offset: Option<String>,
    /// Periods begin with the clock's, not with the first request
    #[arg(long, requires = "policy")]
    aligned_to_clock: bool,
}

/// The names of all algorithms except RRateLimiter's, which is used without `--policy`.
fn algorithms() -> PossibleValuesParser {
    let policies = AnyPolicy::examples(1, Duration::from_secs(1));
    let others = policies.filter(|it| !matches!(it, AnyPolicy::SharedRate(_)));
    let names = others.map(|it| it.algorithm().replace('_', "-"));
    names.collect::<Vec<_>>().into()
}

impl PolicyArguments {
    /// The policy with this rate; `None` if the arguments name no policy.
    pub(crate) fn policy(&self, rate: Option<&RateArgument>) -> Result<Option<AnyPolicy>, Failure> {
        let Some(algorithm) = &self.policy else {
            return Ok(None);
        };
        let mut fields = Map::new();
        let texts = [
            ("algorithm", Some(algorithm.replace('-', "_"))),
            ("rate", rate.map(RateArgument::of_policy)),
            ("period", self.period.map(as_argument)),
            ("utc_offset", self.utc_offset.clone()),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                fields.insert(field.to_owned(), text.into());
            }
        }
        for (field, number) in [("capacity", self.capacity), ("burst", self.burst)] {
            if let Some(number) = number {
                fields.insert(field.to_owned(), number.into());
            }
        }
        if self.aligned_to_clock {
            fields.insert("aligned_to_clock".to_owned(), true.into());
        }
        let policy = serde_json::from_value(Value::Object(fields));
        policy.map(Some).map_err(|error| {
            let error = error.to_string().replace('_', "-");
            Failure::usage(format!("--policy {algorithm}: {error}"))
        })
    }
}
