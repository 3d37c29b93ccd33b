//! Rules as a format has parsed them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use crate::fields::{Fields, Scalar};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRules {
    #[serde(default)]
    pub(super) shadow: bool,
    #[serde(deserialize_with = "all_rules")]
    pub(super) rules: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    pub(super) name: String,
    #[serde(default)]
    pub(super) when: BTreeMap<String, Texts>,
    #[serde(default)]
    pub(super) by: Vec<String>,
    pub(super) limit: RawLimit,
    #[serde(default)]
    pub(super) plans: BTreeMap<String, RawLimit>,
    #[serde(default)]
    pub(super) keys: BTreeMap<String, String>,
    pub(super) limiter: Option<Scalar>,
    pub(super) cost: Option<Scalar>,
    pub(super) penalty: Option<Scalar>,
    pub(super) count: Option<Scalar>,
    pub(super) shadow: Option<Scalar>,
    #[serde(default)]
    pub(super) instead_of: Vec<String>,
}

/// The list must be present: formats that read nothing as an empty list would accept a truncated
/// file.
fn all_rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RawRule>, D::Error> {
    let rules = Option::deserialize(deserializer)?;
    rules.ok_or_else(|| D::Error::custom("`rules`: must be a list of rules"))
}

/// A text, or a list of texts.
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, texts: A) -> Result<Texts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(texts)).map(Texts)
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

/// A limit as it is written: a word, or the fields of a policy.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a limit: \"allow\", \"block\", or fields such as `algorithm` and `rate`"
)]
pub(super) enum RawLimit {
    Word(String),
    Fields(Fields),
}
