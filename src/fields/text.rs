//! Rates and times as text: `5/1m`, `10/s`, `1000/month`, `10m`.

use std::fmt;
use std::time::Duration;

/// The units of a time, the longest first.
const UNITS: [(u64, &str); 5] = [
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "m"),
    (1_000, "s"),
    (1, "ms"),
];

/// Reads a quantity and its time, such as `5/1m`. The time stays text: it may be a unit of the
/// calendar.
pub(crate) fn read_rate<N: TryFrom<u64>>(text: &str) -> Result<(N, &str), String> {
    let (quantity, time) = text
        .split_once('/')
        .ok_or_else(|| format!("`{text}` is not QUANTITY/TIME, such as \"5/1m\" or \"10/s\""))?;
    let (quantity, time) = (quantity.trim(), time.trim());
    let number = whole_number(quantity);
    let number = number.ok_or_else(|| format!("`{quantity}` is not a whole number"))?;
    match number.try_into() {
        Ok(number) => Ok((number, time)),
        Err(_) => Err(format!("`{number}` is more than 4294967295")),
    }
}

/// Reads the time of a rate, whose number may be left out if it is 1: `s` is `1s`.
pub(crate) fn read_time_of_rate(text: &str) -> Result<Duration, String> {
    match text.starts_with(|first: char| first.is_ascii_digit()) {
        true => read_time(text),
        false => read_time(&format!("1{text}")),
    }
}

/// Reads a whole number of `ms`, `s`, `m`, `h` or `d`, such as `500ms` or `10m`.
pub(crate) fn read_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|it: char| !it.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim();
    let length = UNITS.iter().find(|(_, name)| *name == unit);
    let millis = length.and_then(|(length, _)| whole_number(number)?.checked_mul(*length));
    millis.map(Duration::from_millis).ok_or_else(|| {
        format!("`{text}` is not a time such as \"500ms\", \"90s\", \"10m\", \"1h\" or \"7d\"")
    })
}

fn whole_number(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// A time of whole milliseconds, as a number of the longest unit that divides it.
pub(crate) struct TimeText(pub(crate) Duration);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let divides = |length: u64| millis > 0 && millis.is_multiple_of(length);
        let unit = UNITS.iter().find(|(length, _)| divides(*length));
        let (length, unit) = unit.unwrap_or(&(1, "ms"));
        write!(f, "{}{unit}", millis / length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for (text, millis) in [
            ("0ms", 0),
            ("1ms", 1),
            ("1500ms", 1_500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("36h", 129_600_000),
            ("7d", 604_800_000),
        ] {
            let time = Duration::from_millis(millis);
            assert_eq!(read_time(text), Ok(time));
            assert_eq!(TimeText(time).to_string(), text);
        }
        assert_eq!(read_time(" 5 s "), Ok(Duration::from_secs(5)));
    }

    #[test]
    fn a_time_that_says_nothing_exact_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "+5s",
            "1.5s",
            "5 fortnights",
            "5S",
            "1h 30m",
            "five s",
            "213503982334602d",
        ] {
            assert!(read_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_one_of_a_rates_time_may_be_left_out() {
        assert_eq!(read_rate("5/s"), Ok((5_u32, "s")));
        assert_eq!(read_rate("20 / 500ms"), Ok((20_u64, "500ms")));
        assert_eq!(read_time_of_rate("s"), Ok(Duration::from_secs(1)));
        assert_eq!(read_time_of_rate("10m"), Ok(Duration::from_secs(600)));
        for text in ["", "5", "/s", "five/s", "-1/s", "1.5/s"] {
            assert!(read_rate::<u32>(text).is_err(), "{text}");
        }
        for text in ["", "0x5s", "s/s", "month"] {
            assert!(read_time_of_rate(text).is_err(), "{text}");
        }
    }
}
