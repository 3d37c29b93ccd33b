//! The trait of the types that find a request's key, and the keys that are made of other keys.

use std::borrow::Cow;
use std::fmt;

use hmac::Hmac;
use http::request::Parts;
use redisson_rate_limiter::BoxFuture;
use sha2::Sha256;

use super::hash::{hash_with, keyed};

/// Finds the key that a request counts for. Implemented by the types of this module, by functions
/// from [`Parts`] to `Option<String>`, and by types of your own.
///
/// `None` and an empty key mean that the request has no key, for example because a header is
/// missing. In a [layer](crate::RateLimitLayer) all requests without a key share one, `unknown`, so
/// that nobody escapes the limit by leaving something out. If the key is an
/// [attribute](crate::RateLimitLayer::attribute) for rules, the request lacks the attribute.
///
/// A key of more than 256 bytes is replaced by its hash, so that no request makes a large key in
/// Redis.
pub trait Key: Send + Sync + 'static {
    /// Returns the key of the request, or `None` if it has none.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{Header, Key};
    ///
    /// let (request, ()) = http::Request::builder().header("x-user", "alice").body(())?.into_parts();
    /// assert_eq!(Header::new("x-user").key(&request).as_deref(), Some("alice"));
    /// assert_eq!(Header::new("x-app").key(&request), None);
    /// # Ok::<(), http::Error>(())
    /// ```
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>>;

    /// Hashes this key, for a key that is a secret, such as an API key: then neither Redis nor logs
    /// contain it. The hash is HMAC-SHA-256 with `secret`, which must be the same in all processes
    /// that share the limit.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{Header, Key};
    ///
    /// let (request, ()) = http::Request::builder().header("x-api-key", "sk-123").body(())?.into_parts();
    /// let key = Header::new("x-api-key").hashed("secret of this service");
    /// assert_eq!(key.key(&request).as_deref(), Some("feb880058dc8f5122458b99e61971f8c"));
    /// # Ok::<(), http::Error>(())
    /// ```
    fn hashed(self, secret: impl AsRef<[u8]>) -> Hashed<Self>
    where
        Self: Sized,
    {
        Hashed {
            key: self,
            hmac: keyed(secret.as_ref()),
        }
    }

    /// This key, or `other` for requests without this key.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{Everyone, Header, Key};
    ///
    /// let (request, ()) = http::Request::new(()).into_parts();
    /// assert_eq!(Header::new("x-user").or(Everyone).key(&request).as_deref(), Some("everyone"));
    /// ```
    fn or<K: Key>(self, other: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or(self, other)
    }

    /// The combination of this key and `other`, such as a user and a path. `None` if the request
    /// lacks one of them. A `:` or `%` in a key is escaped, so that no two combinations share a
    /// key.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{Header, Key, Path};
    ///
    /// let (request, ()) = http::Request::get("/orders").header("x-user", "a:b").body(())?.into_parts();
    /// assert_eq!(Header::new("x-user").and(Path).key(&request).as_deref(), Some("a%3Ab:/orders"));
    /// # Ok::<(), http::Error>(())
    /// ```
    fn and<K: Key>(self, other: K) -> And<Self, K>
    where
        Self: Sized,
    {
        And(self, other)
    }
}

impl<F> Key for F
where
    F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
{
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        self(request).map(Cow::Owned)
    }
}

/// The key of a request. `None` also for an empty key, which limiters refuse.
pub(crate) fn non_empty_key<'a>(
    key: &'a (impl Key + ?Sized),
    request: &'a Parts,
) -> Option<Cow<'a, str>> {
    key.key(request).filter(|it| !it.is_empty())
}

/// Finds the key of a request asynchronously, for example in a database.
pub(crate) type FindKey = dyn Fn(&Parts) -> BoxFuture<'_, Option<String>> + Send + Sync;

/// A hashed key: see [`Key::hashed`].
#[derive(Clone)]
pub struct Hashed<K> {
    key: K,
    hmac: Hmac<Sha256>,
}

impl<K: Key> Key for Hashed<K> {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let key = non_empty_key(&self.key, request)?;
        Some(Cow::Owned(hash_with(self.hmac.clone(), &key)))
    }
}

/// Shows neither the secret nor the HMAC state that is derived from it.
impl<K: fmt::Debug> fmt::Debug for Hashed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hashed").field(&self.key).finish()
    }
}

/// One key, or another for requests without the first: see [`Key::or`].
#[derive(Debug, Clone)]
pub struct Or<A, B>(A, B);

impl<A: Key, B: Key> Key for Or<A, B> {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        non_empty_key(&self.0, request).or_else(|| non_empty_key(&self.1, request))
    }
}

/// The combination of two keys: see [`Key::and`].
#[derive(Debug, Clone)]
pub struct And<A, B>(A, B);

impl<A: Key, B: Key> Key for And<A, B> {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let escaped = |key: Cow<'_, str>| key.replace('%', "%25").replace(':', "%3A");
        let (first, second) = (
            non_empty_key(&self.0, request)?,
            non_empty_key(&self.1, request)?,
        );
        Some(Cow::Owned(format!(
            "{}:{}",
            escaped(first),
            escaped(second)
        )))
    }
}
