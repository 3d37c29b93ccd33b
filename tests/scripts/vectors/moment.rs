//! Numbers that depend on the server's clock.
//!
//! `{"start": n}` is n ms after the time before the keys are written, `{"now": n}` n ms after the
//! time of the call, and `{"left": n}` is n less the ms between the two.

use redis::aio::MultiplexedConnection;
use serde_json::Value as Json;

use super::{form, is_form};

/// What times to live end in, by the thousand: a few of them are a little longer than the time that
/// they are for.
const ENDINGS: [i64; 3] = [0, 10, 16];

/// The server's time, in ms, before the keys were written and after all was read.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub start: i64,
    pub end: i64,
}

pub async fn server_time(connection: &mut MultiplexedConnection) -> i64 {
    let time = redis::cmd("TIME").query_async(connection).await;
    let (seconds, micros): (i64, i64) = time.unwrap();
    seconds * 1000 + micros / 1000
}

/// A number that a case is run with.
pub fn at_start(number: &Json, start: i64) -> i64 {
    match number.get("start") {
        Some(offset) => start + offset.as_i64().unwrap(),
        None => number
            .as_i64()
            .unwrap_or_else(|| panic!("no number: {number}")),
    }
}

impl Moment {
    /// Whether a case's number is this one.
    pub fn is(&self, expected: &Json, actual: f64) -> bool {
        let integer = |name: &str| expected[name].as_i64().unwrap();
        if is_form(expected, "start") {
            return actual == (self.start + integer("start")) as f64;
        }
        let (low, high) = if is_form(expected, "now") {
            let offset = integer("now");
            (self.start + offset, self.end + offset)
        } else if is_form(expected, "left") {
            return self.is_left(integer("left"), actual as i64);
        } else {
            return expected.as_f64().map(f64::to_bits) == Some(actual.to_bits());
        };
        (low as f64..=high as f64).contains(&actual)
    }

    /// Whether this many ms may be left of `set`.
    pub fn is_left(&self, set: i64, left: i64) -> bool {
        (set - (self.end - self.start)..=set).contains(&left)
    }

    /// How a case writes a number, from what it was in the first and in the second, later run.
    pub fn describe(&self, first: f64, second: f64) -> Json {
        if first == second {
            return literal(first);
        }
        let offset = first as i64 - self.start;
        if (0..=self.end - self.start).contains(&offset) {
            return form("now", 0);
        }
        form("left", as_set(first as i64))
    }
}

/// Whole numbers as such, so that `5` is not written `5.0`.
pub fn literal(number: f64) -> Json {
    match number as i64 {
        whole if whole as f64 == number => whole.into(),
        _ => number.into(),
    }
}

/// The time to live that was set, from what is left of it.
pub fn as_set(left: i64) -> i64 {
    let candidates = ENDINGS.map(|ending| (left - ending + 999).div_euclid(1000) * 1000 + ending);
    candidates.into_iter().min().unwrap_or(left)
}
