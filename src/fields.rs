//! How types are written and read as named fields, with the feature `serde`. A type puts its values
//! under their names and takes them from there, so each error names the field with the mistake.

mod text;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Error as _, Serializer};

use crate::error::{Error, Result};
use text::read_time;
pub(crate) use text::{TimeText, read_rate, read_time_of_rate};

/// A type that is written and read as fields. What `check` refuses is neither written nor read.
pub(crate) trait AsFields: Sized {
    /// The names of all fields.
    const FIELDS: &'static [&'static str];

    /// The field for each argument that `check` names.
    const ARGUMENTS: &'static [(&'static str, &'static str)];

    fn check(&self) -> Result<()>;

    fn write(&self, fields: &mut Fields);

    /// Fails with the reason.
    fn read(fields: &mut Fields) -> Result<Self, String>;

    /// Reads all fields and checks what was read. Fails with the reason.
    fn of(mut fields: Fields) -> Result<Self, String> {
        let mut names = fields.0.iter().map(|(name, _)| &**name);
        if let Some(name) = names.find(|it| !Self::FIELDS.contains(it)) {
            return Err(unknown("field", name, Self::FIELDS));
        }
        let read = Self::read(&mut fields)?;
        match read.check_fields() {
            Ok(()) => Ok(read),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Checks it. An error names the field in place of the argument.
    fn check_fields(&self) -> Result<()> {
        self.check().map_err(|error| match error {
            Error::InvalidArgument { argument, reason } => {
                let mut fields = Self::ARGUMENTS.iter();
                let field = fields.find(|(name, _)| *name == argument);
                Error::InvalidArgument {
                    argument: field.map_or(argument, |(_, field)| field),
                    reason,
                }
            }
            other => other,
        })
    }
}

/// Implements `Serialize` and `Deserialize` for types by their fields.
macro_rules! as_fields {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(
                &self,
                serializer: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                crate::fields::write(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> std::result::Result<Self, D::Error> {
                crate::fields::read(deserializer)
            }
        }
    };
}

pub(crate) fn write<S: Serializer>(it: &impl AsFields, serializer: S) -> Result<S::Ok, S::Error> {
    it.check_fields().map_err(S::Error::custom)?;
    let mut fields = Fields::default();
    it.write(&mut fields);
    serializer.collect_map(fields.0)
}

pub(crate) fn read<'de, T: AsFields, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::of(Fields::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Names with their values, in the order in which they are written.
#[derive(Default)]
pub(crate) struct Fields(Vec<(String, Scalar)>);

/// A field that is null is as one that is missing.
impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fields with names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Option<Scalar>>()? {
            match all.entry(name) {
                Entry::Vacant(field) => field.insert(value),
                Entry::Occupied(field) => {
                    let name = field.key();
                    return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
                }
            };
        }
        let fields = all.into_iter();
        let fields = fields.filter_map(|(name, value)| Some((name, value?)));
        Ok(Fields(fields.collect()))
    }
}

impl Fields {
    pub(crate) fn put(&mut self, name: &str, value: impl FieldValue) {
        self.0.push((name.to_owned(), value.written()));
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(it, _)| it == name)
    }

    pub(crate) fn take<T: FieldValue>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(place) = self.0.iter().position(|(it, _)| it == name) else {
            return Ok(None);
        };
        let read = T::read(self.0.swap_remove(place).1);
        read.map(Some)
            .map_err(|reason| format!("`{name}`: {reason}"))
    }

    pub(crate) fn require<T: FieldValue>(&mut self, name: &str) -> Result<T, String> {
        let value = self.take(name)?;
        value.ok_or_else(|| format!("missing field `{name}`"))
    }
}

/// The error for a name that is none of these.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let known: Vec<_> = known.iter().map(|it| format!("`{it}`")).collect();
    format!(
        "unknown {what} `{name}`, expected one of {}",
        known.join(", ")
    )
}

/// The value of a field.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Scalar {
    Flag(bool),
    Number(u64),
    Text(String),
    /// One that no field has.
    #[serde(skip_serializing)]
    Other(IgnoredAny),
}

/// A type of the values of fields.
pub(crate) trait FieldValue: Sized {
    fn written(self) -> Scalar;

    /// Fails with the reason.
    fn read(value: Scalar) -> Result<Self, String>;
}

impl FieldValue for bool {
    fn written(self) -> Scalar {
        Scalar::Flag(self)
    }

    fn read(value: Scalar) -> Result<Self, String> {
        match value {
            Scalar::Flag(flag) => Ok(flag),
            _ => Err("must be true or false".to_owned()),
        }
    }
}

impl FieldValue for u32 {
    fn written(self) -> Scalar {
        Scalar::Number(self.into())
    }

    fn read(value: Scalar) -> Result<Self, String> {
        let number = match value {
            Scalar::Number(number) => number.try_into().ok(),
            _ => None,
        };
        number.ok_or_else(|| "must be a whole number of at most 4294967295".to_owned())
    }
}

impl FieldValue for String {
    fn written(self) -> Scalar {
        Scalar::Text(self)
    }

    fn read(value: Scalar) -> Result<Self, String> {
        match value {
            Scalar::Text(text) => Ok(text),
            _ => Err("must be a string".to_owned()),
        }
    }
}

/// Written as [text](read_time).
impl FieldValue for Duration {
    fn written(self) -> Scalar {
        TimeText(self).to_string().written()
    }

    fn read(value: Scalar) -> Result<Self, String> {
        read_time(&String::read(value)?)
    }
}

/// A quantity in each period, as one text.
pub(crate) struct PerTime<N>(pub(crate) N, pub(crate) Duration);

impl<N: TryFrom<u64> + fmt::Display> FieldValue for PerTime<N> {
    fn written(self) -> Scalar {
        let Self(quantity, period) = self;
        format!("{quantity}/{}", TimeText(period)).written()
    }

    fn read(value: Scalar) -> Result<Self, String> {
        let text = String::read(value)?;
        let (quantity, time) = read_rate(&text)?;
        Ok(Self(quantity, read_time_of_rate(time)?))
    }
}
