//! The field `Retry-After`.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

use super::limit::seconds_up;

/// The value of `Retry-After`: whole seconds, rounded up.
///
/// ```
/// use redisson_rate_limiter_tower::fields::retry_after;
/// use std::time::Duration;
///
/// assert_eq!(retry_after(Duration::from_millis(1_001)), "2");
/// ```
#[must_use]
pub fn retry_after(time: Duration) -> HeaderValue {
    HeaderValue::from(seconds_up(time))
}

/// Reads the time that `Retry-After` states: a number of seconds, rounded up, or a date, of which
/// it returns the time from `now`: zero if the date has passed. `None` if the value is neither.
///
/// ```
/// use http::HeaderValue;
/// use redisson_rate_limiter_tower::fields::parse_retry_after;
/// use std::time::{Duration, SystemTime};
///
/// let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_470);
/// let date = HeaderValue::from_static("Wed, 21 Oct 2015 07:28:00 GMT");
/// assert_eq!(parse_retry_after(&date, now), Some(Duration::from_secs(10)));
/// assert_eq!(parse_retry_after(&HeaderValue::from_static("120"), now), Some(Duration::from_secs(120)));
/// assert_eq!(parse_retry_after(&HeaderValue::from_static("1.5"), now), Some(Duration::from_secs(2)));
/// assert_eq!(parse_retry_after(&HeaderValue::from_static("soon"), now), None);
/// ```
#[must_use]
pub fn parse_retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let value = value.to_str().ok()?.trim();
    if let Some(seconds) = whole_number_up(value) {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Parses a number such as `30` or `1.5` and rounds it up. A number that does not fit becomes
/// `u64::MAX`.
pub(super) fn whole_number_up(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let has_fraction = fraction.bytes().any(|it| it != b'0');
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    Some(whole.saturating_add(u64::from(has_fraction)))
}
