//! Types as fields with names: with the feature `serde`.

use std::time::Duration;

use crate::error::Error;

/// Writes and reads a type as its fields, once `validate` has found it good. `names` has the field of each argument that
/// `validate` names.
macro_rules! as_fields {
    ($type:ty, $fields:ty, $validate:expr, $names:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $validate(self).map_err(|error| {
                    serde::ser::Error::custom(crate::fields::by_field(error, &$names))
                })?;
                <$fields>::from(self).serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read = Self::from(<$fields>::deserialize(deserializer)?);
                $validate(&read).map_err(|error| {
                    serde::de::Error::custom(crate::fields::by_field(error, &$names))
                })?;
                Ok(read)
            }
        }
    };
}

/// The same error, by the name of the field.
pub(crate) fn by_field(error: Error, names: &[(&str, &'static str)]) -> Error {
    let Error::InvalidArgument { argument, reason } = error else {
        return error;
    };
    let field = names.iter().find(|(name, _)| *name == argument);
    Error::InvalidArgument {
        argument: field.map_or(argument, |(_, field)| field),
        reason,
    }
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
