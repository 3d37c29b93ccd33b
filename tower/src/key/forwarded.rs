//! The fields in which proxies name the address that a request came from.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Debug, Clone)]
pub(super) enum Forwarded {
    XForwardedFor,
    Rfc7239,
    /// A field with one address, such as `CF-Connecting-IP`.
    Field(HeaderName),
}

impl Forwarded {
    /// The entries of the field from the right: that of the nearest proxy comes first. `None` is
    /// an entry that is no address.
    ///
    /// The field is split at every comma, also within quotes: no address contains a comma, and a
    /// quote that a client left open must not hide what a proxy wrote after it.
    pub(super) fn nearest_first(
        &self,
        headers: &HeaderMap,
    ) -> impl Iterator<Item = Option<IpAddr>> {
        let name = match self {
            Self::XForwardedFor => &X_FORWARDED_FOR,
            Self::Rfc7239 => &FORWARDED,
            Self::Field(name) => name,
        };
        let lines = headers.get_all(name).into_iter().rev();
        let entries = lines.flat_map(|line: &HeaderValue| line.as_bytes().rsplit(|it| *it == b','));
        entries.map(move |entry| {
            let entry = str::from_utf8(entry).ok()?.trim();
            match self {
                Self::XForwardedFor | Self::Field(_) => address(entry),
                Self::Rfc7239 => address(parameter_for(entry)?),
            }
        })
    }
}

/// The value of `for` in an element such as `for="[2001:db8::1]:4711";proto=https`.
///
/// `None` if it is uncertain which `for` the proxy has written: if the element has several, or if
/// a quote contains a semicolon. A client can choose the host, which some proxies, such as HAProxy,
/// write too: `host="a;for=192.0.2.1;b";for=203.0.113.9`.
fn parameter_for(element: &str) -> Option<&str> {
    if !element.split(';').all(has_paired_quotes) {
        return None;
    }
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
    let ((_, value), None) = (values.next()?, values.next()) else {
        return None;
    };
    let value = value.trim();
    let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    Some(quoted.unwrap_or(value))
}

fn has_paired_quotes(text: &str) -> bool {
    let (mut is_paired, mut is_escaped) = (true, false);
    for byte in text.bytes() {
        is_paired ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
    }
    is_paired
}

/// Parses an address, also with a port or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse().ok().map(|it: SocketAddr| it.ip());
    let address = text.parse().ok().or_else(with_port).or_else(bracketed);
    address.map(|it: IpAddr| it.to_canonical())
}
