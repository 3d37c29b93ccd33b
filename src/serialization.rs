//! Rates, policies and failure policies as fields with names, for configuration files: with the
//! feature `serde`.
//!
//! Durations are whole milliseconds. Invalid values are refused, both when writing and when
//! reading.

mod failure_policy;
mod rate;

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::time::Duration;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use crate::failure_policy::{FailurePolicy, LocalShare};
    use crate::policies::{AnyPolicy, FixedWindow, QuotaBucket, SlidingWindowCounter, TokenBucket};
    use crate::rate::Rate;

    const MINUTE: Duration = Duration::from_secs(60);

    #[track_caller]
    fn round_trips<T>(value: T, json: &str)
    where
        T: Serialize + DeserializeOwned + PartialEq + fmt::Debug,
    {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), value);
    }

    #[track_caller]
    fn is_refused<T: DeserializeOwned + fmt::Debug>(json: &str, reason: &str) {
        let error = serde_json::from_str::<T>(json).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn all_that_can_be_configured_round_trips() {
        round_trips(
            Rate::overall(5, MINUTE),
            r#"{"permits":5,"interval_ms":60000}"#,
        );
        round_trips(
            Rate::per_client(1, MINUTE).keep_alive(2 * MINUTE),
            r#"{"rate_type":"per_client","permits":1,"interval_ms":60000,"keep_alive_ms":120000}"#,
        );
        round_trips(
            FixedWindow::new(100, MINUTE),
            r#"{"limit":100,"window_ms":60000}"#,
        );
        round_trips(
            FixedWindow::calendar_year(100),
            r#"{"limit":100,"calendar":"year"}"#,
        );
        round_trips(
            AnyPolicy::from(FixedWindow::calendar_month(1_000).with_utc_offset_minutes(540)),
            r#"{"algorithm":"fixed_window","limit":1000,"calendar":"month","utc_offset":"+09:00"}"#,
        );
        round_trips(
            AnyPolicy::from(TokenBucket::per_second(10)),
            r#"{"algorithm":"token_bucket","per_second":10,"capacity":10}"#,
        );
        round_trips(FailurePolicy::Error, r#""error""#);
        round_trips(FailurePolicy::Wait, r#""wait""#);
        round_trips(FailurePolicy::Deny, r#""deny""#);
        round_trips(FailurePolicy::Allow, r#""allow""#);
        let quarter = FailurePolicy::Local(LocalShare::one_of(4.try_into().unwrap()));
        round_trips(quarter, r#"{"local_one_of":4}"#);
    }

    #[test]
    fn what_is_left_out_is_what_the_constructors_give() {
        let read = serde_json::from_str::<TokenBucket>(r#"{"per_second":10}"#);
        assert_eq!(read.unwrap(), TokenBucket::per_second(10));
        let read = serde_json::from_str(r#"{"limit":9,"window_ms":60000}"#);
        assert_eq!(
            read.ok(),
            Some(SlidingWindowCounter::new(9, MINUTE)),
            "ten periods"
        );
    }

    #[test]
    fn what_no_limiter_takes_is_refused() {
        is_refused::<Rate>(r#"{"permits":0,"interval_ms":1000}"#, "between 1 and 2^53");
        is_refused::<Rate>(r#"{"permits":-1,"interval_ms":1000}"#, "invalid value");
        is_refused::<Rate>(r#"{"permits":1,"interval_ms":0}"#, "at least 1 ms");
        is_refused::<Rate>(
            r#"{"permits":1,"interval_ms":1000,"keep_alive_ms":999}"#,
            "shorter than the interval",
        );
        is_refused::<Rate>(
            r#"{"permits":1,"interval_ms":1000,"keep_alive":9999}"#,
            "unknown field",
        );
        is_refused::<AnyPolicy>(r#"{"limit":1,"window_ms":1000}"#, "`algorithm`");
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"fixed","limit":1,"window_ms":1000}"#,
            "unknown variant `fixed`, expected one of `fixed_window`",
        );
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"fixed_window","limit":0,"window_ms":1000}"#,
            "`limit` must be",
        );
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"fixed_window","limit":1,"window":1000}"#,
            "unknown field `window`",
        );
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"shared_rate","permits":1,"interval_ms":0}"#,
            "at least 1 ms",
        );
        is_refused::<FixedWindow>(r#"{"limit":0,"window_ms":1000}"#, "`limit`");
        for (json, reason) in [
            (r#"{"limit":1}"#, "missing field `window_ms`"),
            (
                r#"{"limit":1,"window_ms":1,"calendar":"day"}"#,
                "exclude each other",
            ),
            (
                r#"{"limit":1,"calendar":"decade"}"#,
                "unknown variant `decade`",
            ),
            (
                r#"{"limit":1,"calendar":"day","aligned_to_clock":true}"#,
                "exclude each other",
            ),
            (
                r#"{"limit":1,"window_ms":1,"utc_offset":"+09:00"}"#,
                "needs a `calendar`",
            ),
            (
                r#"{"limit":1,"calendar":"day","utc_offset":"9"}"#,
                "must be like",
            ),
        ] {
            is_refused::<FixedWindow>(json, reason);
        }
        is_refused::<QuotaBucket>(r#"{"quantity":0,"period_ms":1000}"#, "`quantity`");
        is_refused::<FixedWindow>(
            r#"{"limit":1,"window_ms":1500,"aligned_to_clock":true}"#,
            "must be a whole number of seconds",
        );
        is_refused::<FailurePolicy>(r#"{"local_one_of":0}"#, "nonzero");
    }

    #[test]
    fn what_no_limiter_takes_is_not_written() {
        let part_of_a_ms = Duration::from_micros(1_500);
        assert!(serde_json::to_string(&Rate::overall(1, part_of_a_ms)).is_err());
        assert!(serde_json::to_string(&FixedWindow::new(1, part_of_a_ms)).is_err());
    }
}
