//! Converts the replies of servers.

use redisson_rate_limiter::Reply;

use crate::failure::Failure;

/// The elements of a list; empty if the reply is not a list.
pub(crate) fn list(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(list) => list,
        _ => Vec::new(),
    }
}

/// The text, or the digits of a number; empty if the reply is neither.
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

/// A number that is sent as such or as decimal digits.
pub(crate) fn number<T: std::str::FromStr>(reply: &Reply) -> Option<T> {
    text(reply).parse().ok()
}

/// An integer of at most 2^53, in the form in which Redis writes it: the library's scripts read no
/// other.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    let is_canonical = number.unsigned_abs() <= 1 << 53 && number.to_string() == text;
    is_canonical.then_some(number)
}

/// A score in ms. If the clock of a client is wrong, it may be any number.
pub(crate) fn score(text: &str) -> i64 {
    let number: f64 = text.parse().unwrap_or_default();
    number as i64 // saturates
}

/// The `N` elements of a list that one of this program's own scripts returned.
pub(crate) fn exactly<const N: usize>(list: Vec<Reply>) -> Result<[Reply; N], Failure> {
    let found = list.len();
    list.try_into()
        .map_err(|_| Failure::store(format!("a script returned {found} values, and not {N}")))
}
