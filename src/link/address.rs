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

impl Address {
    fn endpoints(&self) -> Vec<&Endpoint> {
        match self {
            Self::Servers(servers) => servers.iter().map(|server| &server.endpoint).collect(),
            Self::Sentinels(set) => set.sentinels.iter().collect(),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        let is_tls = |it: &&Endpoint| matches!(it, Endpoint::Tcp { is_tls: true, .. });
        self.endpoints().iter().any(is_tls)
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
        if let Self::Sentinels(set) = self {
            write!(f, "the primary `{}` of Sentinels at ", set.primary_name)?;
        }
        let endpoints: Vec<_> = self.endpoints().iter().map(ToString::to_string).collect();
        f.write_str(&endpoints.join(","))
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
    "must be a Redis URL such as redis://host:6379, or several of them, separated by commas";
const NO_SENTINEL_URL: &str =
    "must be a Sentinel URL such as redis-sentinel://host1:26379,host2:26379/primary-name";

const NODE_WITHOUT_SCHEME: &str = "must have a scheme of its own for each node of a cluster, as in redis://host1:6379,redis://host2:6379";
const UNKNOWN_SCHEME: &str =
    "must begin with redis://, rediss://, redis-sentinel://, rediss-sentinel:// or unix://";
const UNESCAPED_LOGIN: &str = "has a character in its user name or password that must be percent-encoded, such as %2F for a slash";
const BAD_DATABASE: &str =
    "must have one number as its database, which follows the host or is the parameter `db`";
const BAD_PROTOCOL: &str = "must have `resp2` or `resp3` as its parameter `protocol`";
const BAD_PARAMETER: &str =
    "must have parameters of the form `name=value` behind its `?`, each once";
const FRAGMENT: &str =
    "must have no fragment: the server's certificate is always verified, and `#` is written %23";
/// The parameters that a URL with a host may have.
const PARAMETERS: [&str; 2] = ["db", "protocol"];
/// The parameters that the URL of a Unix socket may have.
const UNIX_PARAMETERS: [&str; 4] = ["db", "protocol", "user", "pass"];
/// The schemes of servers that are no Sentinels.
const SCHEMES: [&str; 6] = ["redis", "rediss", "valkey", "valkeys", "redis+unix", "unix"];

/// Parses one URL, or several that are separated by commas.
pub(super) fn parse(urls: &str) -> Result<Address> {
    let urls = urls.trim();
    for (scheme, is_tls) in [("redis-sentinel://", false), ("rediss-sentinel://", true)] {
        if let Some(rest) = urls.strip_prefix(scheme) {
            return parse_sentinels(rest, is_tls).map(Address::Sentinels);
        }
    }
    let urls = urls.split(',').map(str::trim);
    if urls.clone().count() > 1
        && urls
            .clone()
            .any(|url| !url.is_empty() && !url.contains("://"))
    {
        return Err(invalid(NODE_WITHOUT_SCHEME));
    }
    let servers: Result<Vec<_>> = urls.map(parse_one).collect();
    Ok(Address::Servers(servers?))
}

fn parse_one(url: &str) -> Result<Server> {
    let tls = [("rediss://", "redis://"), ("valkeys://", "valkey://")];
    let tls = tls.iter().find_map(|(scheme, plain)| {
        let rest = url.strip_prefix(scheme)?;
        Some(format!("{plain}{rest}"))
    });
    let info = match &tls {
        Some(plain) => plain.as_str().into_connection_info(),
        None => url.into_connection_info(),
    };
    let info = info.map_err(|_| invalid(wrong_part(url)))?;
    let mut server = server(&info, tls.is_some())?;
    let database = parameters(url, &server.endpoint)?;
    if let (Some(db), Endpoint::Tcp { .. }) = (database, &server.endpoint) {
        // redis-rs reads only a database in the path.
        let (location, _) = url.split_once('?').unwrap_or((url, ""));
        let path = location.splitn(4, '/').nth(3).unwrap_or_default();
        if !path.is_empty() && server.options.db != db {
            return Err(invalid(BAD_DATABASE));
        }
        server.options.db = db;
    }
    if server.options.db < 0 {
        return Err(invalid(BAD_DATABASE));
    }
    Ok(server)
}

/// Checks the parameters behind the `?`. Returns the database among them.
fn parameters(url: &str, endpoint: &Endpoint) -> Result<Option<i64>> {
    let known: &[&str] = match endpoint {
        Endpoint::Tcp { .. } => &PARAMETERS,
        Endpoint::Unix(_) => &UNIX_PARAMETERS,
    };
    if let Some((_, fragment)) = url.split_once('#') {
        let is_login = fragment.contains('@');
        return Err(invalid(if is_login { UNESCAPED_LOGIN } else { FRAGMENT }));
    }
    let Some((_, query)) = url.split_once('?') else {
        return Ok(None);
    };
    if query.contains('@') && matches!(endpoint, Endpoint::Tcp { .. }) {
        return Err(invalid(UNESCAPED_LOGIN));
    }
    let mut database = None;
    let mut seen: Vec<&str> = Vec::new();
    for parameter in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or(invalid(BAD_PARAMETER))?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !name.chars().all(is_word) || seen.contains(&name) {
            return Err(invalid(BAD_PARAMETER));
        }
        if !known.contains(&name) {
            return Err(Error::UnknownUrlParameter {
                name: name.to_owned(),
            });
        }
        match name {
            "db" => database = Some(value.parse().map_err(|_| invalid(BAD_DATABASE))?),
            "protocol" if !matches!(value, "2" | "3" | "resp2" | "resp3") => {
                return Err(invalid(BAD_PROTOCOL));
            }
            _ => {}
        }
        seen.push(name);
    }
    Ok(database)
}

/// What is wrong with a URL that redis-rs cannot parse.
fn wrong_part(url: &str) -> &'static str {
    let Some((scheme, rest)) = url.split_once("://") else {
        return NO_URL;
    };
    if !SCHEMES.contains(&scheme) {
        return UNKNOWN_SCHEME;
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut escapes = login.split('%').skip(1);
    if path.contains('@')
        || !escapes.all(|it| u8::from_str_radix(it.get(..2).unwrap_or(""), 16).is_ok())
    {
        return UNESCAPED_LOGIN;
    }
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host, None),
    };
    let database = path.trim_start_matches('/').split(['?', '#']).next();
    let is_socket = scheme.ends_with("unix");
    if host.is_empty() && !is_socket {
        "must have a host"
    } else if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        "must have a port between 1 and 65535, or none"
    } else if !is_socket && database.is_some_and(|db| !db.is_empty() && db.parse::<u32>().is_err())
    {
        BAD_DATABASE
    } else if path.contains("protocol=") {
        BAD_PROTOCOL
    } else if path.contains("db=") {
        BAD_DATABASE
    } else {
        NO_URL
    }
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

