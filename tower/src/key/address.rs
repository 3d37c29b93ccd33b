//! The address of the client.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Key;
use super::forwarded::Forwarded;
use super::of_request::field_name;

/// The client's address: an IPv4 address, or the network of an IPv6 address.
///
/// A client can write any address into `X-Forwarded-For` and `Forwarded`; each proxy then adds, at
/// the end, the address that the request came from. So the list is read from its right end, and
/// only the entries that trusted proxies have written: what a client has forged stands further
/// left and is never read.
///
/// The address of the connection is taken from the request's extensions: a [`SocketAddr`] or
/// [`IpAddr`], with the feature `axum` also a `ConnectInfo<SocketAddr>`, which axum adds if the
/// service is made by `into_make_service_with_connect_info::<SocketAddr>()`. For other places, see
/// [`with_peer`](Self::with_peer). Requests without an address share one key, `unknown`, and an
/// event of `tracing` says so, once.
///
/// ```
/// use redisson_rate_limiter_tower::key::{ClientAddress, Key};
/// use std::net::SocketAddr;
///
/// let request = |peer: &str| {
///     let request = http::Request::builder()
///         .extension(peer.parse::<SocketAddr>().expect("an address"))
///         .header("x-forwarded-for", "203.0.113.9, 192.0.2.1, 10.0.0.3");
///     request.body(()).expect("a request").into_parts().0
/// };
/// let key = |key: ClientAddress, peer| key.key(&request(peer)).map(|it| it.into_owned());
///
/// assert_eq!(key(ClientAddress::peer(), "10.0.0.7:80").as_deref(), Some("10.0.0.7"));
/// assert_eq!(key(ClientAddress::behind_proxies(1), "10.0.0.7:80").as_deref(), Some("10.0.0.3"));
/// assert_eq!(key(ClientAddress::behind_proxies(2), "10.0.0.7:80").as_deref(), Some("192.0.2.1"));
/// let ours = ClientAddress::behind_networks(&["10.0.0.0/8"])?;
/// assert_eq!(key(ours.clone(), "10.0.0.7:80").as_deref(), Some("192.0.2.1"));
/// // It does not come from our proxies, so what it says of others is not read.
/// assert_eq!(key(ours, "198.51.100.5:80").as_deref(), Some("198.51.100.5"));
/// assert_eq!(key(ClientAddress::peer(), "[2001:db8:1:2:3::4]:80").as_deref(), Some("2001:db8:1:2::/64"));
/// # Ok::<(), redisson_rate_limiter_tower::key::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClientAddress {
    trusted: Trusted,
    forwarded: Forwarded,
    /// The number of bits of an IPv6 address that count.
    ipv6_prefix: u8,
    /// Finds the address of the connection.
    peer: fn(&Parts) -> Option<IpAddr>,
}

/// Which proxies are trusted to name the address that a request came from.
#[derive(Debug, Clone)]
enum Trusted {
    /// This number of the nearest proxies, whatever their addresses.
    Proxies(usize),
    /// Every proxy with an address in one of these networks.
    Networks(Vec<IpNet>),
}

impl ClientAddress {
    /// The address at the other end of the connection.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::ClientAddress;
    ///
    /// let key = ClientAddress::peer();
    /// ```
    #[must_use]
    pub fn peer() -> Self {
        Self::behind_proxies(0)
    }

    /// The address from which the request reached the first of `count` proxies. Every request must
    /// pass that many proxies: with fewer, the client chooses its address. If some requests pass
    /// fewer, use [`behind_networks`](Self::behind_networks).
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::ClientAddress;
    ///
    /// let key = ClientAddress::behind_proxies(1); // a load balancer
    /// ```
    #[must_use]
    pub fn behind_proxies(count: usize) -> Self {
        Self {
            trusted: Trusted::Proxies(count),
            forwarded: Forwarded::XForwardedFor,
            ipv6_prefix: 64,
            peer: peer_of,
        }
    }

