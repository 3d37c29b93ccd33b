//! The name of a limiter's target: the limiter's prefix, which its developer chose, and the key of
//! the request, which may be any text that a user chose.
//!
//! No two keys of one prefix share a key in Redis. Two rules ensure this, and both leave ordinary
//! keys unchanged:
//!
//! - A brace in a key is written `%7B` or `%7D`, so that it makes no hash tag. Text that already
//!   reads like this gets a `25`: `%7B` is written `%257B`, and `%257B` is written `%25257B`.
//! - If the name has a hash tag, which only the prefix, the name mapper or the start of a key
//!   without a prefix gives it, its sibling keys are the name and a suffix. So a part of the key
//!   that reads like one of these suffixes is followed by a `%`: `{shop}:u:value` is written
//!   `{shop}:u:value%`. Other names are put in braces before a suffix, which keeps them apart.

use std::borrow::Cow;

use crate::keys::{ENDS, FEWEST_DIGITS, SEGMENTS};

/// Writes the key after the prefix. `maps_to_tag` says whether the name mapper makes a name with a
/// `{` of this one; `None` if there is no mapper.
#[inline]
pub(super) fn target_name<'a>(
    prefix: &str,
    key: &'a str,
    maps_to_tag: Option<impl FnOnce(&str) -> bool>,
) -> Cow<'a, str> {
    if prefix.is_empty() && maps_to_tag.is_none() && !has_special(key) {
        return Cow::Borrowed(key);
    }
    written(prefix, key, maps_to_tag)
}

fn written<'a>(
    prefix: &str,
    key: &'a str,
    maps_to_tag: Option<impl FnOnce(&str) -> bool>,
) -> Cow<'a, str> {
    let (tag, rest) = if prefix.is_empty() {
        split_hash_tag(key)
    } else {
        ("", key)
    };
    let rest = without_braces(rest);
    if !tag.is_empty() && rest.chars().all(|char| char == '%') {
        // The sibling keys of the name `a` begin with `{a}`.
        return Cow::Owned(format!("{tag}{rest}%"));
    }
    let name = match &rest {
        Cow::Borrowed(_) if prefix.is_empty() => Cow::Borrowed(key),
        rest => {
            let mut name = String::with_capacity(prefix.len() + tag.len() + rest.len());
            name.extend([prefix, tag, rest]);
            Cow::Owned(name)
        }
    };
    let has_tag = !tag.is_empty()
        || match maps_to_tag {
            Some(maps_to_tag) => maps_to_tag(&name),
            None => prefix.contains('{'), // the rest of the name has no brace
        };
    if !has_tag {
        return name;
    }
    match without_suffixes(&rest) {
        Cow::Owned(rest) => Cow::Owned([prefix, tag, &rest].concat()),
        Cow::Borrowed(_) => name,
    }
}

/// The hash tag with its braces that the key begins with, empty if it has none, and the rest.
fn split_hash_tag(key: &str) -> (&str, &str) {
    let Some(end) = key.strip_prefix('{').and_then(|inner| inner.find('}')) else {
        return ("", key);
    };
    let (tag, rest) = key.split_at(end + 2);
    if end == 0 || tag[1..].contains('{') {
        return ("", key);
    }
    (tag, rest)
}

/// The key with each brace percent-encoded.
fn without_braces(key: &str) -> Cow<'_, str> {
    if !has_special(key) {
        return Cow::Borrowed(key);
    }
    let mut written = String::with_capacity(key.len() + 8);
    for (place, char) in key.char_indices() {
        match char {
            '{' => written.push_str("%7B"),
            '}' => written.push_str("%7D"),
            '%' if reads_like_a_brace(&key[place + 1..]) => written.push_str("%25"),
            other => written.push(other),
        }
    }
    Cow::Owned(written)
}

/// For each byte, whether it is a character that is not always written unchanged.
static SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    special[b'{' as usize] = true;
    special[b'}' as usize] = true;
    special[b'%' as usize] = true;
    special
};

/// Whether a key has a character that is not always written unchanged.
fn has_special(key: &str) -> bool {
    let is_special = |byte: &u8| SPECIAL[usize::from(*byte)];
    key.as_bytes().iter().any(is_special)
}

