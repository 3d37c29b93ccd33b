//! Keys that are taken from a request unchanged.

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

use super::Key;

/// One key for all requests: for a [`RateLimiter`](redisson_rate_limiter::RateLimiter), which
/// limits all requests together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everyone;

impl Key for Everyone {
    fn key<'a>(&'a self, _request: &'a Parts) -> Option<Cow<'a, str>> {
        Some(Cow::Borrowed("everyone"))
    }
}

/// The value of a header field; the first value, if there are several.
///
/// A client can write anything into a header, and so get a new key with each request. Use a value
/// that is verified, such as the user that an earlier layer has authenticated, and
/// [`hashed`](Key::hashed) for a secret.
#[derive(Debug, Clone)]
pub struct Header(HeaderName);

impl Header {
    /// The field `name`, whose case does not matter.
    ///
    /// # Panics
    /// If `name` cannot be the name of a header field.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{Header, Key};
    ///
    /// let request = http::Request::builder().header("x-user", "alice").body(())?;
    /// let key = Header::new("X-User");
    /// assert_eq!(key.key(&request.into_parts().0).as_deref(), Some("alice"));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        Self(field_name(name))
    }
}

impl Key for Header {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let value = request.headers.get(&self.0)?;
        let is_empty = value.is_empty();
        (!is_empty).then(|| String::from_utf8_lossy(value.as_bytes()))
    }
}

/// Parses the name of a header field that a program has as a constant, and panics if it is invalid.
#[track_caller]
pub(super) fn field_name(name: &str) -> HeaderName {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("`{name}` is not the name of a header field"),
    }
}

/// The path of the request. Each path that a client makes up is a new key, so behind a router the
/// matched route is better.
#[derive(Debug, Clone, Copy, Default)]
pub struct Path;

impl Key for Path {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        Some(Cow::Borrowed(request.uri.path()))
    }
}

/// The route that axum has matched, such as `/users/{id}`. `None` for a request that matches no
/// route, and for every request in a layer around the router.
#[cfg(feature = "axum")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Route;

#[cfg(feature = "axum")]
impl Key for Route {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let route = request.extensions.get::<axum::extract::MatchedPath>()?;
        Some(Cow::Borrowed(route.as_str()))
    }
}
