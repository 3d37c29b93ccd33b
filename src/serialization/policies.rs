//! The fields of each policy.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use super::millis;
use crate::error::Result;
use crate::policies::algorithm::Model;
use crate::policies::{
    FixedWindow, LeakyBucket, PenaltyTokenBucket, QuotaBucket, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket,
};

/// A limit in each window.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FixedWindowFields {
    limit: u32,
    window_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aligned_to_clock: bool,
}

impl From<FixedWindow> for FixedWindowFields {
    fn from(policy: FixedWindow) -> Self {
        Self {
            limit: policy.limit(),
            window_ms: millis(policy.window()),
            aligned_to_clock: policy.is_aligned_to_clock(),
        }
    }
}

impl From<FixedWindowFields> for FixedWindow {
    fn from(fields: FixedWindowFields) -> Self {
        let policy = Self::new(fields.limit, Duration::from_millis(fields.window_ms));
        if fields.aligned_to_clock {
            policy.aligned_to_clock()
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
    aligned_to_clock: bool,
}

impl From<SlidingWindowCounter> for SlidingWindowCounterFields {
    fn from(policy: SlidingWindowCounter) -> Self {
        Self {
            limit: policy.limit(),
            window_ms: millis(policy.window()),
            period_ms: Some(millis(policy.period())),
            aligned_to_clock: policy.is_aligned_to_clock(),
        }
    }
}

impl From<SlidingWindowCounterFields> for SlidingWindowCounter {
    fn from(fields: SlidingWindowCounterFields) -> Self {
        let mut policy = Self::new(fields.limit, Duration::from_millis(fields.window_ms));
        if let Some(millis) = fields.period_ms {
            policy = policy.with_period(Duration::from_millis(millis));
        }
        if fields.aligned_to_clock {
            policy = policy.aligned_to_clock();
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
    aligned_to_clock: bool,
}

macro_rules! unit_bucket {
    ($bucket:ident) => {
        impl From<$bucket> for UnitBucketFields {
            fn from(policy: $bucket) -> Self {
                Self {
                    quantity: policy.quantity(),
                    unit_ms: millis(policy.unit()),
                    capacity: Some(policy.capacity()),
                    aligned_to_clock: policy.is_aligned_to_clock(),
                }
            }
        }

        impl From<UnitBucketFields> for $bucket {
            fn from(fields: UnitBucketFields) -> Self {
                let mut policy = Self::new(fields.quantity, Duration::from_millis(fields.unit_ms));
                if let Some(capacity) = fields.capacity {
                    policy = policy.with_capacity(capacity);
                }
                if fields.aligned_to_clock {
                    policy = policy.aligned_to_clock();
                }
                policy
            }
        }

        as_fields!($bucket, UnitBucketFields, Model::validate);
    };
}

unit_bucket!(LeakyBucket);
unit_bucket!(PenaltyTokenBucket);
