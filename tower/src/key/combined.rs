//! Keys that are made of others.

use std::borrow::Cow;

use http::request::Parts;

use super::{Key, found};

/// One key, or another one of a request without it: from [`Key::or`].
#[derive(Debug, Clone)]
pub struct Or<A, B>(pub(super) A, pub(super) B);

impl<A: Key, B: Key> Key for Or<A, B> {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        found(&self.0, request).or_else(|| found(&self.1, request))
    }
}

/// The combination of two keys: from [`Key::and`].
#[derive(Debug, Clone)]
pub struct And<A, B>(pub(super) A, pub(super) B);

impl<A: Key, B: Key> Key for And<A, B> {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let escaped = |key: Cow<'_, str>| key.replace('%', "%25").replace(':', "%3A");
        let (first, second) = (found(&self.0, request)?, found(&self.1, request)?);
        Some(Cow::Owned(format!(
            "{}:{}",
            escaped(first),
            escaped(second)
        )))
    }
}
