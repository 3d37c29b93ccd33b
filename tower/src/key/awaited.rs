//! The key that a layer finds before its rules decide.

use std::borrow::Cow;

use http::request::Parts;

use super::Key;

/// The key that a layer [by rules with an asynchronous
/// key](crate::RateLimitLayer::by_rules_with_async_key) has found. A request for which there is
/// none has no such key, and neither has one in another layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsyncKey;

/// In the extensions of a request while rules decide.
#[derive(Clone)]
struct Awaited(String);

impl AsyncKey {
    /// Makes this the key of a request, and returns the one that it had of a layer around this one.
    pub(crate) fn set(key: Option<String>, request: &mut Parts) -> Option<String> {
        let before = match key {
            Some(key) => request.extensions.insert(Awaited(key)),
            None => request.extensions.remove(),
        };
        before.map(|Awaited(key)| key)
    }
}

impl Key for AsyncKey {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let Awaited(key) = request.extensions.get()?;
        Some(Cow::Borrowed(key))
    }
}
