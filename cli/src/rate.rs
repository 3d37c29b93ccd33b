//! A rate as one argument: `5/s`, `100/10m`, `20/500ms`.

use std::time::Duration;

/// The argument for a rate: permits in an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateArgument {
    pub(crate) permits: u64,
    pub(crate) interval: Duration,
    /// The word for the interval if it is a unit of the calendar, such as `month`.
    calendar: Option<String>,
}

impl RateArgument {
    /// The rate in the form of a policy's configuration.
    pub(crate) fn of_policy(&self) -> String {
        let time = self.calendar.clone();
        let time = time.unwrap_or_else(|| as_argument(self.interval));
        format!("{}/{time}", self.permits)
    }
}

impl std::str::FromStr for RateArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (permits, interval) = text
            .split_once('/')
            .ok_or("must be PERMITS/INTERVAL, such as 5/s, 100/10m or 20/500ms")?;
        let permits = permits
            .trim()
            .parse()
            .map_err(|_| format!("`{permits}` is not a whole number of permits"))?;
        let interval = interval.trim();
        let has_number = interval.starts_with(|c: char| c.is_ascii_digit());
        let is_of_calendar = ["hour", "day", "week", "month", "year"].contains(&interval);
        Ok(Self {
            permits,
            interval: match has_number {
                true => duration(interval)?,
                false => duration(&format!("1{interval}"))?,
            },
            calendar: is_of_calendar.then(|| interval.to_owned()),
        })
    }
}

/// A time as one number of the largest unit that divides it, such as `500ms`, `90s` or `1d`.
pub(crate) fn as_argument(time: Duration) -> String {
    const UNITS: [(u128, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let millis = time.as_millis();
    let unit = UNITS
        .iter()
        .find(|(length, _)| millis > 0 && millis.is_multiple_of(*length));
    match unit {
        Some((length, unit)) => format!("{}{unit}", millis / length),
        None => format!("{millis}ms"),
    }
}

/// Parses a time such as `500ms`, `5s` or `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}, such as 500ms, 5s or 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(u64, Duration), String> {
        let rate: RateArgument = text.parse()?;
        Ok((rate.permits, rate.interval))
    }

    #[test]
    fn a_rate_is_permits_and_an_interval_with_or_without_a_number() {
        assert_eq!(parsed("5/s"), Ok((5, Duration::from_secs(1))));
        assert_eq!(parsed("100/10m"), Ok((100, Duration::from_secs(600))));
        assert_eq!(parsed("20 / 500ms"), Ok((20, Duration::from_millis(500))));
        assert_eq!(parsed("1/1h 30m"), Ok((1, Duration::from_secs(5_400))));
    }

    #[test]
    fn the_rate_of_a_policy_may_name_a_unit_of_the_calendar() {
        for (text, of_policy) in [
            ("5/s", "5/1s"),
            ("1/1h 30m", "1/90m"),
            ("9/month", "9/month"),
            ("9/1day", "9/1d"),
        ] {
            let rate: RateArgument = text.parse().unwrap();
            assert_eq!(rate.of_policy(), of_policy);
        }
    }

    #[test]
    fn an_incomplete_or_inexact_rate_is_refused() {
        for text in [
            "",
            "5",
            "/s",
            "5/",
            "five/s",
            "-1/s",
            "5/s/s",
            "5/fortnight",
            "1.5/s",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
