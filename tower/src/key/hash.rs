//! Hashes that replace secret and long keys.

use std::borrow::Cow;
use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The length of the longest key that is used as it is, in bytes.
const LONGEST: usize = 256;

/// Hashes a key as [`Key::hashed`](super::Key::hashed) does, for example for a file of rules: the
/// first 16 bytes of HMAC-SHA-256 with the secret, as hexadecimal digits.
///
/// ```
/// use redisson_rate_limiter_tower::key::hash;
///
/// assert_eq!(hash("sk-123", "secret of this service"), "feb880058dc8f5122458b99e61971f8c");
/// ```
#[must_use]
pub fn hash(key: &str, secret: impl AsRef<[u8]>) -> String {
    hash_with(keyed(secret.as_ref()), key)
}

pub(super) fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    let Ok(hmac) = Hmac::new_from_slice(secret) else {
        unreachable!("HMAC refuses no secret")
    };
    hmac
}

/// The first half of the HMAC, in hexadecimal: 128 bits are enough that no two keys collide by
/// chance, and nobody without the secret can find keys that do.
pub(super) fn hash_with(hmac: Hmac<Sha256>, key: &str) -> String {
    let hash = hmac.chain_update(key).finalize();
    hex(&hash.into_bytes()[..16])
}

/// Bounds the length of a key that anyone may choose: returns the key, or its hash if it has more
/// than 256 bytes. The hash is `sha256-` and the 64 hexadecimal digits of SHA-256, in lower case.
///
/// ```
/// use redisson_rate_limiter_tower::key::bounded;
///
/// assert_eq!(bounded("alice".into()), "alice");
/// assert_eq!(bounded("a".repeat(1_000).into()).len(), "sha256-".len() + 64);
/// ```
#[must_use]
pub fn bounded(key: Cow<'_, str>) -> Cow<'_, str> {
    if key.len() <= LONGEST {
        return key;
    }
    Cow::Owned(format!("sha256-{}", hex(&Sha256::digest(&*key))))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // writing to a String never fails
    }
    text
}
