//! A key that outlives the request.

use std::borrow::Cow;
use std::ops::Deref;
use std::str;

/// The most bytes of a short key: most keys, such as addresses, UUIDs and hashes, are short.
const SHORT: usize = 46;

/// A key that is kept with its decision. A short key needs no allocation.
#[derive(Clone)]
pub(crate) enum KeptKey {
    Short { bytes: [u8; SHORT], length: u8 },
    Long(Box<str>),
}

impl From<Cow<'_, str>> for KeptKey {
    fn from(key: Cow<'_, str>) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(begin), Ok(length)) => {
                begin.copy_from_slice(key.as_bytes());
                Self::Short { bytes, length }
            }
            _ => Self::Long(key.into()),
        }
    }
}

impl Deref for KeptKey {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            // The bytes were valid UTF-8 when they were copied.
            Self::Short { bytes, length } => {
                str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default()
            }
            Self::Long(key) => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{KeptKey, SHORT};

    #[test]
    fn a_key_of_any_length_stays_as_it_is() {
        for length in [0, 1, SHORT - 2, SHORT - 1, SHORT, SHORT + 1, 256, 1_000] {
            for key in ["a".repeat(length), "é".repeat(length / 2)] {
                let kept = KeptKey::from(Cow::from(&*key));
                assert_eq!(matches!(kept, KeptKey::Short { .. }), key.len() <= SHORT);
                assert_eq!(&*kept, key);
            }
        }
    }
}