    /// The first address from the right that is not in one of the networks of trusted proxies. A
    /// network is a text such as `10.0.0.0/8` or `fd00::/8`, or a single address.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::ClientAddress;
    ///
    /// assert!(ClientAddress::behind_networks(&["10.0.0.0/8", "192.0.2.7"]).is_ok());
    /// let error = ClientAddress::behind_networks(&["10.0.0.0/33"]).unwrap_err();
    /// assert_eq!(error.to_string(), "not a network or an address: 10.0.0.0/33");
    /// ```
    ///
    /// # Errors
    /// [`InvalidNetwork`] for a text that is neither a network nor an address.
    pub fn behind_networks(networks: &[&str]) -> Result<Self, InvalidNetwork> {
        let parsed = networks.iter().map(|text| {
            let address = || text.parse().map(|it: IpAddr| IpNet::from(it));
            let network = text.parse().or_else(|_| address());
            let network = network.map_err(|_| InvalidNetwork(String::from(*text)));
            network.map(canonical)
        });
        Ok(Self {
            trusted: Trusted::Networks(parsed.collect::<Result<_, _>>()?),
            ..Self::peer()
        })
    }

    /// Reads the field `Forwarded` (RFC 7239) instead of `X-Forwarded-For`. Only one of the two is
    /// read, because a proxy that writes one passes on whatever clients have written into the
    /// other.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{ClientAddress, Key};
    ///
    /// let (request, ()) = http::Request::builder()
    ///     .extension(std::net::SocketAddr::from(([10, 0, 0, 7], 80)))
    ///     .header("forwarded", r#"for=203.0.113.9, for="[2001:db8::1]:4711";proto=https"#)
    ///     .body(())?
    ///     .into_parts();
    /// let key = ClientAddress::behind_proxies(1).in_forwarded();
    /// assert_eq!(key.key(&request).as_deref(), Some("2001:db8::/64"));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn in_forwarded(self) -> Self {
        Self {
            forwarded: Forwarded::Rfc7239,
            ..self
        }
    }

    /// Reads the address from the field `name` instead of `X-Forwarded-For`, such as
    /// `CF-Connecting-IP`, `True-Client-IP` or `X-Real-IP`. The nearest trusted proxy must set this
    /// field. Requests that do not come through that proxy can set it too, so name the proxies'
    /// [networks](Self::behind_networks). The case of `name` does not matter.
    ///
    /// # Panics
    /// If `name` cannot be the name of a header field.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::{ClientAddress, Key};
    ///
    /// let request = |peer: [u8; 4]| {
    ///     let request = http::Request::builder()
    ///         .extension(std::net::SocketAddr::from((peer, 80)))
    ///         .header("cf-connecting-ip", "203.0.113.9");
    ///     request.body(()).expect("a request").into_parts().0
    /// };
    /// let key = ClientAddress::behind_networks(&["173.245.48.0/20"])?.in_field("CF-Connecting-IP");
    /// assert_eq!(key.key(&request([173, 245, 48, 1])).as_deref(), Some("203.0.113.9"));
    /// assert_eq!(key.key(&request([198, 51, 100, 5])).as_deref(), Some("198.51.100.5"));
    /// # Ok::<(), redisson_rate_limiter_tower::key::InvalidNetwork>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn in_field(self, name: &str) -> Self {
        Self {
            forwarded: Forwarded::Field(field_name(name)),
            ..self
        }
    }

    /// Sets how many bits of an IPv6 address count, at most 128. The default is 64, because a
    /// client usually has a network of that size and could use a new address for each request.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::ClientAddress;
    ///
    /// let key = ClientAddress::peer().ipv6_prefix(56);
    /// ```
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self {
            ipv6_prefix: bits.min(128),
            ..self
        }
    }

    /// Sets how the address of the connection is found, for servers that do not put it into the
    /// request's extensions as described [above](Self).
    ///
    /// ```
    /// use redisson_rate_limiter_tower::key::ClientAddress;
    /// use std::net::IpAddr;
    ///
    /// #[derive(Clone)]
    /// struct Connection(IpAddr);
    ///
    /// let key = ClientAddress::peer()
    ///     .with_peer(|request| request.extensions.get::<Connection>().map(|it| it.0));
    /// ```
    #[must_use]
    pub fn with_peer(self, peer: fn(&Parts) -> Option<IpAddr>) -> Self {
        Self { peer, ..self }
    }

    /// The client's address. If the entry of a trusted proxy is no address, such as `unknown`, it
    /// is the address of that proxy.
    fn address(&self, request: &Parts) -> Option<IpAddr> {
        let mut client = (self.peer)(request).map(|it| it.to_canonical());
        let mut entries = self.forwarded.nearest_first(&request.headers);
        let is_trusted = |networks: &[IpNet], client: Option<IpAddr>| {
            client.is_some_and(|it| networks.iter().any(|network| network.contains(&it)))
        };
        let mut followed = 0;
        while match &self.trusted {
            Trusted::Proxies(count) => followed < *count,
            Trusted::Networks(networks) => is_trusted(networks, client),
        } {
            let Some(Some(address)) = entries.next() else {
                break;
            };
            client = Some(address);
            followed += 1;
        }
        client
    }
}

