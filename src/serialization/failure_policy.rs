//! The name of a failure policy.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Result;
use crate::failure_policy::{FailurePolicy, LocalShare};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailurePolicyName {
    Error,
    Wait,
    Deny,
    Allow,
    /// One of so many clients.
    LocalOneOf(NonZeroU32),
}

impl Serialize for FailurePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match self {
            Self::Error => FailurePolicyName::Error,
            Self::Wait => FailurePolicyName::Wait,
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
            FailurePolicyName::Wait => Self::Wait,
            FailurePolicyName::Deny => Self::Deny,
            FailurePolicyName::Allow => Self::Allow,
            FailurePolicyName::LocalOneOf(clients) => Self::Local(LocalShare::one_of(clients)),
        })
    }
}
