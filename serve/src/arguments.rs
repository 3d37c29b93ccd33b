//! The command line of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use redisson_rate_limiter::{FailurePolicy, LocalShare};

use super::log::LogFormat;

/// The arguments of the server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --url or REDIS_URL the limits are in memory.

Signals:
  HUP        reads the rules, the certificates and the token again; changed rules are read within two seconds anyway
  TERM, INT  end the server: it reports itself as not ready, answers what is in flight, and closes its connections

Examples:
  rratelimiter serve --rules rules.toml
  rratelimiter serve --rules rules.toml --check
  rratelimiter serve --rules rules.toml --try '{\"domain\": \"shop\", \"entries\": {\"user\": \"alice\"}}'
  REDIS_URL=redis://redis:6379 rratelimiter serve --rules rules.toml --grpc 0.0.0.0:8081 --failure-policy allow
  rratelimiter serve --rules rules.toml --http 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --token-file token")]
pub struct ServeArguments {
    /// The file with the rules
    #[arg(long, value_name = "FILE")]
    pub(super) rules: PathBuf,
    /// Check the rules and exit, with code 0 if they are valid and 2 if not; warns of what is
    /// probably not intended
    #[arg(long, conflicts_with = "tried")]
    pub(super) check: bool,
    /// Show which rules apply to this request of the HTTP API and exit, with code 0 if they would
    /// grant it when nothing has been used before, else 1
    #[arg(long = "try", value_name = "JSON")]
    pub(super) tried: Option<String>,
    /// Where the HTTP API listens; `off` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(super) http: Address,
    /// Where Envoy's rate limit service listens, by gRPC; `off` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub(super) grpc: Address,
    /// Where the status page and /metrics listen, without TLS and token; `off` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8082")]
    pub(super) admin: Address,
    /// What a request gets while the store is away: error, deny, allow, or local:N for a share of
    /// one in N
    #[arg(long, value_name = "POLICY", value_parser = failure_policy, default_value = "error")]
    pub(super) failure_policy: FailurePolicy,
    /// The certificate of the server, followed by those of its issuers, as PEM: HTTP and gRPC then
    /// use TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// The certificate authorities, as PEM: clients then need a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) client_ca: Option<PathBuf>,
    /// A file with the tokens that clients may send, one a line, as `Authorization: Bearer TOKEN`;
    /// RRATELIMITER_TOKEN may hold them instead
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// The longest that a request may wait for permits
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(super) max_wait: Duration,
    /// How long a client may take to send a request, and to read an answer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(super) client_timeout: Duration,
    /// How long requests in flight may take at a shutdown
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(super) shutdown_timeout: Duration,
    /// How the log is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(super) log: LogFormat,
    /// How many connections each address takes at the same time; others wait
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) max_connections: u32,
}

/// An address to listen at, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(pub(super) Option<SocketAddr>);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let address = text.parse();
        let address =
            address.map_err(|_| "must be ADDRESS:PORT, such as 127.0.0.1:8080, or off")?;
        Ok(Self(Some(address)))
    }
}

/// A time such as `500ms`, `5s` or `1h 30m`.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}, such as 500ms, 5s or 1h"))
}

fn failure_policy(text: &str) -> Result<FailurePolicy, String> {
    Ok(match text {
        "error" => FailurePolicy::Error,
        "deny" => FailurePolicy::Deny,
        "allow" => FailurePolicy::Allow,
        _ => {
            let clients = text.strip_prefix("local:").map(str::parse);
            let Some(Ok(clients)) = clients else {
                return Err("must be error, deny, allow or local:N".to_owned());
            };
            FailurePolicy::Local(LocalShare::one_of(clients))
        }
    })
}
