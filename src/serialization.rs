//! Rates, policies and failure policies as fields with names, for configuration files: with the feature `serde`.
//!
//! Durations are whole milliseconds. Invalid values are refused, both when writing and when reading.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::error::Result;
use crate::failure_policy::{FailurePolicy, LocalShare};
use crate::policy::algorithm::Model;
use crate::policy::{
    FixedWindow, LeakyBucket, PenaltyTokenBucket, QuotaBucket, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket,
};
use crate::rate::{Rate, RateType};

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Writes and reads a type as its fields, once `validate` has found it good.
macro_rules! as_fields {
    ($type:ty, $fields:ty, $validate:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $validate(self).map_err(ser::Error::custom)?;
                <$fields>::from(*self).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read = Self::from(<$fields>::deserialize(deserializer)?);
                $validate(&read).map_err(de::Error::custom)?;
                Ok(read)
            }
        }
    };
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateFields {
    #[serde(default, skip_serializing_if = "is_overall")]
    rate_type: RateTypeName,
    permits: u64,
    interval_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_alive_ms: Option<u64>,
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

impl From<Rate> for RateFields {
    fn from(rate: Rate) -> Self {
        Self {
            rate_type: match rate.rate_type() {
                RateType::Overall => RateTypeName::Overall,
                RateType::PerClient => RateTypeName::PerClient,
            },
            permits: rate.permits(),
            interval_ms: millis(rate.interval()),
            keep_alive_ms: rate.keep_alive_time().map(millis),
        }
    }
}

impl From<RateFields> for Rate {
    fn from(fields: RateFields) -> Self {
        let interval = Duration::from_millis(fields.interval_ms);
        let rate = match fields.rate_type {
            RateTypeName::Overall => Self::overall(fields.permits, interval),
            RateTypeName::PerClient => Self::per_client(fields.permits, interval),
        };
        match fields.keep_alive_ms {
            Some(millis) => rate.keep_alive(Duration::from_millis(millis)),
            None => rate,
        }
    }
}

as_fields!(Rate, RateFields, Rate::validate);

/// A limit in each window.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FixedWindowFields {
    limit: u32,
    window_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    natural_start: bool,
}

impl From<FixedWindow> for FixedWindowFields {
    fn from(policy: FixedWindow) -> Self {
        Self {
            limit: policy.limit(),
            window_ms: millis(policy.window()),
            natural_start: policy.has_natural_start(),
        }
    }
}

impl From<FixedWindowFields> for FixedWindow {
    fn from(fields: FixedWindowFields) -> Self {
        let policy = Self::new(fields.limit, Duration::from_millis(fields.window_ms));
        if fields.natural_start {
            policy.with_natural_start()
        } else {
            policy
        }
    }
}

as_fields!(FixedWindow, FixedWindowFields, Model::validate);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlidingWindowLogFields {
    limit: u32,
    window_ms: u64,
}

impl From<SlidingWindowLog> for SlidingWindowLogFields {
    fn from(policy: SlidingWindowLog) -> Self {
        Self {
            limit: policy.limit(),
            window_ms: millis(policy.window()),
        }
    }
}

impl From<SlidingWindowLogFields> for SlidingWindowLog {
    fn from(fields: SlidingWindowLogFields) -> Self {
        Self::new(fields.limit, Duration::from_millis(fields.window_ms))
    }
}

as_fields!(SlidingWindowLog, SlidingWindowLogFields, Model::validate);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlidingWindowCounterFields {
    limit: u32,
    window_ms: u64,
    period_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    natural_start: bool,
}

impl From<SlidingWindowCounter> for SlidingWindowCounterFields {
    fn from(policy: SlidingWindowCounter) -> Self {
        Self {
            limit: policy.limit(),
            window_ms: millis(policy.window()),
            period_ms: Some(millis(policy.period())),
            natural_start: policy.has_natural_start(),
        }
    }
}

impl From<SlidingWindowCounterFields> for SlidingWindowCounter {
    fn from(fields: SlidingWindowCounterFields) -> Self {
        let mut policy = Self::new(fields.limit, Duration::from_millis(fields.window_ms));
        if let Some(millis) = fields.period_ms {
            policy = policy.with_period(Duration::from_millis(millis));
        }
        if fields.natural_start {
            policy = policy.with_natural_start();
        }
        policy
    }
}

as_fields!(
    SlidingWindowCounter,
    SlidingWindowCounterFields,
    Model::validate
);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBucketFields {
    per_second: u32,
    capacity: Option<u32>,
}

