//! What servers answer, as the values that it stands for.

use redisson_rate_limiter::Reply;

use crate::failure::Failure;

/// The elements of a list; none if it is no list.
pub(crate) fn list(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(list) => list,
        _ => Vec::new(),
    }
}

/// A text, or the digits of a number; empty if it is neither.
pub(crate) fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Integer(number) => number.to_string(),
        _ => String::new(),
    }
}

pub(crate) fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bytes(bytes) => bytes,
        other => text(&other).into_bytes(),
    }
}

/// A number in decimal digits.
pub(crate) fn number<T: std::str::FromStr>(reply: &Reply) -> Option<T> {
    text(reply).parse().ok()
}

/// An integer in the one form that the scripts of the library read: of Redis, and up to 2^53.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    let is_one = number.unsigned_abs() <= 1 << 53 && number.to_string() == text;
    is_one.then_some(number)
}

/// A score. Those of peers whose clock is wrong may be anything.
pub(crate) fn score(text: &str) -> i64 {
    let number: f64 = text.parse().unwrap_or_default();
    number as i64 // saturates
}

/// A list of so many elements, which this program's own scripts return.
pub(crate) fn exactly<const N: usize>(list: Vec<Reply>) -> Result<[Reply; N], Failure> {
    let found = list.len();
    list.try_into()
        .map_err(|_| Failure::store(format!("a script returned {found} values, and not {N}")))
}
