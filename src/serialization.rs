//! Rates, policies and failure policies as fields with names, for configuration files: with the
//! feature `serde`.
//!
//! Rates and times are text. Invalid values are refused, both when writing and when reading.

mod rate;

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::time::Duration;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use crate::failure_policy::{FailurePolicy, LocalShare};
    use crate::policies::any_policy::AnyPolicy;
    use crate::policies::{FixedWindow, QuotaBucket, SlidingWindowCounter, TokenBucket};
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
        round_trips(Rate::overall(5, MINUTE), r#"{"rate":"5/1m"}"#);
        round_trips(
            Rate::per_client(1, MINUTE).keep_alive(2 * MINUTE),
            r#"{"rate":"1/1m","rate_type":"per_client","keep_alive":"2m"}"#,
        );
        round_trips(FixedWindow::new(100, MINUTE), r#"{"rate":"100/1m"}"#);
        round_trips(FixedWindow::calendar_year(100), r#"{"rate":"100/year"}"#);
        round_trips(
            AnyPolicy::from(FixedWindow::calendar_month(1_000).with_utc_offset_minutes(540)),
            r#"{"algorithm":"fixed_window","rate":"1000/month","utc_offset":"+09:00"}"#,
        );
        round_trips(
            AnyPolicy::from(TokenBucket::per_second(10)),
            r#"{"algorithm":"token_bucket","rate":"10/1s","capacity":10}"#,
        );
        round_trips(FailurePolicy::Error, r#""error""#);
        round_trips(FailurePolicy::Wait, r#""wait""#);
        round_trips(FailurePolicy::Deny, r#""deny""#);
        round_trips(FailurePolicy::Allow, r#""allow""#);
        let quarter = FailurePolicy::Local(LocalShare::one_of(4.try_into().unwrap()));
        round_trips(quarter, r#"{"local_one_of":4}"#);
    }

    #[test]
    fn a_window_of_the_calendar_that_is_aligned_to_the_clock_can_be_read_back() {
        let aligned = FixedWindow::calendar_month(10).aligned_to_clock();
        let json = serde_json::to_string(&aligned).unwrap();
        assert_eq!(json, r#"{"rate":"10/month"}"#);
        let read = serde_json::from_str(&json).ok();
        assert_eq!(read, Some(FixedWindow::calendar_month(10)));
    }

    #[test]
    fn what_is_left_out_is_what_the_constructors_give() {
        let read = serde_json::from_str::<TokenBucket>(r#"{"rate":"10/s"}"#);
        assert_eq!(read.unwrap(), TokenBucket::per_second(10));
        let read = serde_json::from_str(r#"{"rate":"9/m"}"#);
        assert_eq!(
            read.ok(),
            Some(SlidingWindowCounter::new(9, MINUTE)),
            "ten periods"
        );
    }

    #[test]
    fn what_no_limiter_takes_is_refused() {
        is_refused::<Rate>(r#"{"rate":"0/s"}"#, "`rate` must be between 1 and 2^53");
        is_refused::<Rate>(r#"{"rate":"-1/s"}"#, "`rate`: `-1` is not a whole number");
        is_refused::<Rate>(r#"{"rate":5}"#, "`rate`: must be a string");
        is_refused::<Rate>(r#"{"rate":"1/0s"}"#, "`rate` must be at least 1 ms");
        is_refused::<Rate>(
            r#"{"rate":"1/s","keep_alive":"999ms"}"#,
            "`keep_alive` must not be shorter than the interval",
        );
        is_refused::<Rate>(
            r#"{"rate":"1/s","keep_alive":"1y"}"#,
            "`keep_alive`: `1y` is not a time",
        );
        is_refused::<Rate>(r#"{"rate":"1/s","keepalive":"9s"}"#, "unknown field");
        is_refused::<Rate>(r#"{"rate":"1/s","rate":"9/s"}"#, "duplicate field `rate`");
        is_refused::<AnyPolicy>(r#"{"rate":"1/s"}"#, "`algorithm`");
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"fixed","rate":"1/s"}"#,
            "unknown variant `fixed`, expected one of `fixed_window`",
        );
        is_refused::<AnyPolicy>(r#"{"algorithm":"fixed_window"}"#, "missing field `rate`");
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"fixed_window","rate":"1/s","window":1000}"#,
            "unknown field `window`",
        );
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"shared_rate","rate":"1/0ms"}"#,
            "at least 1 ms",
        );
        is_refused::<AnyPolicy>(
            r#"{"algorithm":"sliding_window_log","rate":"9/month"}"#,
            "`rate`: `1month` is not a time",
        );
        is_refused::<TokenBucket>(r#"{"rate":"600/m"}"#, "`rate`: must be of a second");
        is_refused::<SlidingWindowCounter>(
            r#"{"rate":"9/m","period":"x"}"#,
            "`period`: `x` is not a time",
        );
        for (json, reason) in [
            (r#"{"rate":"0/s"}"#, "`rate` must be"),
            (r#"{"rate":"4294967296/s"}"#, "is more than 4294967295"),
            (r#"{"rate":"1/decade"}"#, "`1decade` is not a time"),
            (
                r#"{"rate":"1/day","aligned_to_clock":true}"#,
                "exclude each other",
            ),
            (
                r#"{"rate":"1/1d","utc_offset":"+09:00"}"#,
                "needs a `rate` such as",
            ),
            (r#"{"rate":"1/day","utc_offset":"9"}"#, "must be like"),
            (
                r#"{"rate":"1/1500ms","aligned_to_clock":true}"#,
                "must be a whole number of seconds",
            ),
        ] {
            is_refused::<FixedWindow>(json, reason);
        }
        is_refused::<QuotaBucket>(r#"{"rate":"0/s"}"#, "`rate`");
        is_refused::<FailurePolicy>(r#"{"local_one_of":0}"#, "nonzero");
    }

    #[test]
    fn what_no_limiter_takes_is_not_written() {
        let part_of_a_ms = Duration::from_micros(1_500);
        assert!(serde_json::to_string(&Rate::overall(1, part_of_a_ms)).is_err());
        assert!(serde_json::to_string(&FixedWindow::new(1, part_of_a_ms)).is_err());
    }
}