impl From<TokenBucket> for TokenBucketFields {
    fn from(policy: TokenBucket) -> Self {
        Self {
            per_second: policy.rate(),
            capacity: Some(policy.capacity()),
        }
    }
}

impl From<TokenBucketFields> for TokenBucket {
    fn from(fields: TokenBucketFields) -> Self {
        let policy = Self::per_second(fields.per_second);
        match fields.capacity {
            Some(capacity) => policy.with_capacity(capacity),
            None => policy,
        }
    }
}

as_fields!(TokenBucket, TokenBucketFields, Model::validate);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaBucketFields {
    quota: u32,
    period_ms: u64,
    capacity: Option<u32>,
}

impl From<QuotaBucket> for QuotaBucketFields {
    fn from(policy: QuotaBucket) -> Self {
        Self {
            quota: policy.quota(),
            period_ms: millis(policy.period()),
            capacity: Some(policy.capacity()),
        }
    }
}

impl From<QuotaBucketFields> for QuotaBucket {
    fn from(fields: QuotaBucketFields) -> Self {
        let policy = Self::new(fields.quota, Duration::from_millis(fields.period_ms));
        match fields.capacity {
            Some(capacity) => policy.with_capacity(capacity),
            None => policy,
        }
    }
}

as_fields!(QuotaBucket, QuotaBucketFields, Model::validate);

/// A quantity in each unit of time, of a bucket.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitBucketFields {
    quantity: u32,
    unit_ms: u64,
    capacity: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    natural_start: bool,
}

macro_rules! unit_bucket {
    ($bucket:ident) => {
        impl From<$bucket> for UnitBucketFields {
            fn from(policy: $bucket) -> Self {
                Self {
                    quantity: policy.quantity(),
                    unit_ms: millis(policy.unit()),
                    capacity: Some(policy.capacity()),
                    natural_start: policy.has_natural_start(),
                }
            }
        }

        impl From<UnitBucketFields> for $bucket {
            fn from(fields: UnitBucketFields) -> Self {
                let mut policy = Self::new(fields.quantity, Duration::from_millis(fields.unit_ms));
                if let Some(capacity) = fields.capacity {
                    policy = policy.with_capacity(capacity);
                }
                if fields.natural_start {
                    policy = policy.with_natural_start();
                }
                policy
            }
        }

        as_fields!($bucket, UnitBucketFields, Model::validate);
    };
}

unit_bucket!(LeakyBucket);
unit_bucket!(PenaltyTokenBucket);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailurePolicyName {
    Error,
    Deny,
    Allow,
    /// One of so many clients.
    LocalOneOf(u32),
}

