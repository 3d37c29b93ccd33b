//! What a client knows about its servers.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// What a client knows about its servers without asking them: from
/// [`RedissonClient::health`](crate::RedissonClient::health).
///
/// ```
/// # use redisson_rate_limiter::*;
/// let health = RedissonClient::in_memory().health();
/// assert!(health.is_healthy());
/// assert!(health.servers.is_empty()); // in memory there are none
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Health {
    /// Each server that the client has a connection to, or is trying to connect to, in the order of
    /// their names.
    pub servers: Vec<ServerHealth>,
}

/// What a client knows about one server.
///
/// ```
/// # use redisson_rate_limiter::*;
/// fn report(health: &Health) -> Vec<String> {
///     let lines = health.servers.iter().map(|it| match &it.last_cause {
///         Some(cause) => format!("{}: {}, {cause}", it.server, it.breaker),
///         None => format!("{}: {}", it.server, it.breaker),
///     });
///     lines.collect()
/// }
///
/// assert!(report(&RedissonClient::in_memory().health()).is_empty());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerHealth {
    /// The server, such as `127.0.0.1:6379`; with Sentinels, the name of the primary.
    pub server: Arc<str>,
    /// The state of its circuit breaker.
    pub breaker: BreakerState,
    /// Why calls failed when the breaker was last opened; `None` if it never was. It stays when the
    /// breaker closes.
    pub last_cause: Option<Error>,
}

/// The state of a server's circuit breaker: see [`FailurePolicy`](crate::FailurePolicy).
///
/// ```
/// # use redisson_rate_limiter::*;
/// assert_eq!(BreakerState::HalfOpen.as_str(), "half_open");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// Calls are sent.
    Closed,
    /// One call at a time is sent, to find out whether the server answers again.
    HalfOpen,
    /// Nothing is sent.
    Open,
}

impl Health {
    pub(crate) fn new(mut servers: Vec<ServerHealth>) -> Self {
        servers.sort_by(|one, other| one.server.cmp(&other.server));
        Self { servers }
    }

    /// Whether all circuit breakers are closed. A server that was lost and not called since may not
    /// be known yet: see [`RedissonClient::ping`](crate::RedissonClient::ping).
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.all(|it| it.breaker == BreakerState::Closed)
    }
}

impl BreakerState {
    /// The variant's name in snake case, for labels of metrics. Later versions do not change it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
