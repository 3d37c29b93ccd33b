//! What rules see of a request.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use redisson_rate_limiter::Attributes;

use crate::key::{ClientAddress, FindKey, Key, bounded, found};

/// Where the attributes of requests are found.
#[derive(Clone, Default)]
pub(crate) struct Found {
    pub(crate) address: ClientAddress,
    /// Those of the application, by their names.
    pub(crate) own: Vec<(Arc<str>, Arc<dyn Key>)>,
    /// Those of them that take time to find.
    pub(crate) awaited: Vec<(Arc<str>, Arc<FindKey>)>,
}

/// The values of the attributes that take time to find.
pub(crate) type Awaited = Vec<(Arc<str>, Option<String>)>;

impl Found {
    pub(crate) async fn awaited(&self, request: &Parts) -> Awaited {
        let mut awaited = Vec::with_capacity(self.awaited.len());
        for (name, find) in &self.awaited {
            awaited.push((Arc::clone(name), find(request).await));
        }
        awaited
    }
}

/// A request, as rules see it.
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a Parts,
    pub(crate) found: &'a Found,
    pub(crate) awaited: &'a Awaited,
}

impl Attributes for Seen<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        if let Some((_, value)) = self.awaited.iter().find(|(it, _)| **it == *name) {
            return value.as_deref().map(Cow::Borrowed);
        }
        if let Some((_, key)) = self.found.own.iter().find(|(it, _)| **it == *name) {
            return found(&**key, self.request);
        }
        match name {
            "method" => Some(Cow::Borrowed(self.request.method.as_str())),
            "path" => Some(Cow::Borrowed(self.request.uri.path())),
            "host" => host(self.request),
            "address" => Some(self.found.address.whole(self.request)),
            #[cfg(feature = "axum")]
            "route" => crate::key::Route.key(self.request),
            _ => None,
        }
    }

    fn counted<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        bounded(value)
    }
}

/// Without the port, in lower case.
fn host(request: &Parts) -> Option<Cow<'_, str>> {
    let of_field = || request.headers.get(HOST)?.to_str().ok();
    let host = request.uri.host().or_else(of_field)?;
    // The colons of an IPv6 address are in brackets.
    let port = host.rfind(':').filter(|at| !host[*at..].contains(']'));
    let host = &host[..port.unwrap_or(host.len())];
    match host.bytes().any(|it| it.is_ascii_uppercase()) {
        true => Some(Cow::Owned(host.to_ascii_lowercase())),
        false => Some(Cow::Borrowed(host)),
    }
}
