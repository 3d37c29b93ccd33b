//! What a script returned, and how a case writes it.
//!
//! An integer is a number and nil is null, an array is an array, an error is `{"error": …}`. A
//! string is a text or `{"hex": …}`; one of little-endian doubles is `{"doubles": […]}`, with the
//! word behind them as `"word"`.

use redis::{RedisResult, Value};
use serde_json::Value as Json;

use super::moment::{Moment, literal};
use super::{form, is_form, json};

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Nil,
    Integer(i64),
    Bytes(Vec<u8>),
    Array(Vec<Reply>),
    Error(String),
}

/// Whether the script returns strings of doubles.
pub fn has_doubles(script: &str) -> bool {
    let names = [
        "acquire.lua",
        "multi_acquire.lua",
        "multi_check.lua",
        "reclaim.lua",
        "joint.lua",
    ];
    names.contains(&script) || script.starts_with("policies/")
}

impl Reply {
    pub fn new(result: RedisResult<Value>) -> Self {
        match result {
            Ok(value) => Self::of(value),
            Err(error) => Self::of_error(error.code(), error.detail()),
        }
    }

    fn of(value: Value) -> Self {
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::of).collect()),
            Value::ServerError(error) => Self::of_error(Some(error.code()), error.details()),
            other => panic!("no reply of a script: {other:?}"),
        }
    }

    fn of_error(code: Option<&str>, detail: Option<&str>) -> Self {
        Self::Error(
            [code, detail]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
        )
    }

    /// Whether this is the case's reply.
    pub fn check(&self, expected: &Json, moment: &Moment) -> Result<(), String> {
        let is_same = match (self, expected) {
            (Self::Array(items), Json::Array(expected)) if items.len() == expected.len() => {
                let mut each = items.iter().zip(expected);
                return each.try_for_each(|(item, expected)| item.check(expected, moment));
            }
            (Self::Integer(number), _) => moment.is(expected, *number as f64),
            (Self::Nil, _) => expected.is_null(),
            (Self::Error(error), _) => *expected == form("error", error.as_str()),
            (Self::Bytes(bytes), _) if expected.get("doubles").is_some() => {
                let (doubles, word) = doubles(bytes);
                let numbers = expected["doubles"].as_array().unwrap();
                let word_expected = expected.get("word").and_then(Json::as_str);
                word == word_expected.unwrap_or_default().as_bytes()
                    && doubles.len() == numbers.len()
                    && doubles
                        .iter()
                        .zip(numbers)
                        .all(|(&double, it)| moment.is(it, double))
            }
            (Self::Bytes(bytes), _) if expected.is_string() || is_form(expected, "hex") => {
                *bytes == json::bytes(expected, moment.start)
            }
            _ => false,
        };
        match is_same {
            true => Ok(()),
            false => Err(format!("the reply is {self:?} and should be {expected}")),
        }
    }

    /// How a case writes this reply, from what it was in a second, later run.
    pub fn describe(&self, second: &Self, moment: &Moment, has_doubles: bool) -> Json {
        match (self, second) {
            (Self::Nil, Self::Nil) => Json::Null,
            (Self::Integer(first), Self::Integer(second)) => {
                moment.describe(*first as f64, *second as f64)
            }
            (Self::Error(error), Self::Error(_)) => form("error", error.as_str()),
            (Self::Array(items), Self::Array(others)) if items.len() == others.len() => {
                let each = items.iter().zip(others);
                each.map(|(item, other)| item.describe(other, moment, has_doubles))
                    .collect()
            }
            (Self::Bytes(first), Self::Bytes(second)) if has_doubles && are_integers(first) => {
                let ((first, word), (second, _)) = (doubles(first), doubles(second));
                let each = first.iter().zip(&second);
                let numbers: Json = each.map(|(&a, &b)| moment.describe(a, b)).collect();
                match word {
                    b"" => form("doubles", numbers),
                    word => json!({ "doubles": numbers, "word": String::from_utf8_lossy(word) }),
                }
            }
            (Self::Bytes(first), Self::Bytes(second)) => {
                assert_eq!(first, second, "a text that depends on the time");
                json::from_bytes(first)
            }
            other => panic!("two runs differ: {other:?}"),
        }
    }
}

/// Whether the doubles at the front are what a script returns, and not other bytes.
fn are_integers(bytes: &[u8]) -> bool {
    let (doubles, _) = doubles(bytes);
    doubles.iter().all(|double| double.fract() == 0.0)
}

/// The doubles at the front, and what is behind them.
fn doubles(bytes: &[u8]) -> (Vec<f64>, &[u8]) {
    let (doubles, rest) = bytes.as_chunks();
    (
        doubles
            .iter()
            .map(|&double| f64::from_le_bytes(double))
            .collect(),
        rest,
    )
}

#[test]
fn a_reply_that_differs_in_one_byte_is_noticed() {
    let moment = Moment { start: 5, end: 6 };
    let bytes = [5.0_f64.to_le_bytes(), 7.0_f64.to_le_bytes()].concat();
    let expected = json!({ "doubles": [{ "now": 0 }, literal(7.0)] });
    assert_eq!(
        Reply::Bytes(bytes.clone()).check(&expected, &moment),
        Ok(())
    );
    for place in 8..16 {
        let mut other = bytes.clone();
        other[place] ^= 1;
        assert!(
            Reply::Bytes(other).check(&expected, &moment).is_err(),
            "{place}"
        );
    }
}
