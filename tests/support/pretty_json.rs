//! How a file of cases is laid out.

use serde_json::{Map, Value as Json};

/// The longest line that is not broken.
const WIDTH: usize = 120;

/// The order in which fields are written; all others follow by their names.
const FIELDS: [&str; 33] = [
    "script",
    "cases",
    "name",
    "given",
    "result",
    "before",
    "call",
    "policy",
    "numbers",
    "penalty",
    "costs",
    "prefix",
    "key",
    "noted",
    "requests",
    "fifo",
    "share",
    "audited_rate",
    "keys",
    "args",
    "reply",
    "after",
    "type",
    "value",
    "pttl",
    "grants",
    "score",
    "step",
    "id",
    "bytes",
    "permits",
    "doubles",
    "word",
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
