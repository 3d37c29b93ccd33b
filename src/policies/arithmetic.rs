//! The arithmetic of the policies, as the scripts have it, whose numbers are exact up to 2^53, and
//! of the examples.

use std::time::Duration;

/// The longest time, in ms, that a state's numbers may span: added to a current time it stays an
/// exact Lua number.
pub(super) const LONGEST: i64 = 1 << 52;

/// `a / b` rounded up, for a positive `b`.
#[inline]
pub(super) fn div_ceil(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}

/// The milliseconds of a duration that `validate` has accepted, which therefore fit.
#[inline]
pub(super) fn in_millis(valid: Duration) -> i64 {
    valid.as_millis() as i64
}

/// The quantity and period by which `limit` comes back in `window`: 1 in each part of the window,
/// or all of the limit in the whole window if its parts are not whole milliseconds.
pub(super) fn pace(limit: u32, window: Duration) -> (u32, Duration) {
    let millis = window.as_millis();
    match millis % u128::from(limit.max(1)) {
        0 if millis > 0 => (1, window / limit.max(1)),
        _ => (limit, window),
    }
}

/// The number, or the largest one that fits.
pub(super) fn fitting(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
