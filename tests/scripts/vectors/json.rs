//! How a case writes bytes.

use serde_json::Value as Json;

use super::moment::at_start;
use super::{form, is_form};

/// The bytes of an argument: a text, or `{"hex": …}`; `{"member": {"id", "permits"}}`; `{"doubles":
/// […]}`, packed, null for NaN; a number in digits.
pub fn bytes(value: &Json, start: i64) -> Vec<u8> {
    if let Some(text) = value.as_str() {
        return text.as_bytes().to_vec();
    }
    if is_form(value, "hex") {
        return from_hex(&value["hex"]);
    }
    if is_form(value, "member") {
        return member(&value["member"]);
    }
    if is_form(value, "doubles") {
        let doubles = value["doubles"].as_array().unwrap().iter();
        let doubles = doubles.map(|number| match number {
            Json::Null => f64::NAN,
            number => at_start(number, start) as f64,
        });
        return doubles.flat_map(f64::to_le_bytes).collect();
    }
    at_start(value, start).to_string().into_bytes()
}

/// A text where the bytes are one, else in hexadecimal digits.
pub fn from_bytes(bytes: &[u8]) -> Json {
    let text = std::str::from_utf8(bytes).ok();
    match text.filter(|text| !text.contains(char::is_control)) {
        Some(text) => text.into(),
        None => form("hex", hex(bytes)),
    }
}

/// A length byte, the id, the permits as a little-endian u32.
pub fn member(parts: &Json) -> Vec<u8> {
    let id = from_hex(&parts["id"]);
    let permits = u32::try_from(parts["permits"].as_u64().unwrap()).unwrap();
    let length = u8::try_from(id.len()).unwrap();
    [&[length], &id[..], &permits.to_le_bytes()].concat()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &Json) -> Vec<u8> {
    let digits = digits
        .as_str()
        .unwrap_or_else(|| panic!("no digits: {digits}"));
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}
