//! How the value of an attribute is compared and counted: as text, as an address, or as a path.
//!
//! Clients choose the form of some values: a client has a whole network of IPv6 addresses, one
//! address can be written in several ways, and a path can have any query. So that no such choice
//! evades a limit, all forms of a value are compared and counted as one.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// An attribute that a rule counts by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct By {
    pub(super) name: String,
    /// How many leading bits of an IPv6 address count; `None` if the attribute holds no address.
    bits: Option<u8>,
}

/// The bits of the IPv6 network that one client usually has.
const USUAL_BITS: u8 = 64;

impl By {
    /// `NAME` or `NAME/BITS`. Fails with the reason.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, bits) = match text.rsplit_once('/') {
            None => (text, is_address(text).then_some(USUAL_BITS)),
            Some((name, bits)) => match bits.parse() {
                Ok(bits @ 1..=128) => (name, Some(bits)),
                _ => return Err(format!("`{text}`: the bits of a network are 1 to 128")),
            },
        };
        match name.is_empty() {
            true => Err("an attribute has no name".to_owned()),
            false => Ok(Self {
                name: name.to_owned(),
                bits,
            }),
        }
    }

    /// The form of a value that requests are counted by.
    pub(super) fn counted<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        match (self.bits, address(&value)) {
            (Some(bits), Some(IpAddr::V6(address))) => {
                let network = Ipv6Addr::from_bits(masked(address.to_bits(), bits));
                format!("{network}/{bits}").into()
            }
            (Some(_), Some(IpAddr::V4(address))) => address.to_string().into(),
            (Some(_), None) => value,
            (None, _) => compared(&self.name, value),
        }
    }

    /// Refuses a value in a form that no request is counted by. Fails with the reason, which does
    /// not contain the value: errors are logged, and the value may be somebody's name.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        if let Some(hash) = value.strip_prefix("sha256-") {
            let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
            return match hash.len() == 64 && hash.bytes().all(is_digit) {
                true => Ok(()),
                false => Err(
                    "a hash is `sha256-` and 64 hexadecimal digits in lower case; \
                              `rratelimiter hash-key` computes it"
                        .to_owned(),
                ),
            };
        }
        if value.len() > LONGEST {
            return Err("a value of more than 256 bytes counts by its hash; \
                        `rratelimiter hash-key` computes it"
                .to_owned());
        }
        if value.is_empty() {
            return Err("a value must not be empty".to_owned());
        }
        if is_path(&self.name) && value.contains(['?', '#']) {
            return Err("a path counts without its query".to_owned());
        }
        // The stored value of a network ends with its bits, as in `10.0.0.0/8`.
        let given = match self.bits {
            Some(_) => value.split_once('/').map_or(value, |(address, _)| address),
            None => value,
        };
        match self.counted(given.into()) {
            counted if counted == value => Ok(()),
            counted if address(given).is_some() => Err(format!("an address counts as `{counted}`")),
            _ => Err("no request counts by this value".to_owned()),
        }
    }
}

/// The longest value, in bytes, that the tower layer and the server count by its text; they count a
/// longer one by its hash.
const LONGEST: usize = 256;

/// A condition on a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Is(String),
    BeginsWith(String),
    /// A network: an address, and how many of its leading bits count.
    In(IpAddr, u8),
}

impl Pattern {
    /// Parses a text, a beginning that ends in `*`, or, for an attribute that holds an address, a
    /// network. Fails with the reason.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        if let Some(beginning) = text.strip_suffix('*') {
            return Ok(Self::BeginsWith(beginning.to_owned()));
        }
        if text.is_empty() {
            return Err("a value must not be empty".to_owned());
        }
        if is_path(name) && text.contains(['?', '#']) {
            return Err(format!("`{text}`: a path is compared without its query"));
        }
        if is_address(name)
            && let Some((address, bits)) = network(text)
        {
            return Ok(Self::In(address, bits));
        }
        match is_address(name) && text.contains('/') {
            true => Err(format!(
                "`{text}` is not a network such as `192.0.2.0/24` or `2001:db8::/32`"
            )),
            false => Ok(Self::Is(text.to_owned())),
        }
    }

    /// Whether a value in its [`compared`] form matches.
    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Is(text) => value == text,
            Self::BeginsWith(beginning) => value.starts_with(&**beginning),
            Self::In(network, bits) => address(value).is_some_and(|it| is_in(it, *network, *bits)),
        }
    }

    /// Whether it matches every value that `other` matches.
    #[cfg(any(feature = "serde", test))]
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::BeginsWith(beginning), _) if beginning.is_empty() => true,
            (Self::BeginsWith(one), Self::Is(other) | Self::BeginsWith(other)) => {
                other.starts_with(&**one)
            }
            (Self::In(one, bits), Self::In(other, longer)) => {
                longer >= bits && is_in(*other, *one, *bits)
            }
            _ => self == other,
        }
    }
}

/// The form of a value that patterns are compared with: a path without its query, an address in its
/// usual text.
pub(super) fn compared<'a>(name: &str, value: Cow<'a, str>) -> Cow<'a, str> {
    if is_path(name) && value.contains(['?', '#']) {
        let path = value.split(['?', '#']).next().unwrap_or_default();
        let path = if path.is_empty() { "/" } else { path };
        return Cow::Owned(path.to_owned());
    }
    if is_address(name)
        && let Some(address) = address(&value)
    {
        return Cow::Owned(address.to_string());
    }
    value
}

fn is_path(name: &str) -> bool {
    ["path", ":path"].contains(&name)
}

fn is_address(name: &str) -> bool {
    ["address", "remote_address"].contains(&name)
}

