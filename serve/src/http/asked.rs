//! Reads the body of a request, in JSON. The values may be whatever a client of the service has
//! sent: text that is not Unicode and huge numbers are decided too, and no errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use tokio::time::timeout;
use utoipa::ToSchema;

use super::LARGEST_BODY;
use super::answer::Answer;
use crate::part::Part;
use crate::service::Service;

/// The most entries of a request.
const MOST_ENTRIES: usize = 64;

/// A request, which the rules decide.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Request)]
pub(super) struct Asked {
    #[serde(default)]
    #[schema(value_type = String, default = "")]
    pub(super) domain: Text,
    /// The entries of the request, at most 64.
    #[schema(
        value_type = BTreeMap<String, String>,
        example = json!({"user": "alice", "path": "/orders"})
    )]
    pub(super) entries: Entries,
    #[serde(default = "Cost::one")]
    #[schema(value_type = u64, minimum = 1, default = 1)]
    pub(super) cost: Cost,
    /// The longest time to wait: required for `/v1/acquire`, and refused elsewhere. A time longer
    /// than the server's `--max-wait` is cut to that.
    #[serde(default)]
    #[schema(value_type = u64, required = false)]
    pub(super) timeout_ms: Option<Whole>,
}

/// Reads the body within the client timeout and the largest size.
impl FromRequest<Arc<Service>> for Asked {
    type Rejection = Answer;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Answer> {
        let content_type = request.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|it| it.to_str().ok());
        let content_type = content_type.and_then(|it| it.split(';').next());
        // A browser sends this type for a page of another origin only after a CORS preflight,
        // which this server does not answer.
        if !content_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) {
            let detail = "the body must be application/json";
            return Err(Answer::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        // tower-http's layer would limit the time for each piece of the body, not for the whole.
        let body = Bytes::from_request(request, service);
        let body = match timeout(service.settings.client_timeout, body).await {
            Err(_) => {
                let detail = "the body did not come in time";
                return Err(Answer::problem(StatusCode::REQUEST_TIMEOUT, detail));
            }
            Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = format!("the body is larger than {LARGEST_BODY} bytes");
                return Err(Answer::problem(rejection.status(), &detail));
            }
            Ok(Err(rejection)) => {
                let detail = format!("the body was not read: {}", rejection.body_text());
                return Err(Answer::problem(StatusCode::BAD_REQUEST, &detail));
            }
            Ok(Ok(body)) => body,
        };
        let asked: Self = serde_json::from_slice(&body)
            .map_err(|error| Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()))?;
        if asked.entries.0.len() > MOST_ENTRIES {
            let detail = format!("`entries` are more than {MOST_ENTRIES}");
            return Err(Answer::problem(StatusCode::BAD_REQUEST, &detail));
        }
        Ok(asked)
    }
}

/// The part of a request that must not have `timeout_ms`, because it is decided at once.
pub(super) struct AtOnce(pub(super) Part);

impl FromRequest<Arc<Service>> for AtOnce {
    type Rejection = Answer;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Answer> {
        let asked = Asked::from_request(request, service).await?;
        if asked.timeout_ms.is_some() {
            let detail = "`timeout_ms` is for /v1/acquire";
            return Err(Answer::problem(StatusCode::BAD_REQUEST, detail));
        }
        Ok(Self(asked.into_part(service.longest_turn(None))))
    }
}

/// Reads the part that the rules decide from a request in JSON.
pub(crate) fn read_part(text: &str) -> serde_json::Result<Part> {
    let asked: Asked = serde_json::from_str(text)?;
    Ok(asked.into_part(Duration::MAX))
}

impl Asked {
    pub(super) fn into_part(self, longest_turn: Duration) -> Part {
        let entries = self.entries.0.into_iter();
        Part {
            domain: self.domain.0.into(),
            entries: entries.map(|(name, value)| (name.0, value.0)).collect(),
            is_descriptor: false,
            is_first: true,
            cost: self.cost.0,
            longest_turn,
        }
    }
}

/// A text; U+FFFD replaces what is not Unicode, such as half of a surrogate pair.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text(pub(super) String);

/// The entries of a request. A name that occurs twice is an error.
#[derive(Debug, Default)]
pub(super) struct Entries(pub(super) BTreeMap<Text, Text>);

/// A whole number. One that is too large becomes `u64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

/// A whole number of at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost(pub(super) u64);

impl Cost {
    fn one() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl Visitor<'_> for Texts {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(String::from_utf8_lossy(bytes).into_owned()))
            }
        }

        deserializer.deserialize_bytes(Texts)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    if entries.insert(name, value).is_some() {
                        return Err(de::Error::custom("an entry is there several times"));
                    }
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(All)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl Visitor<'_> for Numbers {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of at least 0")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
                if number < 0.0 || number.fract() != 0.0 {
                    return Err(E::invalid_value(de::Unexpected::Float(number), &self));
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                Ok(Whole(number as u64))
            }
        }

        deserializer.deserialize_u64(Numbers)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Whole::deserialize(deserializer)? {
            Whole(0) => Err(de::Error::custom("`cost` must be at least 1")),
            Whole(cost) => Ok(Self(cost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Asked, String> {
        serde_json::from_str(text).map_err(|it| it.to_string())
    }

    #[test]
    fn a_cost_is_a_whole_number_of_any_size() {
        for (cost, expected) in [
            ("1", 1),
            ("2.0", 2),
            ("5e2", 500),
            ("4294967296", 1 << 32),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("1e300", u64::MAX),
        ] {
            let asked = read(&format!("{{\"entries\": {{}}, \"cost\": {cost}}}"));
            assert_eq!(asked.unwrap().cost, Cost(expected), "{cost}");
        }
        for cost in [
            "0", "-0.0", "-1", "0.5", "1e-3", "-1e300", "1e999", "\"1\"", "null", "[1]",
        ] {
            let asked = read(&format!("{{\"entries\": {{}}, \"cost\": {cost}}}"));
            assert!(asked.is_err(), "{cost}");
        }
    }

    #[test]
    fn a_replacement_character_stands_for_what_is_not_unicode() {
        let body = b"{\"domain\": \"a\xff\", \"entries\": {\"us\\udc00er\": \"\\ud800alice\"}}";
        let asked: Asked = serde_json::from_slice(body).unwrap();
        assert_eq!(asked.domain.0, "a\u{fffd}");
        let (name, value) = asked.entries.0.first_key_value().unwrap();
        for text in [name, value] {
            assert!(text.0.contains('\u{fffd}'), "{text:?}");
        }
    }

    #[test]
    fn a_body_that_could_be_read_in_two_ways_is_refused() {
        for body in [
            r#"{"entries": {"user": "alice", "user": "bob"}}"#,
            r#"{"entries": {"user": "alice", "\u0075ser": "bob"}}"#,
            r#"{"entries": {}, "entries": {}}"#,
            r#"{"entries": {}, "cost": 1, "cost": 2}"#,
            r#"{"entries": {}} {}"#,
            r#"{"entries": [["user", "alice"]]}"#,
            r#"{"entries": {"user": ["alice"]}}"#,
            r#"{"entries": {"user": [97, 98]}}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
