//! Rules as a format has parsed them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{
    Error as ValueError, MapAccessDeserializer, MapDeserializer, SeqAccessDeserializer,
};
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::RuleCost;
use crate::fields::named;
use crate::policies::any_policy::AnyPolicy;

field_types! {
    name: String,
    limiter: String,
    penalty: String,
    count: String,
    shadow: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRules {
    #[serde(default)]
    pub(super) shadow: bool,
    pub(super) rules: All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    pub(super) name: name,
    #[serde(default)]
    pub(super) when: BTreeMap<String, Texts>,
    #[serde(default)]
    pub(super) by: Vec<String>,
    pub(super) limit: RawLimit,
    #[serde(default)]
    pub(super) plans: BTreeMap<String, RawLimit>,
    #[serde(default)]
    pub(super) keys: BTreeMap<String, String>,
    pub(super) limiter: Option<limiter>,
    pub(super) cost: Option<RawCost>,
    pub(super) penalty: Option<penalty>,
    pub(super) count: Option<count>,
    pub(super) shadow: Option<shadow>,
    #[serde(default)]
    pub(super) instead_of: Vec<String>,
}

/// All rules. The list must be present: formats that read nothing as an empty list would accept a
/// truncated file.
pub(super) struct All(pub(super) Vec<RawRule>);

impl<'de> Deserialize<'de> for All {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rules;

        impl<'de> Visitor<'de> for Rules {
            type Value = All;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of rules")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, rules: A) -> Result<All, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(rules)).map(All)
            }
        }

        deserializer.deserialize_any(Rules)
    }
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

/// A number, or the name of an attribute.
pub(super) struct RawCost(pub(super) RuleCost);

impl<'de> Deserialize<'de> for RawCost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match named("cost", deserializer)? {
            Scalar::Number(number) => {
                let cost = u32::try_from(number).map_err(|_| "`cost`: must be at most 4294967295");
                let cost = cost.map_err(de::Error::custom)?;
                Ok(Self(RuleCost::Fixed(cost)))
            }
            Scalar::Text(name) => Ok(Self(RuleCost::Attribute(name))),
            Scalar::Flag(_) => Err(de::Error::custom(
                "`cost`: must be a number or the name of an attribute",
            )),
        }
    }
}

/// A word, or the fields of a policy.
pub(super) enum RawLimit {
    Word(String),
    Fields(Fields),
}

pub(super) struct Fields(BTreeMap<String, Scalar>);

impl Fields {
    /// The policy, of the inherited algorithm where it names none. Fails with the reason.
    pub(super) fn policy(mut self, inherited: Option<&str>) -> Result<AnyPolicy, String> {
        if let Some(algorithm) = inherited.filter(|_| !self.0.contains_key("algorithm")) {
            let algorithm = Scalar::Text(algorithm.to_owned());
            self.0.insert("algorithm".to_owned(), algorithm);
        }
        let fields = MapDeserializer::<_, ValueError>::new(self.0.into_iter());
        AnyPolicy::deserialize(fields).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for RawLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Limits;

        impl<'de> Visitor<'de> for Limits {
            type Value = RawLimit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a limit: \"allow\", \"block\", or fields such as `algorithm` and `rate`",
                )
            }

            fn visit_str<E>(self, text: &str) -> Result<RawLimit, E> {
                Ok(RawLimit::Word(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<RawLimit, A::Error> {
                let fields = BTreeMap::deserialize(MapAccessDeserializer::new(fields))?;
                Ok(RawLimit::Fields(Fields(fields)))
            }
        }

        deserializer.deserialize_any(Limits)
    }
}

/// A value of a field.
enum Scalar {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalars;

        impl Visitor<'_> for Scalars {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a whole number of at least 0 or a boolean")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(flag))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(number), &self);
                number.try_into().map(Scalar::Number).map_err(|_| wrong())
            }
        }

        deserializer.deserialize_any(Scalars)
    }
}

impl IntoDeserializer<'_, ValueError> for Scalar {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Scalar {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self {
            Self::Text(text) => visitor.visit_string(text),
            Self::Number(number) => visitor.visit_u64(number),
            Self::Flag(flag) => visitor.visit_bool(flag),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}
