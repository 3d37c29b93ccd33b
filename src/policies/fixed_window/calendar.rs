//! Windows of the calendar in a time zone with a fixed offset. Dates are those of the Gregorian
//! calendar, also before it was in use. `lua/policies/fixed_window.lua` finds the same windows.

use std::fmt;
use std::ops::Range;

use crate::error::{Result, require};
use crate::policies::starts::DAY;

const HOUR: i64 = 60 * 60 * 1_000;
const WEEK: i64 = 7 * DAY;
/// Weeks begin on Mondays; 1970-01-01 was a Thursday.
const EPOCH_SINCE_MONDAY: i64 = 3 * DAY;

/// How many days begin with the year 0 and end with 1969.
const DAYS_BEFORE_EPOCH: i64 = 719_528;

/// Offsets from UTC are shorter than a day, in minutes.
const LARGEST_OFFSET: i32 = 24 * 60 - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// Each window is a unit of the calendar, by clocks that are ahead of UTC by the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Calendar {
    pub(super) unit: Unit,
    pub(super) offset_minutes: i32,
}

impl Unit {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    #[cfg(feature = "serde")]
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let mut all = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year].into_iter();
        all.find(|it| it.word() == word)
    }

    /// The length of the longest such unit, in ms.
    pub(super) fn longest(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Week => WEEK,
            Self::Month => 31 * DAY,
            Self::Year => 366 * DAY,
        }
    }

    /// The number for the script: the length in ms if it is constant, or minus the number of
    /// months.
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Hour | Self::Day | Self::Week => self.longest(),
            Self::Month => -1,
            Self::Year => -12,
        }
    }
}

impl Calendar {
    pub(super) fn validate(self) -> Result<()> {
        let is_met = self.offset_minutes.abs() <= LARGEST_OFFSET;
        require(is_met, "utc_offset_minutes", "must be less than a day")
    }

    /// How many ms to add to a time so that windows of constant length begin at its multiples.
    pub(super) fn offset(self) -> i64 {
        let since_monday = if self.unit == Unit::Week {
            EPOCH_SINCE_MONDAY
        } else {
            0
        };
        i64::from(self.offset_minutes) * 60_000 + since_monday
    }

    /// The window that contains the time `now`, in ms since the epoch.
    pub(super) fn window_at(self, now: i64) -> Range<i64> {
        let local = now + self.offset();
        let local = match self.unit {
            Unit::Hour | Unit::Day | Unit::Week => {
                let start = local - local.rem_euclid(self.unit.longest());
                start..start + self.unit.longest()
            }
            Unit::Month => months_of(local, 1),
            Unit::Year => months_of(local, 12),
        };
        local.start - self.offset()..local.end - self.offset()
    }
}

/// The period of `count` months, from January on, that contains this time: all in ms since the
/// epoch.
fn months_of(time: i64, count: i64) -> Range<i64> {
    // 4,800 months have 146,097 days; the first estimate is at most two periods late.
    let days = time.div_euclid(DAY) + DAYS_BEFORE_EPOCH;
    let month = (days * 4_800).div_euclid(146_097) + 1;
    let mut first = month - month.rem_euclid(count);
    while start_of(first) > time {
        first -= count;
    }
    start_of(first)..start_of(first + count)
}

/// When a month begins, in ms since the epoch. Months are counted from January of the year 0.
fn start_of(month: i64) -> i64 {
    // In years that begin with March, a leap day is the last day, and 5 months have 153 days.
    let (year, month) = ((month - 2).div_euclid(12), (month - 2).rem_euclid(12));
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let since_march = 365 * year + leap_days + (153 * month + 2) / 5;
    let days = 60 + since_march; // the year 0 has 60 days before March
    (days - DAYS_BEFORE_EPOCH) * DAY
}

/// As in `calendar month, UTC+09:00`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calendar {}", self.unit.word())?;
        match self.offset_minutes {
            0 => Ok(()),
            minutes => write!(f, ", UTC{}", OffsetText(minutes)),
        }
    }
}

