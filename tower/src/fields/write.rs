//! Writing limits as header fields.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};

use super::Fields;
use super::limit::{Limit, seconds_up};

const Q: &KeyRef = KeyRef::constant("q");
const W: &KeyRef = KeyRef::constant("w");
const QU: &KeyRef = KeyRef::constant("qu");
const PK: &KeyRef = KeyRef::constant("pk");
const R: &KeyRef = KeyRef::constant("r");
const T: &KeyRef = KeyRef::constant("t");

/// The initial capacity of a field's buffer for each limit, in bytes.
const BYTES_PER_LIMIT: usize = 64;

impl Fields {
    /// Adds the fields that state these limits to `headers`. The strictest limit must come first.
    /// Fields of [`Ietf`](Self::Ietf) are added to those that `headers` has, because the draft
    /// reads several lines as one list. Fields of the other forms are left out if `headers` has
    /// one already.
    ///
    /// A number is at most 999,999,999,999,999, as in every structured field. A window under a
    /// second is left out, because the field has whole seconds; `t` is at most `w`, and `r` at most
    /// `q`. In a name, a character that is not printable ASCII becomes `_`.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use redisson_rate_limiter::{Decision, Denied, Granted, Quota};
    /// use redisson_rate_limiter_tower::fields::{Fields, Limit};
    /// use std::time::Duration;
    ///
    /// let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    /// let burst: Decision = Denied::new(second).with_quota(Quota::new(10, second)).into();
    /// let hourly: Decision = Denied::new(Duration::ZERO).with_quota(Quota::new(1_000, hour)).with_remaining(900).with_reset(hour).into();
    /// let limits: Vec<_> = [("burst", &burst), ("hourly", &hourly)]
    ///     .into_iter()
    ///     .filter_map(|(name, decision)| Limit::of(name, decision))
    ///     .collect();
    ///
    /// let mut headers = HeaderMap::new();
    /// Fields::Ietf.add_to(&mut headers, &limits);
    /// assert_eq!(headers["ratelimit-policy"], r#""burst";q=10;w=1, "hourly";q=1000;w=3600"#);
    /// assert_eq!(headers["ratelimit"], r#""burst";r=0;t=1, "hourly";r=900;t=0"#);
    ///
    /// let mut headers = HeaderMap::new();
    /// Fields::Draft7.add_to(&mut headers, &limits);
    /// assert_eq!(headers["ratelimit"], "limit=10, remaining=0, reset=1");
    /// assert_eq!(headers["ratelimit-policy"], "10;w=1, 1000;w=3600");
    /// ```
    pub fn add_to(self, headers: &mut HeaderMap, limits: &[Limit<'_>]) {
        self.write(limits).add_to(headers);
    }

    /// Adds the fields that state the limits, and not those that state what is left of them: for
    /// a request that costs more than the whole limit.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use redisson_rate_limiter_tower::fields::{Fields, Limit};
    ///
    /// let mut limit = Limit::default();
    /// (limit.name, limit.limit) = ("tokens".into(), Some(8_000));
    /// let mut headers = HeaderMap::new();
    /// Fields::Ietf.add_policies_to(&mut headers, &[limit]);
    /// assert_eq!(headers["ratelimit-policy"], r#""tokens";q=8000"#);
    /// assert!(!headers.contains_key("ratelimit"));
    /// ```
    pub fn add_policies_to(self, headers: &mut HeaderMap, limits: &[Limit<'_>]) {
        let values = match (self, limits.first()) {
            (Self::None, _) | (_, None) => return,
            (Self::Ietf, _) => [None, ietf_policies(limits), None],
            (Self::Draft7, _) => [None, draft7_policies(limits), None],
            (Self::XRateLimit | Self::XRateLimitAt, Some(strictest)) => {
                let limit = strictest.limit.and_then(|it| value(it.to_string()));
                [limit, None, None]
            }
        };
        let fields = self;
        Written { fields, values }.add_to(headers);
    }

    /// Writes the values of the fields that state the limits and what is left of them.
    pub(crate) fn write(self, limits: &[Limit<'_>]) -> Written {
        let values = match (self, limits.first()) {
            (Self::None, _) | (_, None) => [None, None, None],
            (Self::Ietf, _) => [ietf_limits(limits), ietf_policies(limits), None],
            (Self::Draft7, Some(strictest)) => [draft7(strictest), draft7_policies(limits), None],
            (Self::XRateLimit, Some(strictest)) => x(strictest, Duration::ZERO),
            (Self::XRateLimitAt, Some(strictest)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                x(strictest, now.unwrap_or_default())
            }
        };
        let fields = self;
        Written { fields, values }
    }
}

/// The fields of one response.
pub(crate) struct Written {
    fields: Fields,
    /// The values in the order of [`Fields::names`], without `Retry-After`. `None` leaves the
    /// field out.
    values: [Option<HeaderValue>; 3],
}

impl Written {
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        let names = &self.fields.names()[1..]; // the first one is Retry-After
        let is_list = self.fields == Fields::Ietf;
        if !is_list && names.first().is_some_and(|it| headers.contains_key(it)) {
            return;
        }
        for (name, value) in names.iter().zip(self.values) {
            let Some(value) = value else { continue };
            if is_list {
                headers.append(name, value);
            } else {
                headers.insert(name, value);
            }
        }
    }
}

fn ietf_policies(limits: &[Limit<'_>]) -> Option<HeaderValue> {
    let mut buffer = String::with_capacity(BYTES_PER_LIMIT * limits.len());
    let mut policies = ListSerializer::with_buffer(&mut buffer);
    for limit in limits {
        let Some(quota) = limit.limit else { continue };
        let mut written = policies.bare_item(&*string(&limit.name));
        written = written.parameter(Q, integer(quota));
        if let Some(unit) = &limit.unit {
            written = written.parameter(QU, &*string(unit));
        }
        if let Some(window) = window(limit) {
            written = written.parameter(W, integer(window));
        }
        if let Some(key) = &limit.partition_key {
            written = written.parameter(PK, &**key);
        }
        let _ = written.finish();
    }
    policies.finish()?;
    value(buffer)
}

fn ietf_limits(limits: &[Limit<'_>]) -> Option<HeaderValue> {
    let mut buffer = String::with_capacity(BYTES_PER_LIMIT * limits.len());
    let mut list = ListSerializer::with_buffer(&mut buffer);
    for limit in limits {
        let mut written = list.bare_item(&*string(&limit.name));
        written = written.parameter(R, integer(remaining(limit)));
        if let Some(time) = time(limit) {
            written = written.parameter(T, integer(time));
        }
        if let Some(key) = &limit.partition_key {
            written = written.parameter(PK, &**key);
        }
        let _ = written.finish();
    }
    list.finish()?;
    value(buffer)
}

fn draft7_policies(limits: &[Limit<'_>]) -> Option<HeaderValue> {
    let mut buffer = String::with_capacity(BYTES_PER_LIMIT * limits.len());
    let mut policies = ListSerializer::with_buffer(&mut buffer);
    for limit in limits {
        let Some(quota) = limit.limit else { continue };
        let written = policies.bare_item(integer(quota));
        if let Some(window) = window(limit) {
            let _ = written.parameter(W, integer(window));
        }
    }
    policies.finish()?;
    value(buffer)
}

fn draft7(limit: &Limit<'_>) -> Option<HeaderValue> {
    let numbers = [
        ("limit", limit.limit),
        ("remaining", Some(remaining(limit))),
        ("reset", reset(limit)),
    ];
    let mut field = String::with_capacity(BYTES_PER_LIMIT);
    for (name, number) in numbers {
        let Some(number) = number else { continue };
        let separator = if field.is_empty() { "" } else { ", " };
        field += separator;
        field += name;
        field.push('=');
        field += &integer(number).to_string();
    }
    value(field)
}

/// The values of the fields that begin with `X-`. `now` is added to the reset: zero for a
/// duration, the time since 1970 for a point in time.
fn x(limit: &Limit<'_>, now: Duration) -> [Option<HeaderValue>; 3] {
    let reset = limit.reset.map(|reset| now.saturating_add(reset));
    [limit.limit, Some(remaining(limit)), reset.map(seconds_up)]
        .map(|number| value(number?.to_string()))
}

/// The parameter `w`, in seconds, rounded up. `None` for a window under a second, which whole
/// seconds cannot state.
fn window(limit: &Limit<'_>) -> Option<u64> {
    let window = limit.window.filter(|it| *it >= Duration::from_secs(1))?;
    Some(seconds_up(window))
}

/// The parameter `t`, in seconds.
fn time(limit: &Limit<'_>) -> Option<u64> {
    Some(within_window(limit, limit.available_in.or(limit.reset)?))
}

/// The `reset` of version 7, in seconds: the time until the whole limit is available, or, if
/// nothing is left, until something is, because clients wait for that time.
fn reset(limit: &Limit<'_>) -> Option<u64> {
    match limit.reset {
        Some(reset) if limit.remaining > 0 => Some(within_window(limit, reset)),
        _ => time(limit),
    }
}

fn within_window(limit: &Limit<'_>, time: Duration) -> u64 {
    let time = seconds_up(time);
    window(limit).map_or(time, |window| time.min(window))
}

/// The parameter `r`: at most `q`, even if an application's own limiter states more.
fn remaining(limit: &Limit<'_>) -> u64 {
    limit
        .limit
        .map_or(limit.remaining, |most| limit.remaining.min(most))
}

fn integer(number: u64) -> Integer {
    Integer::try_from(number).unwrap_or(Integer::MAX)
}

/// Makes a string of a structured field: each character that it cannot hold becomes `_`.
fn string(name: &str) -> Cow<'_, StringRef> {
    if let Ok(name) = StringRef::from_str(name) {
        return Cow::Borrowed(name);
    }
    let printable = |it: char| it == ' ' || it.is_ascii_graphic();
    let name: String = name
        .chars()
        .map(|it| if printable(it) { it } else { '_' })
        .collect();
    // The conversion cannot fail: all characters are printable ASCII.
    sfv::String::from_string(name).map_or(Cow::Borrowed(StringRef::constant("_")), Cow::Owned)
}

/// Makes a header value of a text that is printable ASCII.
fn value(mut text: String) -> Option<HeaderValue> {
    // With spare capacity, sharing the value would need one more allocation.
    text.shrink_to_fit();
    HeaderValue::try_from(text).ok()
}