impl Serialize for FailurePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match self {
            Self::Error => FailurePolicyName::Error,
            Self::Deny => FailurePolicyName::Deny,
            Self::Allow => FailurePolicyName::Allow,
            Self::Local(share) => FailurePolicyName::LocalOneOf(share.clients()),
        };
        name.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FailurePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match FailurePolicyName::deserialize(deserializer)? {
            FailurePolicyName::Error => Self::Error,
            FailurePolicyName::Deny => Self::Deny,
            FailurePolicyName::Allow => Self::Allow,
            FailurePolicyName::LocalOneOf(clients) => {
                Self::Local(LocalShare::one_of(clients).map_err(de::Error::custom)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use serde::de::DeserializeOwned;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[track_caller]
    fn goes_there_and_back<T>(value: T, json: &str)
    where
        T: Serialize + DeserializeOwned + PartialEq + fmt::Debug,
    {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), value);
    }

    #[track_caller]
    fn is_refused<T: DeserializeOwned + fmt::Debug>(json: &str, reason: &str) {
        let error = serde_json::from_str::<T>(json).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn all_that_can_be_configured_goes_there_and_back() {
        goes_there_and_back(
            Rate::overall(5, MINUTE),
            r#"{"permits":5,"interval_ms":60000}"#,
        );
        goes_there_and_back(
            Rate::per_client(1, MINUTE).keep_alive(2 * MINUTE),
            r#"{"rate_type":"per_client","permits":1,"interval_ms":60000,"keep_alive_ms":120000}"#,
        );
        goes_there_and_back(
            FixedWindow::new(100, MINUTE),
            r#"{"limit":100,"window_ms":60000}"#,
        );
        goes_there_and_back(
            FixedWindow::new(100, MINUTE).with_natural_start(),
            r#"{"limit":100,"window_ms":60000,"natural_start":true}"#,
        );
        goes_there_and_back(
            SlidingWindowLog::new(100, MINUTE),
            r#"{"limit":100,"window_ms":60000}"#,
        );
        goes_there_and_back(
            SlidingWindowCounter::new(100, MINUTE).with_period(MINUTE / 4),
            r#"{"limit":100,"window_ms":60000,"period_ms":15000}"#,
        );
        goes_there_and_back(
            TokenBucket::per_second(10).with_capacity(100),
            r#"{"per_second":10,"capacity":100}"#,
        );
        goes_there_and_back(
            QuotaBucket::new(10, MINUTE),
            r#"{"quota":10,"period_ms":60000,"capacity":10}"#,
        );
        goes_there_and_back(
            LeakyBucket::new(1, MINUTE).with_capacity(5),
            r#"{"quantity":1,"unit_ms":60000,"capacity":5}"#,
        );
        goes_there_and_back(
            PenaltyTokenBucket::new(1, MINUTE).with_natural_start(),
            r#"{"quantity":1,"unit_ms":60000,"capacity":1,"natural_start":true}"#,
        );
        goes_there_and_back(FailurePolicy::Error, r#""error""#);
        goes_there_and_back(FailurePolicy::Deny, r#""deny""#);
        goes_there_and_back(FailurePolicy::Allow, r#""allow""#);
        let quarter = FailurePolicy::Local(LocalShare::one_of(4).unwrap());
        goes_there_and_back(quarter, r#"{"local_one_of":4}"#);
    }

    #[test]
    fn what_is_left_out_is_what_the_constructors_give() {
        let read = serde_json::from_str::<TokenBucket>(r#"{"per_second":10}"#);
        assert_eq!(read.unwrap(), TokenBucket::per_second(10));
        let read = serde_json::from_str(r#"{"limit":9,"window_ms":60000}"#);
        assert_eq!(
            read.ok(),
            Some(SlidingWindowCounter::new(9, MINUTE)),
            "ten periods"
        );
        let read = serde_json::from_str::<LeakyBucket>(r#"{"quantity":2,"unit_ms":60000}"#);
        assert_eq!(read.unwrap(), LeakyBucket::new(2, MINUTE));
    }

    #[test]
    fn what_no_limiter_takes_is_refused() {
        is_refused::<Rate>(r#"{"permits":0,"interval_ms":1000}"#, "not in 1 to 2^53");
        is_refused::<Rate>(r#"{"permits":-1,"interval_ms":1000}"#, "invalid value");
        is_refused::<Rate>(r#"{"permits":1,"interval_ms":0}"#, "shorter than 1 ms");
        is_refused::<Rate>(
            r#"{"permits":1,"interval_ms":1000,"keep_alive_ms":999}"#,
            "shorter than the interval",
        );
        is_refused::<Rate>(
            r#"{"permits":1,"interval_ms":1000,"keep_alive":9999}"#,
            "unknown field",
        );
        is_refused::<FixedWindow>(r#"{"limit":0,"window_ms":1000}"#, "invalid limit");
        is_refused::<FixedWindow>(
            r#"{"limit":1,"window_ms":1500,"natural_start":true}"#,
            "not a whole number of seconds",
        );
        is_refused::<SlidingWindowLog>(r#"{"limit":1000001,"window_ms":1000}"#, "invalid limit");
        is_refused::<SlidingWindowCounter>(
            r#"{"limit":1,"window_ms":1000,"period_ms":300}"#,
            "invalid",
        );
        is_refused::<TokenBucket>(r#"{"per_second":0}"#, "it is 0");
        is_refused::<QuotaBucket>(r#"{"quota":1,"period_ms":1500}"#, "invalid period");
        is_refused::<LeakyBucket>(r#"{"quantity":1,"unit_ms":0}"#, "invalid unit");
        is_refused::<PenaltyTokenBucket>(
            r#"{"quantity":1,"unit_ms":1000,"capacity":0}"#,
            "invalid capacity",
        );
        is_refused::<FailurePolicy>(r#"{"local_one_of":0}"#, "invalid clients");
    }

    #[test]
    fn what_no_limiter_takes_is_not_written() {
        let part_of_a_ms = Duration::from_micros(1_500);
        assert!(serde_json::to_string(&Rate::overall(1, part_of_a_ms)).is_err());
        assert!(serde_json::to_string(&FixedWindow::new(1, part_of_a_ms)).is_err());
    }
}