/// An offset as ISO 8601 writes it, such as `+09:00`.
pub(super) struct OffsetText(pub(super) i32);

impl fmt::Display for OffsetText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        let minutes = self.0.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// The minutes of an offset in the form of ISO 8601, `+09:00`.
#[cfg(feature = "serde")]
pub(super) fn read_offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_once(':')?;
    let number = |text: &str, most: i32| {
        let is_two_digits = text.len() == 2 && text.bytes().all(|it| it.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_two_digits);
        number.filter(|&number: &i32| number <= most)
    };
    Some(sign * (60 * number(hours, 23)? + number(minutes, 59)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::{Date, Month, OffsetDateTime, UtcOffset};

    use super::*;

    /// The window that the crate `time` computes.
    fn by_the_crate(calendar: Calendar, now: i64) -> Range<i64> {
        let offset = UtcOffset::from_whole_seconds(calendar.offset_minutes * 60).unwrap();
        let now = OffsetDateTime::from_unix_timestamp_nanos(i128::from(now) * 1_000_000).unwrap();
        let now = now.to_offset(offset);
        let midnight = |date: Date| date.midnight().assume_offset(offset);
        let (year, month) = (now.year(), now.month());
        let on = |year, month| midnight(Date::from_calendar_date(year, month, 1).unwrap());
        let (start, end) = match calendar.unit {
            Unit::Hour => {
                let start = now.replace_time(time::Time::from_hms(now.hour(), 0, 0).unwrap());
                (start, start + time::Duration::HOUR)
            }
            Unit::Day => (
                midnight(now.date()),
                midnight(now.date().next_day().unwrap()),
            ),
            Unit::Week => {
                let (year, week, _) = now.to_iso_week_date();
                let monday = Date::from_iso_week_date(year, week, time::Weekday::Monday).unwrap();
                (midnight(monday), midnight(monday) + time::Duration::WEEK)
            }
            Unit::Month => {
                let next = if month == Month::December {
                    year + 1
                } else {
                    year
                };
                (on(year, month), on(next, month.next()))
            }
            Unit::Year => (on(year, Month::January), on(year + 1, Month::January)),
        };
        let millis = |time: OffsetDateTime| (time.unix_timestamp_nanos() / 1_000_000) as i64;
        millis(start)..millis(end)
    }

    const UNITS: [Unit; 5] = [Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    #[test]
    fn each_day_of_four_centuries_is_in_the_windows_of_the_crate_time() {
        for unit in UNITS {
            for (day, offset_minutes) in
                (0..146_097).zip([0, 540, -210, 1_439, -1_439].iter().cycle())
            {
                let calendar = Calendar {
                    unit,
                    offset_minutes: *offset_minutes,
                };
                for now in [day * DAY, day * DAY + DAY - 1] {
                    let window = calendar.window_at(now);
                    assert!(window.contains(&now));
                    assert_eq!(window, by_the_crate(calendar, now), "{calendar} {now}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn each_time_and_offset_is_in_the_window_of_the_crate_time(
            now in -12_219_292_800_000_i64..253_000_000_000_000,
            unit in prop::sample::select(&UNITS),
            offset_minutes in -LARGEST_OFFSET..=LARGEST_OFFSET,
        ) {
            let calendar = Calendar { unit, offset_minutes };
            prop_assert_eq!(calendar.window_at(now), by_the_crate(calendar, now));
        }
    }

    #[test]
    #[cfg(feature = "serde")]
    fn an_offset_is_read_as_it_is_written_and_in_no_other_form() {
        for minutes in -LARGEST_OFFSET..=LARGEST_OFFSET {
            assert_eq!(read_offset(&OffsetText(minutes).to_string()), Some(minutes));
        }
        for text in [
            "", "+", "9", "09:00", "+9:00", "+0900", "+24:00", "+09:60", "+-9:00", "é09:00", "Z",
        ] {
            assert_eq!(read_offset(text), None, "{text}");
        }
    }
}
