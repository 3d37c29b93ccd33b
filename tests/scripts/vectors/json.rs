//! How a case writes bytes, and how a file of cases is laid out.

use serde_json::{Map, Value as Json};

use super::moment::at_start;
use super::{form, is_form};

/// The longest line that is not broken.
const WIDTH: usize = 120;

/// The bytes of an argument: a text, or `{"hex": …}`; `{"member": {"id", "permits"}}`; `{"doubles": […]}`, packed, null for
/// NaN; a number in digits.
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

/// The order in which fields are written; all others follow by their names.
const FIELDS: [&str; 20] = [
    "script", "cases", "name", "before", "call", "keys", "args", "reply", "after", "type", "value",
    "pttl", "grants", "score", "step", "id", "bytes", "permits", "doubles", "word",
];

/// The fields of an object in the order in which they are written.
fn ordered(fields: &Map<String, Json>) -> Vec<(&String, &Json)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(name, _)| {
        let place = FIELDS.iter().position(|field| field == name);
        (place.unwrap_or(FIELDS.len()), *name)
    });
    fields
}

/// Each value in one line where it fits.
pub fn pretty(value: &Json) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text.push('\n');
    text
}

fn write(text: &mut String, value: &Json, depth: usize) {
    let line = one_line(value);
    if depth > 0 && 2 * depth + line.chars().count() <= WIDTH {
        text.push_str(&line);
        return;
    }
    let (open, items, close) = match value {
        Json::Object(fields) => {
            let fields = ordered(fields).into_iter();
            let fields = fields.map(|(name, value)| (Some(name), value));
            ('{', fields.collect::<Vec<_>>(), '}')
        }
        Json::Array(items) => ('[', items.iter().map(|item| (None, item)).collect(), ']'),
        _ => return text.push_str(&line),
    };
    text.push(open);
    for (place, (name, item)) in items.into_iter().enumerate() {
        text.push_str(if place > 0 { ",\n" } else { "\n" });
        text.push_str(&"  ".repeat(depth + 1));
        if let Some(name) = name {
            text.push_str(&format!("{}: ", Json::from(name.as_str())));
        }
        write(text, item, depth + 1);
    }
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
    text.push(close);
}

fn one_line(value: &Json) -> String {
    let joined = |items: Vec<String>| items.join(", ");
    match value {
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields = ordered(fields).into_iter();
            let fields = fields
                .map(|(name, value)| format!("{}: {}", Json::from(name.as_str()), one_line(value)));
            format!("{{ {} }}", joined(fields.collect()))
        }
        Json::Array(items) => format!("[{}]", joined(items.iter().map(one_line).collect())),
        other => other.to_string(),
    }
}
