//! Reading limits from the header fields of a response.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

use super::retry_after::{parse_retry_after, whole_number_up};
use super::{Limit, RATELIMIT, RATELIMIT_POLICY, X_LIMIT, X_REMAINING, X_RESET};

/// The forms that state limit, remaining and reset in a field each.
const TRIOS: [[HeaderName; 3]; 2] = [
    // The fields of the drafts before version 7.
    [
        HeaderName::from_static("ratelimit-limit"),
        HeaderName::from_static("ratelimit-remaining"),
        HeaderName::from_static("ratelimit-reset"),
    ],
    [X_LIMIT, X_REMAINING, X_RESET],
];

/// From this number on, `X-RateLimit-Reset` is a point in time in seconds since 1970, as some
/// servers send it: the number is a point in 2001, and as a duration it would be 31 years.
const POINT_IN_TIME: u64 = 1_000_000_000;
/// From this number on, `X-RateLimit-Reset` is a point in time in milliseconds since 1970.
const POINT_IN_MILLIS: u64 = 1000 * POINT_IN_TIME;

/// Reads the limits that a response states, in any form of [`Fields`](super::Fields), or by the
/// fields `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of the draft's first
/// versions. Malformed fields are ignored, as the draft asks, so the result may be empty.
/// `X-RateLimit-Reset` may be a number of seconds, or a point in time in seconds or milliseconds
/// since 1970, which is compared with `now`. A fraction of a second is rounded up.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use redisson_rate_limiter_tower::fields::parse;
/// use std::time::{Duration, SystemTime};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit", HeaderValue::from_static(r#""burst";r=0;t=2, "daily";r=900"#));
/// headers.insert("ratelimit-policy", HeaderValue::from_static(r#""burst";q=10;w=5, "daily";q=1000;w=86400"#));
/// let limits = parse(&headers, SystemTime::now());
/// assert_eq!((&*limits[0].name, limits[0].remaining, limits[0].limit), ("burst", 0, Some(10)));
/// assert_eq!(limits[0].available_in, Some(Duration::from_secs(2)));
/// assert_eq!((&*limits[1].name, limits[1].remaining, limits[1].limit), ("daily", 900, Some(1_000)));
/// ```
#[must_use]
pub fn parse(headers: &HeaderMap, now: SystemTime) -> Vec<Limit<'static>> {
    if let Some(field) = combined(headers, &RATELIMIT) {
        let policies = combined(headers, &RATELIMIT_POLICY).unwrap_or_default();
        return ietf(&field, &policies)
            .or_else(|| Some(vec![draft7(&field, &policies)?]))
            .unwrap_or_default();
    }
    let trios = TRIOS.into_iter();
    trios
        .filter_map(|trio| limit_of_trio(headers, &trio, now))
        .take(1)
        .collect()
}

/// How long a client is to wait before its next request: the time in `Retry-After`, or else the
/// longest time until each limit with nothing left has something again. `None` if the client need
/// not wait.
///
/// A server may state any time, so bound the time that you wait.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use redisson_rate_limiter_tower::fields::wait;
/// use std::time::{Duration, SystemTime};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit", HeaderValue::from_static(r#""burst";r=0;t=2, "daily";r=900;t=3600"#));
/// assert_eq!(wait(&headers, SystemTime::now()), Some(Duration::from_secs(2)));
/// headers.insert("retry-after", HeaderValue::from_static("5"));
/// assert_eq!(wait(&headers, SystemTime::now()), Some(Duration::from_secs(5)));
/// ```
#[must_use]
pub fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let retry_after = headers.get(RETRY_AFTER);
    if let Some(time) = retry_after.and_then(|it| parse_retry_after(it, now)) {
        return Some(time);
    }
    let limits = parse(headers, now);
    let exhausted = limits.iter().filter(|it| it.remaining == 0);
    exhausted
        .filter_map(|it| it.available_in.or(it.reset))
        .max()
}

/// Joins the lines of a field to one value. `None` if the field is missing or not ASCII.
fn combined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines = headers.get_all(name).iter().map(|it| it.to_str().ok());
    let lines: Vec<_> = lines.collect::<Option<_>>()?;
    (!lines.is_empty()).then(|| lines.join(", "))
}