/// Whether the text after a `%` reads like an encoded brace, or a brace that was encoded again.
fn reads_like_a_brace(mut rest: &str) -> bool {
    while let Some(shorter) = rest.strip_prefix("25") {
        rest = shorter;
    }
    rest.starts_with("7B") || rest.starts_with("7D")
}

/// The key with a `%` after each part that reads like a suffix, in addition to any that follow
/// already.
fn without_suffixes(key: &str) -> Cow<'_, str> {
    let mut written = String::new();
    let mut rest = key;
    while let Some(length) = until_behind_a_suffix(rest) {
        let (done, next) = rest.split_at(length);
        written.push_str(done);
        written.push('%');
        rest = next;
    }
    if written.is_empty() {
        return Cow::Borrowed(key);
    }
    written.push_str(rest);
    Cow::Owned(written)
}

/// The length up to the end of the first part that reads like a suffix, including the `%` after it.
fn until_behind_a_suffix(key: &str) -> Option<usize> {
    let segment = key.match_indices(':').find_map(|(place, _)| {
        let from_here = &key[place..];
        let segment = SEGMENTS.iter().find(|it| from_here.starts_with(**it))?;
        let behind = from_here[segment.len()..].trim_start_matches('%');
        let is_whole = behind.is_empty() || behind.starts_with(':');
        is_whole.then_some(key.len() - behind.len())
    });
    segment.or_else(|| {
        let text = key.trim_end_matches('%');
        let before_digits = text.trim_end_matches(|char: char| char.is_ascii_digit());
        let has_time = text.len() - before_digits.len() >= FEWEST_DIGITS;
        let has_end = (has_time && before_digits.ends_with('-'))
            || ENDS.iter().any(|end| text.ends_with(end));
        has_end.then_some(key.len())
    })
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::client_vectors::{hold, text};
    use crate::keys::sibling;
    use crate::policies::call::Target;
    use crate::policies::every_kind::every_kind;
    use crate::random_cases::cases_of;

    const NO_MAPPER: Option<fn(&str) -> bool> = None;

    fn name(prefix: &str, key: &str) -> String {
        target_name(prefix, key, NO_MAPPER).into_owned()
    }

    #[test]
    fn a_target_has_the_name_and_keys_of_the_specification() {
        hold("target_names", |given| {
            let name = name(text(&given["prefix"]), text(&given["key"]));
            serde_json::json!({ "name": name, "lock": sibling(&name, "-lock") })
        });
    }

    #[test]
    fn ordinary_keys_keep_their_names() {
        for key in [
            "",
            "alice",
            "rate:limit:123:/orders?a=%20b&c=100%25",
            "token_bucket:user:123:api_a",
            "user%3A1:2001%3Adb8%3A%3A1",
            "550e8400-e29b-41d4-a716-446655440000",
            "u:value",
            "u-lock",
            "ünï:日本",
        ] {
            assert_eq!(name("", key), key);
            assert_eq!(name("p:", key), format!("p:{key}"));
        }
        for key in [
            "{shop}:alice",
            "{shop}alice",
            "{shop}:user-123",
            "{shop}:550e8400-e29b-41d4-a716-446655440000",
            "{shop}:valued",
            "{shop}:value-1",
            "{shop}:last",
        ] {
            assert_eq!(name("", key), key);
        }
        assert_eq!(name("limit:{shop}:", "alice"), "limit:{shop}:alice");
        assert_eq!(name("{shop}:permits:", "alice"), "{shop}:permits:alice");
    }

    #[test]
    fn a_brace_makes_no_hash_tag_save_at_the_start_of_a_key_without_a_prefix() {
        for (prefix, key, expected) in [
            ("", "u{1", "u%7B1"),
            ("", "u{1}", "u%7B1%7D"),
            ("", "{}u", "%7B%7Du"),
            ("", "{a{b}u", "%7Ba%7Bb%7Du"),
            ("", "{u", "%7Bu"),
            ("", "{a}{b}", "{a}%7Bb%7D"),
            ("", "{a}", "{a}%"),
            ("", "{a}%", "{a}%%"),
            ("p:", "{a}b", "p:%7Ba%7Db"),
            ("{s}:", "{a}b", "{s}:%7Ba%7Db"),
            ("", "u%7B1", "u%257B1"),
            ("", "u%257D1", "u%25257D1"),
            ("", "%{", "%%7B"),
        ] {
            assert_eq!(name(prefix, key), expected);
        }
    }

    #[test]
    fn in_a_name_with_a_hash_tag_what_reads_like_a_suffix_is_marked() {
        for (key, expected) in [
            (":value", ":value%"),
            ("u:value", "u:value%"),
            ("u:value%", "u:value%%"),
            ("u:permits:client", "u:permits%:client"),
            ("u:value:permits", "u:value%:permits%"),
            ("u-st", "u-st%"),
            ("u-lock", "u-lock%"),
            ("u-window%", "u-window%%"),
            ("u-1700000000000", "u-1700000000000%"),
            ("u-170000000000", "u-170000000000"),
        ] {
            assert_eq!(name("{s}:", key), format!("{{s}}:{expected}"));
            assert_eq!(name("", &format!("{{s}}{key}")), format!("{{s}}{expected}"));
        }
        let mapped = target_name("", "u:value", Some(|_: &str| true));
        assert_eq!(mapped, "u:value%");
    }

    /// All that any limiter may write for a target.
    fn redis_keys(name: &str, clients: &[String]) -> HashSet<String> {
        let mut keys = HashSet::new();
        for client in clients {
            for model in every_kind(client) {
                let target = Target {
                    model,
                    key: name.into(),
                    penalty: Some(1),
                };
                keys.extend(target.all_keys());
            }
        }
        keys.remove(&sibling(name, "-")); // the prefix of the counters' names
        for end in [1_000_000_000_000_i64, 1_700_000_000_000, 1 << 52] {
            keys.insert(sibling(name, &format!("-{end}")));
        }
        keys
    }

    const PARTS: [&str; 25] = [
        "u",
        "{",
        "}",
        "{a}",
        "%",
        "7B",
        "7D",
        "25",
        "%7B",
        ":",
        ":value",
        ":permits",
        "value",
        "-",
        "-st",
        "-lock",
        "-window",
        "-periods",
        "-1700000000000",
        "1000000000000",
        ":value:c",
        "c",
        "é",
        "-st:value:c",
        "\0",
    ];

    const PREFIXES: [&str; 9] = [
        "",
        "p:",
        "{s}:",
        "{s}",
        "s{",
        "a}",
        ":value",
        "{s}:permits:",
        "{}",
    ];

    fn keys() -> impl Strategy<Value = String> {
        let parts = prop::collection::vec(prop::sample::select(&PARTS), 0..6);
        parts.prop_map(|parts| parts.concat())
    }

    #[test]
    fn two_targets_of_a_prefix_share_no_key_whatever_they_hold() {
        let clients = [
            "c",
            "550e8400-e29b-41d4-a716-446655440000",
            "u:value:c",
            "-st",
            "}",
        ];
        let clients = clients.map(str::to_owned);
        // Either two keys, or one and the prefix of its own keys.
        let pair = (keys(), keys(), keys())
            .prop_map(|(start, one, other)| (format!("{start}{one}"), format!("{start}{other}")));
        let case = (prop::sample::select(&PREFIXES), pair);
        let cases = cases_of(5);
        let config = ProptestConfig {
            cases,
            max_global_rejects: cases, // about one pair in 30 is not two targets
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        proptest!(config, |((prefix, (one, other)) in case)| {
            prop_assume!(one != other);
            let [one, other] = [one, other].map(|key| name(prefix, &key));
            prop_assume!(!one.is_empty() && !other.is_empty()); // not a target
            let [ones, others] = [&one, &other].map(|name| redis_keys(name, &clients));
            let shared: Vec<_> = ones.intersection(&others).collect();
            prop_assert!(shared.is_empty(), "{one:?} and {other:?} share {shared:?}");
        });
    }
}