/// The address at the other end of the connection.
impl Default for ClientAddress {
    fn default() -> Self {
        Self::peer()
    }
}

impl ClientAddress {
    /// The whole address, or `unknown`, for rules: they state themselves how many bits count.
    pub(crate) fn whole(&self, request: &Parts) -> Cow<'static, str> {
        match self.address(request) {
            Some(address) => Cow::Owned(address.to_string()),
            None => missing_address(),
        }
    }
}

impl Key for ClientAddress {
    fn key<'a>(&'a self, request: &'a Parts) -> Option<Cow<'a, str>> {
        let Some(address) = self.address(request) else {
            return Some(missing_address());
        };
        let text = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => {
                let network = Ipv6Net::new(address, self.ipv6_prefix);
                network.map_or_else(|_| address.to_string(), |it| it.trunc().to_string())
            }
        };
        Some(Cow::Owned(text))
    }
}

/// Converts a network of IPv4 addresses in the form of IPv6, such as `::ffff:10.0.0.0/104`, to one
/// of IPv4, because the addresses that are compared with it are converted too.
fn canonical(network: IpNet) -> IpNet {
    let IpAddr::V4(address) = network.addr().to_canonical() else {
        return network;
    };
    let bits = network.prefix_len();
    // An IPv4 address is the last 32 bits of its IPv6 form, after a prefix of 96 bits.
    let bits = match network {
        IpNet::V4(_) => Some(bits),
        IpNet::V6(_) => bits.checked_sub(96),
    };
    let mapped = bits.and_then(|bits| Ipv4Net::new(address, bits).ok());
    mapped.map_or(network, IpNet::from)
}

fn peer_of(request: &Parts) -> Option<IpAddr> {
    let extensions = &request.extensions;
    let socket = || extensions.get::<SocketAddr>().map(SocketAddr::ip);
    #[cfg(feature = "axum")]
    let socket = || {
        use axum::extract::ConnectInfo;
        let info = extensions.get::<ConnectInfo<SocketAddr>>();
        info.map(|it| it.0.ip()).or_else(socket)
    };
    socket().or_else(|| extensions.get::<IpAddr>().copied())
}

/// Returns the key that all requests without an address share, and warns of it once.
fn missing_address() -> Cow<'static, str> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "requests have no peer address in their extensions, so all of them share one limit; \
             with axum, use into_make_service_with_connect_info::<SocketAddr>()"
        );
    }
    Cow::Borrowed("unknown")
}

/// A text that is neither a network, such as `10.0.0.0/8`, nor an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a network or an address: {}", self.0)
    }
}

impl Error for InvalidNetwork {}
