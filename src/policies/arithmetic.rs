//! Arithmetic as the scripts have it, whose numbers are exact up to 2^53.

/// `a / b` rounded up, for a positive `b`.
#[inline]
pub(super) fn div_ceil(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}

/// The longest time, in ms, that a state's numbers may span: added to a current time it stays an
/// exact Lua number.
pub(super) const LONGEST: i64 = 1 << 52;
