//! What the value of an entry is: any text, or an address or a path, of which clients choose the
//! form.
//!
//! A client has a whole network of IPv6 addresses, and one address has several texts. A query
//! behind a path is the client's own. So that none of this evades a limit, a value is counted by
//! what all its forms have in common.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Text,
    /// Without its query.
    Path,
    /// Of an IPv6 address so many bits count.
    Address(u8),
}

impl Meaning {
    /// By the name of an entry, and the bits that a pattern has behind it.
    pub(super) fn of(name: &str, bits: Option<&str>) -> Result<Self, String> {
        match (name, bits) {
            (_, Some(bits)) => match bits.parse() {
                Ok(bits @ 1..=128) => Ok(Self::Address(bits)),
                _ => Err(format!(
                    "`{name}/{bits}`: the bits of a network are 1 to 128"
                )),
            },
            ("address" | "remote_address", None) => Ok(Self::Address(64)),
            ("path" | ":path", None) => Ok(Self::Path),
            _ => Ok(Self::Text),
        }
    }

    /// Refuses a value in a pattern that no request has.
    pub(super) fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Path if value.contains(['?', '#']) => {
                Err(format!("`{value}`: a path is compared without its query"))
            }
            Self::Address(_) => match self.compared(value) {
                compared if compared == value => Ok(()),
                compared => Err(format!("the address `{value}` is written `{compared}`")),
            },
            _ => Ok(()),
        }
    }

    /// Refuses a value that nothing is counted by.
    pub(super) fn check_counted(self, value: &str) -> Result<(), String> {
        let address = value.split_once('/').map_or(value, |(address, _)| address);
        let counted = match self {
            Self::Address(_) if address.parse::<IpAddr>().is_ok() => self.counted(address),
            Self::Address(_) => value.into(),
            Self::Path if value.contains(['?', '#']) => {
                return Err("a path counts without its query".to_owned());
            }
            Self::Text | Self::Path => value.into(),
        };
        match counted == value {
            _ if value.is_empty() => Err("an empty value is none".to_owned()),
            true => Ok(()),
            false => Err(format!("an address counts as `{counted}`")),
        }
    }

    /// The value that a pattern's is compared with.
    pub(super) fn compared(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::Address(_) => match value.parse::<IpAddr>() {
                Ok(address) => address.to_canonical().to_string().into(),
                Err(_) => value.into(),
            },
            Self::Text | Self::Path => self.counted(value),
        }
    }

    /// The value that a request is counted by.
    pub(super) fn counted(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::Text => value.into(),
            Self::Path => match value.split(['?', '#']).next() {
                Some("") | None => "/".into(),
                Some(path) => path.into(),
            },
            Self::Address(bits) => match value.parse::<IpAddr>().map(|it| it.to_canonical()) {
                Ok(IpAddr::V6(address)) => {
                    let network = address.to_bits() & (u128::MAX << (128 - bits));
                    format!("{}/{bits}", Ipv6Addr::from_bits(network)).into()
                }
                Ok(IpAddr::V4(address)) => address.to_string().into(),
                Err(_) => value.into(),
            },
        }
    }
}
