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

/// Room for one limit.
const ROOM: usize = 64;

impl Fields {
    /// Adds the fields that state these limits, the strictest of which comes first. Several
    /// [`Ietf`](Self::Ietf) fields in one response are one list, as the draft has it, so these are
    /// added to those that are there. Of the other forms a response has one, and one that is there
    /// stays.
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

    /// Adds the fields that state these limits alone, and nothing of what is left: for a request
    /// that costs more than a limit ever has.
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

    /// The values of the fields that state these limits.
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

/// The fields of one response: a value of each, in the order of [their names](Fields::names).
pub(crate) struct Written {
    fields: Fields,
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
    let mut buffer = String::with_capacity(ROOM * limits.len());
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
    let mut buffer = String::with_capacity(ROOM * limits.len());
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
    let mut buffer = String::with_capacity(ROOM * limits.len());
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
    let mut field = String::with_capacity(ROOM);
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

/// The fields that begin with `X-`; the reset counts from `now`.
fn x(limit: &Limit<'_>, now: Duration) -> [Option<HeaderValue>; 3] {
    let reset = limit.reset.map(|reset| now.saturating_add(reset));
    [limit.limit, Some(remaining(limit)), reset.map(seconds_up)]
        .map(|number| value(number?.to_string()))
}

/// `w`: whole seconds, so that a window is rounded up, and one under a second cannot be stated.
fn window(limit: &Limit<'_>) -> Option<u64> {
    let window = limit.window.filter(|it| *it >= Duration::from_secs(1))?;
    Some(seconds_up(window))
}

/// `t`
fn time(limit: &Limit<'_>) -> Option<u64> {
    Some(within_window(limit, limit.available_in.or(limit.reset)?))
}

/// `reset` of version 7: until all is available, but where nothing is left, until something is, for
/// which a client waits.
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

/// `r`, at most `q`, also where a limiter of another kind says more.
fn remaining(limit: &Limit<'_>) -> u64 {
    limit
        .limit
        .map_or(limit.remaining, |most| limit.remaining.min(most))
}

fn integer(number: u64) -> Integer {
    Integer::try_from(number).unwrap_or(Integer::MAX)
}

/// A name that a structured field can hold.
fn string(name: &str) -> Cow<'_, StringRef> {
    if let Ok(name) = StringRef::from_str(name) {
        return Cow::Borrowed(name);
    }
    let printable = |it: char| it == ' ' || it.is_ascii_graphic();
    let name: String = name
        .chars()
        .map(|it| if printable(it) { it } else { '_' })
        .collect();
    // All of its characters are allowed.
    sfv::String::from_string(name).map_or(Cow::Borrowed(StringRef::constant("_")), Cow::Owned)
}

/// The text, which is printable ASCII, as a value.
fn value(mut text: String) -> Option<HeaderValue> {
    // A value shares a buffer with room left by one more allocation.
    text.shrink_to_fit();
    HeaderValue::try_from(text).ok()
}
