//! The settings of a limiter as they are stored. They are not validated: whatever is stored is
//! shown.

use std::time::Duration;

use redisson_rate_limiter::{Rate, Reply};
use serde_json::{Map, Value};

use super::reply::{integer, text};

/// The fields that a limiter's hash has, in the order in which the scripts read them.
pub(crate) const FIELDS: [&str; 4] = ["rate", "interval", "type", "keepAliveTime"];

/// The texts of the fields of a limiter's hash; empty if a field is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) rate: String,
    pub(crate) interval: String,
    pub(crate) rate_type: String,
    pub(crate) keep_alive: String,
}

impl Settings {
    pub(crate) fn read(fields: &[Reply; 4]) -> Self {
        let [rate, interval, rate_type, keep_alive] = fields.each_ref().map(text);
        Self {
            rate,
            interval,
            rate_type,
            keep_alive,
        }
    }

    /// Whether a hash with these fields is a limiter's: it has at least two of rate, interval and
    /// type, because another program's hash may have one of them.
    pub(crate) fn are_a_limiters(&self) -> bool {
        let fields = [&self.rate, &self.interval, &self.rate_type];
        fields.iter().filter(|it| !it.is_empty()).count() >= 2
    }

    /// The rate and the interval in ms, if both are integers of at least 1.
    pub(crate) fn numbers(&self) -> Option<(i64, i64)> {
        let (rate, interval) = (integer(&self.rate)?, integer(&self.interval)?);
        (rate >= 1 && interval >= 1).then_some((rate, interval))
    }

    pub(crate) fn is_per_client(&self) -> bool {
        self.rate_type == "1"
    }

    /// The keep alive in ms; `None` if it is missing, 0 or unreadable.
    pub(crate) fn keep_alive(&self) -> Option<i64> {
        integer(&self.keep_alive).filter(|it| *it > 0)
    }

    /// The keep alive in ms, if it is shorter than the interval.
    pub(crate) fn short_keep_alive(&self) -> Option<i64> {
        let (_, interval) = self.numbers()?;
        self.keep_alive().filter(|it| *it < interval)
    }

    /// The reasons why a limiter cannot work with these settings.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.numbers().is_none() {
            let (rate, interval) = (self.rate.escape_debug(), self.interval.escape_debug());
            faults.push(match self.is_stopped() {
                true => "the rate is 0: each request is refused".to_owned(),
                false => format!("rate `{rate}` and interval `{interval}` are not from 1 to 2^53"),
            });
        }
        if !self.keep_alive.is_empty() && integer(&self.keep_alive).is_none_or(|it| it < 0) {
            let text = self.keep_alive.escape_debug();
            faults.push(format!("the field `keepAliveTime` is `{text}`"));
        }
        match self.rate_type.as_str() {
            "0" | "1" => {}
            "" => faults.push(
                "the field `type` is missing: trySetRate says true and changes nothing".to_owned(),
            ),
            other => faults.push(format!("the field `type` is `{}`", other.escape_debug())),
        }
        faults
    }

    /// Whether the rate is set to 0, which Redisson permits.
    pub(crate) fn is_stopped(&self) -> bool {
        self.rate == "0" && integer(&self.interval).is_some_and(|it| it >= 1)
    }

    /// The settings in words, such as `5 per 10m per client, keep alive 1h`. A text that is no
    /// number stands in quotes.
    pub(crate) fn in_words(&self) -> String {
        let rate = integer(&self.rate).map_or_else(|| quoted(&self.rate), |it| it.to_string());
        let mut words = format!("{rate} per {}", time_in_words(&self.interval));
        match self.rate_type.as_str() {
            "0" => {}
            "1" => words += " per client",
            other => words += &format!(", of type {}", quoted(other)),
        }
        if !matches!(self.keep_alive.as_str(), "" | "0") {
            words += &format!(", keep alive {}", time_in_words(&self.keep_alive));
        }
        words
    }

    /// The rate as an argument, such as `5/10m`.
    pub(crate) fn as_argument(&self) -> String {
        let rate = integer(&self.rate).map_or_else(|| quoted(&self.rate), |it| it.to_string());
        format!("{rate}/{}", time_in_words(&self.interval))
    }

    /// The settings as JSON, with the fields of a rate in configuration files. A field that is no
    /// number becomes a string.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("permits".to_owned(), number(&self.rate));
        json.insert("interval_ms".to_owned(), number(&self.interval));
        match self.rate_type.as_str() {
            "0" => None,
            "1" => json.insert("rate_type".to_owned(), "per_client".into()),
            "" => json.insert("rate_type".to_owned(), Value::Null),
            other => json.insert("rate_type".to_owned(), other.into()),
        };
        if !matches!(self.keep_alive.as_str(), "" | "0") {
            json.insert("keep_alive_ms".to_owned(), number(&self.keep_alive));
        }
        Value::Object(json)
    }
}

