//! Types as fields with names: with the feature `serde`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

use crate::error::{Error, Result};

/// Writes and reads a type as its fields, once `validate` has found it good. `names` has the field
/// of each argument that `validate` names.
macro_rules! as_fields {
    ($type:ty, $fields:ty, $validate:expr, $names:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                crate::fields::by_field($validate(self), &$names)
                    .map_err(serde::ser::Error::custom)?;
                <$fields>::from(self).serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read = Self::from(<$fields>::deserialize(deserializer)?);
                crate::fields::by_field($validate(&read), &$names)
                    .map_err(serde::de::Error::custom)?;
                Ok(read)
            }
        }
    };
}

/// A type for each field, which has the field's name in the error of a value that it cannot have.
macro_rules! field_types {
    ($($field:ident: $Type:ty,)*) => {
        $(
            #[expect(non_camel_case_types, reason = "it has the name of the field")]
            #[derive(serde::Serialize)]
            #[serde(transparent)]
            struct $field {
                value: $Type,
            }

            impl<'de> serde::Deserialize<'de> for $field {
                fn deserialize<D: serde::Deserializer<'de>>(
                    value: D,
                ) -> std::result::Result<Self, D::Error> {
                    { crate::fields::named(stringify!($field), value) }.map(|value| Self { value })
                }
            }
        )*
    };
}

/// The value of the field of this name.
pub(crate) fn named<'de, T, D>(field: &str, value: D) -> std::result::Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(value).map_err(|error| {
        let text = error.to_string();
        match text.starts_with("missing field") {
            true => error,
            false => D::Error::custom(format_args!("`{field}`: {}", text.trim_end())),
        }
    })
}

/// What was validated, with an error by the name of the field.
pub(crate) fn by_field<T>(validated: Result<T>, names: &[(&str, &'static str)]) -> Result<T> {
    validated.map_err(|error| match error {
        Error::InvalidArgument { argument, reason } => {
            let field = names.iter().find(|(name, _)| *name == argument);
            Error::InvalidArgument {
                argument: field.map_or(argument, |(_, field)| field),
                reason,
            }
        }
        other => other,
    })
}

/// A number as the value of a field.
pub(crate) trait Field {
    type Written;

    fn written(self) -> Self::Written;

    fn read(written: Self::Written) -> Self;
}

impl Field for u32 {
    type Written = Self;

    fn written(self) -> Self {
        self
    }

    fn read(written: Self) -> Self {
        written
    }
}

/// Whole milliseconds.
impl Field for Duration {
    type Written = u64;

    fn written(self) -> u64 {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX)
    }

    fn read(written: u64) -> Self {
        Self::from_millis(written)
    }
}