/// Parses an address. An IPv4 address may be written as an IPv6 address, such as
/// `::ffff:192.0.2.7`.
fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse::<IpAddr>().ok()?.to_canonical())
}

/// A network such as `192.0.2.0/24`, or a single address.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (start, bits) = match text.split_once('/') {
        Some((start, bits)) => (start, Some(bits)),
        None => (text, None),
    };
    let start = start.parse::<IpAddr>().ok()?;
    let most: u8 = if start.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
        None => most,
    };
    match start.to_canonical() {
        IpAddr::V4(canonical) if start.is_ipv6() => {
            Some((IpAddr::V4(canonical), bits.checked_sub(96)?))
        }
        canonical => Some((canonical, bits)),
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differ = address.to_bits() ^ network.to_bits();
            differ.checked_shr(32 - u32::from(bits)).unwrap_or_default() == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            masked(address.to_bits(), bits) == masked(network.to_bits(), bits)
        }
        _ => false,
    }
}

fn masked(address: u128, bits: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits));
    address & mask.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(by: &str, value: &str) -> String {
        By::parse(by).unwrap().counted(value.into()).into_owned()
    }

    fn matches(name: &str, pattern: &str, value: &str) -> bool {
        let pattern = Pattern::parse(name, pattern).unwrap();
        pattern.matches(&compared(name, value.into()))
    }

    #[test]
    fn an_address_counts_by_its_network_whatever_its_form() {
        for (by, value, expected) in [
            ("address", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
            ("address", "2001:DB8:1:2::", "2001:db8:1:2::/64"),
            ("address/56", "2001:db8:1:2ff:3::4", "2001:db8:1:200::/56"),
            ("address/128", "2001:db8:0:0::1", "2001:db8::1/128"),
            ("peer/48", "2001:db8:1:2::4", "2001:db8:1::/48"),
            ("remote_address", "::ffff:192.0.2.7", "192.0.2.7"),
            ("address/1", "192.0.2.7", "192.0.2.7"),
            ("address", "unknown", "unknown"),
            ("user", "2001:DB8::1", "2001:DB8::1"),
            ("path", "/login?a=1", "/login"),
            (":path", "?a", "/"),
        ] {
            assert_eq!(counted(by, value), expected, "{by} {value}");
        }
        for text in ["", "/64", "address/", "address/0", "address/129", "a/b"] {
            assert!(By::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_is_a_text_a_beginning_or_a_network() {
        for (name, pattern, value, expected) in [
            ("path", "/login", "/login?next=/", true),
            ("path", "/login", "/login/", false),
            ("path", "/login*", "/login/now", true),
            ("user", "*", "alice", true),
            ("user", "a*b", "a*b", true),
            ("address", "192.0.2.0/24", "::ffff:192.0.2.9", true),
            ("address", "192.0.2.0/24", "192.0.3.1", false),
            ("address", "::ffff:192.0.2.0/120", "192.0.2.9", true),
            ("address", "0.0.0.0/0", "192.0.2.9", true),
            ("address", "0.0.0.0/0", "2001:db8::1", false),
            ("address", "2001:db8::/32", "2001:DB8:7::1", true),
            ("address", "::/0", "2001:db8::1", true),
            ("address", "2001:db8::1", "2001:db8:0::1", true),
            ("address", "unknown", "unknown", true),
            ("address", "192.0.2.0/24", "unknown", false),
            ("client", "192.0.2.0/24", "192.0.2.1", false),
        ] {
            let matched = matches(name, pattern, value);
            assert_eq!(matched, expected, "{name} {pattern} {value}");
        }
        for (name, pattern) in [
            ("user", ""),
            ("path", "/a?b"),
            ("address", "192.0.2.0/33"),
            ("address", "office/24"),
        ] {
            assert!(Pattern::parse(name, pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_wider_pattern_covers_a_narrower_one() {
        let pattern = |text: &str| Pattern::parse("address", text).unwrap();
        for (one, other) in [
            ("*", "192.0.2.0/24"),
            ("a*", "ab*"),
            ("a*", "ab"),
            ("ab", "ab"),
            ("192.0.0.0/16", "192.0.2.0/24"),
            ("192.0.0.0/16", "192.0.0.0/24"),
            ("2001:db8::/32", "2001:db8:1::1"),
        ] {
            assert!(pattern(one).covers(&pattern(other)), "{one} {other}");
            let is_same = one == other;
            assert_eq!(
                pattern(other).covers(&pattern(one)),
                is_same,
                "{one} {other}"
            );
        }
        assert!(!pattern("a*").covers(&pattern("b")));
        assert!(!pattern("192.0.2.0/24").covers(&pattern("192.0.3.0/24")));
    }

    #[test]
    fn a_value_that_no_request_counts_by_is_refused() {
        let check = |by: &str, value: &str| By::parse(by).unwrap().check(value);
        for (by, value) in [
            ("user", "alice"),
            ("user", "a/b"),
            ("address", "192.0.2.7"),
            ("address", "2001:db8::/64"),
            ("address", "unknown"),
            ("path", "/login"),
        ] {
            assert_eq!(check(by, value), Ok(()), "{by} {value}");
        }
        let hash = format!("sha256-{}", "0f".repeat(32));
        assert_eq!(check("user", &hash), Ok(()));
        for (by, value) in [
            ("user", ""),
            ("user", "sha256-0f"),
            ("user", &*hash.to_uppercase().replace("SHA", "sha")),
            ("user", &*"a".repeat(257)),
            ("path", "/login?a=1"),
            ("address", "2001:db8::1"),
            ("address", "2001:db8::/56"),
            ("address", "::ffff:192.0.2.7"),
            ("address", "192.0.2.7/24"),
        ] {
            assert!(check(by, value).is_err(), "{by} {value}");
        }
    }
}
