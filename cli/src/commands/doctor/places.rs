//! Finds the places to examine: the limiters that a pattern matches, and keys with values or grants
//! that have no limiter.

use redisson_rate_limiter::Reply;

use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::scan::{Scan, is_pattern, literally};
use crate::inspect::tally::Place;

const SUFFIXES: [&str; 2] = [":value", ":permits"];

/// The limiter, and the client if there is one, that a key with a value or grants belongs to.
/// `None` if the name is not that of such a key.
pub(crate) fn place_of(key: &str) -> Option<Place> {
    let (at, suffix) = SUFFIXES
        .iter()
        .filter_map(|suffix| Some((key.rfind(suffix)?, suffix)))
        .max()?;
    let (name, rest) = key.split_at(at);
    let client = match &rest[suffix.len()..] {
        "" => None,
        rest => Some(rest.strip_prefix(':')?.to_owned()),
    };
    let in_braces = name.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    let name = match in_braces {
        Some(inner) if !inner.is_empty() && !inner.contains('{') => inner,
        _ if name.contains('{') => name,
        _ => return None,
    };
    Some(Place {
        name: name.to_owned(),
        client,
    })
}

/// The other name whose limiter would have the same keys for value and grants, if there is one.
/// These keys have the limiter's name in braces, except that a name that is in braces as a whole
/// gets no further ones: `orders` and `{orders}` share their keys.
pub(super) fn namesake(name: &str) -> Option<String> {
    let in_braces = name.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    match in_braces {
        Some(inner) => Some(inner.to_owned()).filter(|it| !it.is_empty() && !it.contains('{')),
        None => Some(format!("{{{name}}}")).filter(|_| !name.contains('{')),
    }
}

/// The patterns for the keys with values and grants of the limiters whose names match a pattern.
fn patterns(pattern: &str) -> Vec<String> {
    let mut patterns = Vec::new();
    for suffix in SUFFIXES {
        if pattern == "*" {
            patterns.push(format!("*{{*{suffix}*"));
            continue;
        }
        if !pattern.contains('{') {
            patterns.push(format!("{{{pattern}}}{suffix}*"));
        }
        if pattern.contains('{') || is_pattern(pattern) {
            patterns.push(format!("{pattern}{suffix}*"));
        }
    }
    patterns
}

/// A walk over the places, a page at a time: first the hashes that may be limiters, then the keys
/// with values or grants that have no limiter.
pub(super) struct Places {
    pattern: String,
    scan: Scan,
    /// The patterns for values and grants that are left to scan. `None` during the walk over
    /// hashes.
    sibling_patterns: Option<Vec<String>>,
}

/// A page of places.
pub(super) enum Found {
    /// Hashes that may be limiters.
    Limiters(Vec<Place>),
    /// Places with a value or grants, but no limiter.
    Siblings(Vec<Place>),
}

impl Places {
    pub(super) fn new(context: &Context, pattern: &str) -> Result<Self, Failure> {
        Ok(Self {
            pattern: pattern.to_owned(),
            scan: Scan::new(&context.client, pattern, Some("hash"))?,
            sibling_patterns: None,
        })
    }

    pub(super) async fn next(&mut self, context: &Context) -> Result<Option<Found>, Failure> {
        loop {
            if let Some(keys) = self.scan.next().await? {
                let keys = keys
                    .into_iter()
                    .filter_map(|key| String::from_utf8(key).ok());
                if self.sibling_patterns.is_some() {
                    return Ok(Some(Found::Siblings(self.siblings(context, keys).await?)));
                }
                let limiters = keys.map(|name| Place { name, client: None });
                return Ok(Some(Found::Limiters(limiters.collect())));
            }
            let left = self
                .sibling_patterns
                .get_or_insert_with(|| patterns(&self.pattern));
            let Some(next) = left.pop() else {
                return Ok(None);
            };
            self.scan = Scan::new(&context.client, &next, None)?;
        }
    }

    async fn siblings(
        &self,
        context: &Context,
        keys: impl Iterator<Item = String>,
    ) -> Result<Vec<Place>, Failure> {
        let mut found = Vec::new();
        for key in keys {
            let Some(mut place) = place_of(&key) else {
                continue;
            };
            let limiter = context.client.rate_limiter(&place.name);
            let [_, value, _, permits, _] = limiter.keys();
            let end = place.client.as_deref().map(|id| format!(":{id}"));
            let end = end.unwrap_or_default();
            let is_value = key == format!("{value}{end}");
            if !is_value && key != format!("{permits}{end}") {
                continue;
            }
            // A place with both keys is found by its grants, so its value is skipped. A place whose
            // limiter exists was examined with the limiter, unless it is a client's.
            let permits = format!("{permits}{end}");
            let is_looked_at = async {
                if is_value && exists(context, &permits).await? {
                    return Ok(true);
                }
                if exists(context, &place.name).await? {
                    return Ok(place.client.is_none());
                }
                if let Some(namesake) = namesake(&place.name)
                    && exists(context, &namesake).await?
                {
                    place.name = namesake;
                    return Ok(place.client.is_none());
                }
                Ok(false)
            };
            match is_looked_at.await {
                Ok(false) => found.push(place),
                Ok(true) => {}
                Err(failure) if Failure::is_not_permitted(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }
}

async fn exists(context: &Context, key: &str) -> Result<bool, Failure> {
    Ok(context.client.command(["EXISTS", key]).await? == Reply::Integer(1))
}

/// Turns a name into a pattern that matches only this name. A pattern stays as it is.
pub(crate) fn as_pattern(text: &str) -> String {
    if is_pattern(text) {
        text.to_owned()
    } else {
        literally(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limiter_of_a_key_is_read_from_its_name() {
        for (key, expected) in [
            ("{orders}:value", Some(("orders", None))),
            ("{orders}:permits:a:b", Some(("orders", Some("a:b")))),
            ("a{t}b:value", Some(("a{t}b", None))),
            ("{a}b}:permits:id", Some(("a}b", Some("id")))),
            ("orders:value", None),
            ("{orders}:values", None),
            ("{}:value", Some(("{}", None))),
            ("orders", None),
        ] {
            let place = place_of(key);
            let found = place
                .as_ref()
                .map(|it| (it.name.as_str(), it.client.as_deref()));
            assert_eq!(found, expected, "{key}");
        }
    }

    #[test]
    fn a_name_in_braces_and_the_one_within_have_the_same_keys() {
        for (name, expected) in [
            ("orders", Some("{orders}")),
            ("{orders}", Some("orders")),
            ("a{t}b", None),
            ("{a}{b}", None),
            ("{}", None),
        ] {
            assert_eq!(namesake(name).as_deref(), expected, "{name}");
        }
    }
}