fn ietf(field: &str, policies: &str) -> Option<Vec<Limit<'static>>> {
    let policies = items(policies).unwrap_or_default();
    let limits = items(field)?.into_iter().map(|(name, parameters)| {
        let of_limit = |it: &&(String, _)| it.0 == name;
        let policy = policies.iter().find(of_limit).map(|it| &it.1);
        let of_policy = |parameter| number(policy?, parameter);
        let partition_key = parameters.get("pk").and_then(BareItem::as_byte_sequence);
        let unit = policy.and_then(|it| it.get("qu")?.as_string());
        Some(Limit {
            limit: of_policy("q"),
            window: of_policy("w").map(Duration::from_secs),
            remaining: number(&parameters, "r")?,
            available_in: parameters.get("t").and_then(seconds),
            reset: None,
            unit: unit.map(|it| Cow::Owned(it.as_str().to_owned())),
            partition_key: partition_key.map(|it| Cow::Owned(it.to_vec())),
            name: Cow::Owned(name),
        })
    });
    limits.collect()
}

/// The items of a list of strings, and their parameters.
fn items(field: &str) -> Option<Vec<(String, Parameters)>> {
    let list: List = Parser::new(field).parse().ok()?;
    let items = list.into_iter().map(|entry| match entry {
        ListEntry::Item(Item {
            bare_item: BareItem::String(name),
            params,
        }) => Some((name.as_str().to_owned(), params)),
        _ => None,
    });
    items.collect()
}

fn draft7(field: &str, policies: &str) -> Option<Limit<'static>> {
    let numbers: Dictionary = Parser::new(field).parse().ok()?;
    let item_of = |name| match numbers.get(name)? {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    let number_of = |name| unsigned(item_of(name)?);
    let limit = number_of("limit")?;
    Some(Limit {
        limit: Some(limit),
        window: window_of(policies, limit),
        remaining: number_of("remaining")?,
        available_in: item_of("reset").and_then(seconds),
        ..Limit::default()
    })
}

fn limit_of_trio(
    headers: &HeaderMap,
    trio: &[HeaderName; 3],
    now: SystemTime,
) -> Option<Limit<'static>> {
    let [limit, remaining, reset] = trio.each_ref().map(|name| combined(headers, name));
    let first = |field: &str| integers(field)?.first().map(|it| it.0);
    let quota = limit.as_deref().and_then(first);
    // The drafts up to version 5 state the windows in `RateLimit-Limit`, version 6 in
    // `RateLimit-Policy`.
    let policies = || combined(headers, &RATELIMIT_POLICY);
    let window = |quota| {
        let with_limit = window_of(limit.as_deref()?, quota);
        with_limit.or_else(|| window_of(&policies()?, quota))
    };
    Some(Limit {
        limit: quota,
        window: quota.and_then(window),
        remaining: first(&remaining?)?,
        reset: reset.and_then(|reset| {
            let first = reset.split([',', ';']).next()?;
            Some(until_reset(whole_number_up(first.trim())?, now))
        }),
        ..Limit::default()
    })
}

/// The time from `now` until `reset`, a duration or a point in time.
fn until_reset(reset: u64, now: SystemTime) -> Duration {
    let since_1970 = match reset {
        POINT_IN_MILLIS.. => Duration::from_millis(reset),
        POINT_IN_TIME.. => Duration::from_secs(reset),
        seconds => return Duration::from_secs(seconds),
    };
    let point = SystemTime::UNIX_EPOCH.checked_add(since_1970);
    point.map_or(Duration::MAX, |it| {
        it.duration_since(now).unwrap_or_default()
    })
}

/// The window that a list such as `100;w=60, 1000;w=3600` states for `quota`.
fn window_of(policies: &str, quota: u64) -> Option<Duration> {
    let policies = integers(policies)?;
    let windows = policies.iter().filter(|it| it.0 == quota);
    let mut windows = windows.filter_map(|it| number(&it.1, "w"));
    windows.next().map(Duration::from_secs)
}

/// The items of a list of numbers, and their parameters.
fn integers(field: &str) -> Option<Vec<(u64, Parameters)>> {
    let list: List = Parser::new(field).parse().ok()?;
    let items = list.into_iter().map(|entry| match entry {
        ListEntry::Item(item) => Some((unsigned(&item.bare_item)?, item.params)),
        ListEntry::InnerList(_) => None,
    });
    items.collect()
}

fn number(parameters: &Parameters, name: &str) -> Option<u64> {
    unsigned(parameters.get(name)?)
}

/// A number of seconds, of which a fraction is rounded up.
fn seconds(item: &BareItem) -> Option<Duration> {
    let seconds = match item.as_decimal() {
        Some(decimal) => whole_number_up(&decimal.to_string())?,
        None => unsigned(item)?,
    };
    Some(Duration::from_secs(seconds))
}

fn unsigned(item: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer()?)).ok()
}