/// Parses `[user:pass@]h1:26379,h2:26379/primary-name[/db][?parameters]`.
fn parse_sentinels(rest: &str, is_tls: bool) -> Result<SentinelSet> {
    let no_url = || invalid(NO_SENTINEL_URL);
    let (authority, path) = rest.split_once('/').ok_or_else(no_url)?;
    if path.contains('@') {
        return Err(invalid(UNESCAPED_LOGIN));
    }
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path, String::new()),
    };
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let (primary_name, db) = match path.trim_end_matches('/').split_once('/') {
        Some((name, db)) => (name, db),
        None => (path.trim_end_matches('/'), ""),
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
            parse_one(&format!("redis://{login}{host}{port}/{db}{query}"))
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
    fn a_sentinel_url_names_the_sentinels_primary_database_and_login() {
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
    fn a_malformed_url_is_refused() {
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

    #[test]
    fn an_error_names_the_part_of_the_url_that_is_wrong() {
        let cases = [
            ("localhost", NO_URL),
            ("http://localhost", UNKNOWN_SCHEME),
            ("redis://:6379", "must have a host"),
            (
                "redis://h1:port",
                "must have a port between 1 and 65535, or none",
            ),
            (
                "redis://h1:65536",
                "must have a port between 1 and 65535, or none",
            ),
            ("redis://h1/orders", BAD_DATABASE),
            ("redis://h1?db=orders", BAD_DATABASE),
            ("redis://h1?db=-1", BAD_DATABASE),
            ("redis://h1/1?db=2", BAD_DATABASE),
            ("redis+unix:///path?db=orders", BAD_DATABASE),
            ("redis://h1?protocol=resp4", BAD_PROTOCOL),
            ("redis+unix:///path?protocol=resp4", BAD_PROTOCOL),
            ("redis://h1?secret", BAD_PARAMETER),
            ("redis://h1?se%63ret=1", BAD_PARAMETER),
            ("redis://h1?db=1&db=1", BAD_PARAMETER),
            ("redis://us?er:pass@h1", UNESCAPED_LOGIN),
            ("redis://us#er:pass@h1", UNESCAPED_LOGIN),
            ("redis://h1#insecure", FRAGMENT),
            ("redis-sentinel://h1/orders/1?db=2", BAD_DATABASE),
            ("redis://h1/-1", BAD_DATABASE),
            ("redis://user:pa/ss@h1", UNESCAPED_LOGIN),
            ("redis://user:pa#ss@h1", UNESCAPED_LOGIN),
            ("redis://user:pa?ss@h1", UNESCAPED_LOGIN),
            ("redis://h1:1,h2:2", NODE_WITHOUT_SCHEME),
            ("redis-sentinel://user:pa/ss@h1/orders", UNESCAPED_LOGIN),
            (
                "redis-sentinel://h1:port/orders",
                "must have a port between 1 and 65535, or none",
            ),
            ("redis-sentinel://h1/orders/db", BAD_DATABASE),
            ("redis-sentinel://h1", NO_SENTINEL_URL),
        ];
        for (url, expected) in cases {
            match parse(url) {
                Err(Error::InvalidArgument { reason, .. }) => assert_eq!(reason, expected, "{url}"),
                other => panic!("{url}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_database_may_be_a_parameter() {
        for url in [
            "redis://h1?db=3",
            "redis://h1/?db=3",
            "redis://h1:7000/3?db=3",
            "redis://user:secret@h1?protocol=resp3&db=3",
            "redis+unix:///path?db=3",
        ] {
            match parse(url).unwrap() {
                Address::Servers(servers) => assert_eq!(servers[0].options.db, 3, "{url}"),
                other => panic!("{other}"),
            }
        }
        for url in [
            "redis-sentinel://h1,h2/orders?db=3",
            "redis-sentinel://h1/orders/3?db=3&protocol=resp3",
        ] {
            let set = sentinels(url);
            assert_eq!((set.primary_name.as_str(), set.options.db), ("orders", 3));
            assert_eq!(set.options.resp3, url.contains("resp3"));
        }
    }

    #[test]
    fn an_unknown_parameter_is_named_without_its_value() {
        for url in [
            "redis://h1?password=secret",
            "redis://user:secret@h1/1?db=1&password=secret",
            "redis-sentinel://h1/orders?password=secret",
            "redis+unix:///path?pass=secret&password=secret",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
            match error {
                Error::UnknownUrlParameter { name } => assert_eq!(name, "password"),
                other => panic!("{url}: {other}"),
            }
        }
        // A socket's login is in its parameters.
        let error = parse("redis://h1?user=app").unwrap_err();
        assert!(matches!(error, Error::UnknownUrlParameter { .. }));
        assert!(parse("redis+unix:///path?user=app&pass=a@b").is_ok());
    }
}
