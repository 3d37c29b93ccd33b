//! The servers that a URL names.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::credentials::Credentials;
use crate::error::{Error, Result};

/// What the URLs name.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// One server, or several nodes of a cluster.
    Servers(Vec<Server>),
    Sentinels(SentinelSet),
}

/// The address of one server, and how to log in there.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    pub(super) options: Options,
}

/// What applies to every server of one URL.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) credentials: Option<Credentials>,
    pub(super) db: i64,
    pub(super) resp3: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Endpoint {
    Tcp {
        host: String,
        port: u16,
        is_tls: bool,
    },
    Unix(PathBuf),
}

/// The Sentinels that know the primary of a name.
#[derive(Debug, Clone)]
pub(super) struct SentinelSet {
    pub(super) sentinels: Vec<Endpoint>,
    pub(super) primary_name: String,
    pub(super) options: Options,
}

#[cfg(feature = "tls")]
impl Address {
    pub(super) fn is_tls(&self) -> bool {
        let mut endpoints: Box<dyn Iterator<Item = &Endpoint>> = match self {
            Self::Servers(servers) => Box::new(servers.iter().map(|server| &server.endpoint)),
            Self::Sentinels(set) => Box::new(set.sentinels.iter()),
        };
        endpoints.any(|endpoint| matches!(endpoint, Endpoint::Tcp { is_tls: true, .. }))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<_> = match self {
            Self::Servers(servers) => servers.iter().map(|server| &server.endpoint).collect(),
            Self::Sentinels(set) => {
                write!(f, "the primary `{}` of Sentinels at ", set.primary_name)?;
                set.sentinels.iter().collect()
            }
        };
        for (i, endpoint) in endpoints.into_iter().enumerate() {
            write!(f, "{}{endpoint}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The error does not repeat what did not parse: it may contain a password.
fn invalid(reason: &'static str) -> Error {
    Error::InvalidArgument {
        argument: "url",
        reason,
    }
}

const NO_URL: &str =
    "it is not a Redis URL such as redis://host:6379 (several nodes of a cluster: comma-separated)";
const NO_SENTINEL_URL: &str =
    "it is not a Sentinel URL such as redis-sentinel://host1:26379,host2:26379/primary-name";

pub(super) fn parse(urls: &str) -> Result<Address> {
    let urls = urls.trim();
    for (scheme, is_tls) in [("redis-sentinel://", false), ("rediss-sentinel://", true)] {
        if let Some(rest) = urls.strip_prefix(scheme) {
            return parse_sentinels(rest, is_tls).map(Address::Sentinels);
        }
    }
    let servers: Result<Vec<_>> = urls.split(',').map(|url| parse_one(url.trim())).collect();
    Ok(Address::Servers(servers?))
}

fn parse_one(url: &str) -> Result<Server> {
    let tls = [("rediss://", "redis://"), ("valkeys://", "valkey://")];
    let tls = tls.iter().find_map(|(scheme, plain)| {
        let rest = url.strip_prefix(scheme)?;
        Some(format!("{plain}{rest}"))
    });
    if tls.is_some() {
        supports_tls()?;
        if url.contains('#') {
            return Err(invalid(
                "the server's certificate is always verified: it takes no fragment",
            ));
        }
    }
    let info = match &tls {
        Some(plain) => plain.as_str().into_connection_info(),
        None => url.into_connection_info(),
    };
    server(&info.map_err(|_| invalid(NO_URL))?, tls.is_some())
}

fn server(info: &ConnectionInfo, is_tls: bool) -> Result<Server> {
    let endpoint = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Endpoint::Tcp {
            host: host.clone(),
            port: *port,
            is_tls,
        },
        ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
        _ => return Err(invalid(NO_URL)),
    };
    let settings = info.redis_settings();
    let credentials = settings.password().map(|password| Credentials {
        username: settings.username().map(str::to_owned),
        password: password.to_owned(),
    });
    Ok(Server {
        endpoint,
        options: Options {
            credentials,
            db: settings.db(),
            resp3: settings.protocol() == ProtocolVersion::RESP3,
        },
    })
}

/// `[user:pass@]h1:26379,h2:26379/primary-name[/db]`
fn parse_sentinels(rest: &str, is_tls: bool) -> Result<SentinelSet> {
    if is_tls {
        supports_tls()?;
    }
    let no_url = || invalid(NO_SENTINEL_URL);
    let (authority, path) = rest.split_once('/').ok_or_else(no_url)?;
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let (primary_name, db) = match path.trim_end_matches('/').split_once('/') {
        Some((name, db)) => (name, db),
        None => (path.trim_end_matches('/'), "0"),
    };
    if primary_name.is_empty() {
        return Err(no_url());
    }
    let servers: Result<Vec<_>> = hosts
        .split(',')
        .map(|host| {
            let host = host.trim();
            let has_port = host
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.ends_with(']'));
            let port = if has_port { "" } else { ":26379" };
            parse_one(&format!("redis://{login}{host}{port}/{db}")).map_err(|_| no_url())
        })
        .collect();
    let mut options = Options::default();
    let mut sentinels = Vec::new();
    for server in servers? {
        options = server.options;
        sentinels.push(match server.endpoint {
            Endpoint::Tcp { host, port, .. } => Endpoint::Tcp { host, port, is_tls },
            unix @ Endpoint::Unix(_) => unix,
        });
    }
    Ok(SentinelSet {
        sentinels,
        primary_name: primary_name.to_owned(),
        options,
    })
}

fn supports_tls() -> Result<()> {
    if cfg!(feature = "tls") {
        Ok(())
    } else {
        Err(invalid("TLS needs this crate's feature `tls`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp {
            host: host.to_owned(),
            port,
            is_tls: false,
        }
    }

    fn sentinels(url: &str) -> SentinelSet {
        match parse(url).unwrap() {
            Address::Sentinels(set) => set,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_sentinel_url_names_the_sentinels_the_primary_the_database_and_the_login() {
        let set = sentinels("redis-sentinel://user:p%40ss@h1:1,h2,[::1]:3/orders/7");
        assert_eq!(
            set.sentinels,
            [tcp("h1", 1), tcp("h2", 26379), tcp("::1", 3)]
        );
        assert_eq!(set.primary_name, "orders");
        assert_eq!(set.options.db, 7);
        let credentials = set.options.credentials.unwrap();
        assert_eq!(credentials.username.as_deref(), Some("user"));
        assert_eq!(credentials.password, "p@ss");
    }

    #[test]
    fn a_sentinel_url_needs_neither_login_nor_database() {
        let set = sentinels("redis-sentinel://h1:1/orders");
        assert_eq!(set.sentinels, [tcp("h1", 1)]);
        assert_eq!((set.options.db, set.options.resp3), (0, false));
        assert!(set.options.credentials.is_none());
    }

    #[test]
    fn what_is_no_url_is_refused() {
        let urls = [
            "",
            "localhost",
            "http://localhost",
            "redis-sentinel://h1:1",
            "redis-sentinel://h1:1/",
            "redis-sentinel://h1:1/orders/db",
            "redis-sentinel:///orders",
            "redis://h1,",
        ];
        for url in urls {
            assert!(
                matches!(parse(url), Err(Error::InvalidArgument { .. })),
                "{url}"
            );
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_tls_url_without_the_feature_names_the_feature() {
        for url in ["rediss://localhost", "rediss-sentinel://localhost/orders"] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains("feature `tls`"), "{error}");
        }
    }
}
