//! The attributes of a request, by which rules apply.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use redisson_rate_limiter::Attributes;

use crate::key::{ClientAddress, FindKey, Key, bounded, non_empty_key};

/// The sources of the attributes of requests.
#[derive(Clone, Default)]
pub(crate) struct AttributeSources {
    /// The source of the attribute `address`.
    pub(crate) address: ClientAddress,
    /// The attributes that the application adds: name and source.
    pub(crate) keys: Vec<(Arc<str>, Arc<dyn Key>)>,
    /// The attributes that the application finds asynchronously: name and source.
    pub(crate) async_keys: Vec<(Arc<str>, Arc<FindKey>)>,
}

/// The names and values of the attributes that are found asynchronously.
pub(crate) type AsyncValues = Vec<(Arc<str>, Option<String>)>;

impl AttributeSources {
    /// Finds the values of `async_keys`, one after the other.
    pub(crate) async fn find_async(&self, request: &Parts) -> AsyncValues {
        let mut values = Vec::with_capacity(self.async_keys.len());
        for (name, find) in &self.async_keys {
            values.push((Arc::clone(name), find(request).await));
        }
        values
    }
}

/// The attributes of one request. Those that the application has added replace the built-in
/// attributes of the same names.
pub(crate) struct RequestAttributes<'a> {
    pub(crate) request: &'a Parts,
    pub(crate) sources: &'a AttributeSources,
    pub(crate) async_values: &'a AsyncValues,
}

impl Attributes for RequestAttributes<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        if let Some((_, value)) = self.async_values.iter().find(|(it, _)| **it == *name) {
            return value.as_deref().map(Cow::Borrowed);
        }
        if let Some((_, key)) = self.sources.keys.iter().find(|(it, _)| **it == *name) {
            return non_empty_key(&**key, self.request);
        }
        match name {
            "method" => Some(Cow::Borrowed(self.request.method.as_str())),
            "path" => Some(Cow::Borrowed(self.request.uri.path())),
            "host" => host(self.request),
            "address" => Some(self.sources.address.whole(self.request)),
            #[cfg(feature = "axum")]
            "route" => crate::key::Route.key(self.request),
            _ => None,
        }
    }

    fn counted<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        bounded(value)
    }
}

/// The host of the request's URI, or else of the field `Host`: without the port, in lower case.
fn host(request: &Parts) -> Option<Cow<'_, str>> {
    let host_field = || request.headers.get(HOST)?.to_str().ok();
    let host = request.uri.host().or_else(host_field)?;
    // A colon within brackets belongs to an IPv6 address.
    let port_at = host.rfind(':').filter(|at| !host[*at..].contains(']'));
    let host = &host[..port_at.unwrap_or(host.len())];
    match host.bytes().any(|it| it.is_ascii_uppercase()) {
        true => Some(Cow::Owned(host.to_ascii_lowercase())),
        false => Some(Cow::Borrowed(host)),
    }
}