/// The settings as the rate would be stored.
impl From<Rate> for Settings {
    fn from(rate: Rate) -> Self {
        let millis = |it: Duration| it.as_millis().to_string();
        Self {
            rate: rate.permits().to_string(),
            interval: millis(rate.interval()),
            rate_type: match rate.rate_type() {
                redisson_rate_limiter::RateType::PerClient => "1".to_owned(),
                _ => "0".to_owned(),
            },
            keep_alive: rate
                .keep_alive_time()
                .map_or_else(|| "0".to_owned(), millis),
        }
    }
}

/// A stored number as JSON; a string if it is no number, and `null` if it is missing.
pub(crate) fn number(text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ if text.is_empty() => Value::Null,
        _ => text.into(),
    }
}

fn time_in_words(millis: &str) -> String {
    match integer(millis).and_then(|it| u64::try_from(it).ok()) {
        Some(millis) => crate::rate::as_argument(Duration::from_millis(millis)),
        None => quoted(millis),
    }
}

fn quoted(text: &str) -> String {
    format!("`{}`", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(fields: [&str; 4]) -> Settings {
        let [rate, interval, rate_type, keep_alive] = fields.map(str::to_owned);
        Settings {
            rate,
            interval,
            rate_type,
            keep_alive,
        }
    }

    #[test]
    fn settings_are_shown_in_the_units_in_which_they_are_given() {
        for (fields, words, argument) in [
            (["5", "600000", "0", "0"], "5 per 10m", "5/10m"),
            (
                ["5", "5400000", "1", "86400000"],
                "5 per 90m per client, keep alive 1d",
                "5/90m",
            ),
            (["0", "1", "0", ""], "0 per 1ms", "0/1ms"),
            (
                ["5e9", "", "x", "-1"],
                "`5e9` per ``, of type `x`, keep alive `-1`",
                "`5e9`/``",
            ),
        ] {
            let it = settings(fields);
            assert_eq!((&*it.in_words(), &*it.as_argument()), (words, argument));
        }
    }

    #[test]
    fn what_is_stored_is_in_the_json_whether_or_not_it_is_a_number() {
        let it = settings(["5", "1000", "1", "60000"]);
        let expected = json!({
            "permits": 5, "interval_ms": 1_000, "rate_type": "per_client", "keep_alive_ms": 60_000,
        });
        assert_eq!(it.to_json(), expected);
        let it = settings(["9007199254740993", "05", "", "0"]);
        let expected = json!({
            "permits": 9_007_199_254_740_993_i64, "interval_ms": "05", "rate_type": null,
        });
        assert_eq!(it.to_json(), expected);
    }

    #[test]
    fn a_hash_with_one_of_the_fields_is_not_a_limiter() {
        assert!(!settings(["5", "", "", ""]).are_a_limiters());
        assert!(!settings(["", "", "1", "7"]).are_a_limiters());
        assert!(settings(["5", "", "0", ""]).are_a_limiters());
        assert!(settings(["5", "1000", "", ""]).are_a_limiters());
    }
}
