//! An example of each policy, for what concerns all of them.

use std::time::Duration;

/// A policy with these numbers, as nearly as it can have them.
pub(crate) trait Example {
    /// A new target has `limit`, and whatever it has used, all of it is back a `window` later.
    fn example(limit: u32, window: Duration) -> Self;
}

/// One in each part of the window, or all of the limit in the window if its parts are no whole
/// milliseconds.
pub(super) fn pace(limit: u32, window: Duration) -> (u32, Duration) {
    let millis = window.as_millis();
    match millis % u128::from(limit.max(1)) {
        0 if millis > 0 => (1, window / limit.max(1)),
        _ => (limit, window),
    }
}

/// The number, or the largest that fits.
pub(super) fn fitting(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
