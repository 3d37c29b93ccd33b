//! How types are written and read as named fields, with the feature `serde`.

mod text;

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

use crate::error::{Error, Result};
pub(crate) use text::{TimeText, read_rate, read_time, read_time_of_rate};

/// Implements `Serialize` and `Deserialize` for a type by its fields. What `validate` refuses is
/// neither written nor read. `names` has the field for each argument that `validate` names.
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
                let read = Self::try_from(<$fields>::deserialize(deserializer)?);
                let read = read.map_err(serde::de::Error::custom)?;
                crate::fields::by_field($validate(&read), &$names)
                    .map_err(serde::de::Error::custom)?;
                Ok(read)
            }
        }
    };
}

/// Defines a type for each field, whose error for an invalid value names the field.
macro_rules! field_types {
    ($($field:ident: $Type:ty,)*) => {
        $(
            #[expect(non_camel_case_types, reason = "it has the name of the field")]
            #[derive(serde::Serialize)]
            #[serde(transparent)]
            pub(super) struct $field {
                pub(super) value: $Type,
            }

            impl<'de> serde::Deserialize<'de> for $field {
                fn deserialize<D: serde::Deserializer<'de>>(
                    value: D,
                ) -> std::result::Result<Self, D::Error> {
                    crate::fields::named(stringify!($field), value).map(|value| Self { value })
                }
            }
        )*
    };
}

/// Reads the value of a field. An error names the field.
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

/// Returns what was validated, or an error that names the field in place of the argument.
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

/// A number or a time as the value of a field.
pub(crate) trait Field: Sized {
    type Written;

    fn written(self) -> Self::Written;

    /// Fails with the reason.
    fn read(written: Self::Written) -> std::result::Result<Self, String>;
}

impl Field for u32 {
    type Written = Self;

    fn written(self) -> Self {
        self
    }

    fn read(written: Self) -> std::result::Result<Self, String> {
        Ok(written)
    }
}

/// Written as [text](read_time).
impl Field for Duration {
    type Written = String;

    fn written(self) -> String {
        TimeText(self).to_string()
    }

    fn read(written: String) -> std::result::Result<Self, String> {
        read_time(&written)
    }
}

/// A policy with a quantity in each period, which the field `rate` holds as one text.
pub(crate) trait OfRate: Sized {
    fn rate_parts(&self) -> (u32, Duration);

    /// Fails with the reason.
    fn of_rate(quantity: u32, period: Duration) -> std::result::Result<Self, String>;

    fn rate_text(&self) -> String {
        let (quantity, period) = self.rate_parts();
        format!("{quantity}/{}", TimeText(period))
    }

    fn read(text: &str) -> std::result::Result<Self, String> {
        let (quantity, time) = read_rate(text)?;
        Self::of_rate(small(quantity)?, read_time_of_rate(time)?)
    }
}

/// Converts a number to the type of a policy's numbers.
pub(crate) fn small(number: u64) -> std::result::Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("`{number}` is more than 4294967295"))
}
