//! The connection of a client: over its own links, or over a connection that the application
//! supplies.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::address::{self, Address, Endpoint, Server};
#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::failure::Failure;
use super::given::{Cloned, Given};
use super::limits::Limits;
use super::request::Message;
use super::resolver::Resolver;
use super::round_trip::{Pace, RoundTrip};
use super::sentinel::Sentinels;
use super::server_link::{Reached, WaitUntil};
use super::server_time::ServerTime;
use super::settings::{Connecting, Settings};
use super::single::Single;
use super::supplied::Supplied;
use super::tls::Tls;
use super::wait::Wait;
use crate::breaker::{Breaker, Breakers};
use crate::error::{Error, Result};
use crate::event::Events;

/// A connection that many callers on many runtimes share.
pub(crate) struct Connection {
    route: Route,
    /// The cluster that the server of `route` may turn out to be part of.
    #[cfg(feature = "cluster")]
    cluster: Option<Route>,
    breakers: Arc<Breakers>,
}

/// Each kind of route has a file of its own, and the same methods.
#[expect(clippy::large_enum_variant, reason = "a client has one or two of them")]
enum Route {
    Server(Single),
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
    Supplied(Supplied),
}

/// The same call, whichever route calls take now.
macro_rules! by_route {
    ($connection:expr, $route:ident => $call:expr) => {
        match $connection.route() {
            Route::Server($route) => $call,
            #[cfg(feature = "cluster")]
            Route::Cluster($route) => $call,
            Route::Supplied($route) => $call,
        }
    };
}

impl Connection {
    fn new(route: Route, breakers: Arc<Breakers>) -> Self {
        Self {
            route,
            #[cfg(feature = "cluster")]
            cluster: None,
            breakers,
        }
    }

    pub(crate) fn given<C>(
        connection: C,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::over(Cloned(connection), response_timeout, breakers)
    }

    pub(crate) fn over(
        connection: impl Given,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self {
        let supplied = Supplied::new(connection, response_timeout, &breakers);
        Self::new(Route::Supplied(supplied), breakers)
    }

    /// Connects to one server or primary, or to a cluster if several URLs are given or the server
    /// is part of one. A client that needs no server starts as in an outage: its links go on
    /// trying.
    pub(crate) async fn open(
        urls: &str,
        connecting: Connecting,
        server_time: &Arc<ServerTime>,
    ) -> Result<Self> {
        let address = address::parse(urls)?;
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        let needs_server = connecting.needs_server;
        let mut wait = Wait::new(&connecting, address.to_string());
        let settings = Arc::new(Settings {
            credentials: connecting.credentials,
            sentinel_credentials: connecting.sentinel_credentials,
            tls: Tls::new(&address, &connecting.tls)?,
            response_timeout: connecting.response_timeout,
            server_time: Arc::clone(server_time),
            breakers: connecting.breakers,
            on_push: None,
        });
        let connection = Self::to(address, &settings)?;
        while let Err(cause) = connection.connected(wait.deadline()).await {
            match wait.again(cause).await {
                Ok(()) => {}
                Err(Error::StoreUnavailable { .. }) if !needs_server => break,
                Err(error) => return Err(error),
            }
        }
        Ok(connection)
    }

    /// The way to what the URLs name, before there is a connection.
    fn to(address: Address, settings: &Arc<Settings>) -> Result<Self> {
        let breakers = Arc::clone(&settings.breakers);
        let connection = match address {
            Address::Servers(servers) => match <[Server; 1]>::try_from(servers) {
                Ok([server]) => {
                    let single = Single::new(Resolver::first(server.clone()), settings);
                    Self {
                        #[cfg(feature = "cluster")]
                        cluster: Some(Self::cluster(vec![server], settings)?),
                        ..Self::new(Route::Server(single), breakers)
                    }
                }
                Err(servers) => Self::new(Self::cluster(servers, settings)?, breakers),
            },
            Address::Sentinels(set) => {
                let resolver = Resolver::Sentinels(Sentinels::new(set));
                Self::new(Route::Server(Single::new(resolver, settings)), breakers)
            }
        };
        Ok(connection)
    }

    #[cfg(feature = "cluster")]
    fn cluster(servers: Vec<Server>, settings: &Arc<Settings>) -> Result<Route> {
        Ok(Route::Cluster(Cluster::new(servers, Arc::clone(settings))))
    }

    #[cfg(not(feature = "cluster"))]
    fn cluster(_: Vec<Server>, _: &Arc<Settings>) -> Result<Route> {
        use super::failure::{needs_cluster, of_connecting};

        Err(of_connecting(needs_cluster()))
    }

    /// Waits for the first connection, and for what calls must know before they are sent.
    async fn connected(&self, deadline: Instant) -> Result<(), Failure> {
        if let Route::Server(server) = self.route() {
            let ready = server.connected(deadline).await;
            if !self.is_cluster() {
                return ready;
            }
        }
        #[cfg(feature = "cluster")]
        if let Route::Cluster(cluster) = self.route() {
            cluster.refresh(deadline).await?;
        }
        Ok(())
    }

    /// Where calls go now: the first connection to a server may tell that it is part of a cluster.
    fn route(&self) -> &Route {
        #[cfg(feature = "cluster")]
        if let (Route::Server(server), Some(cluster)) = (&self.route, &self.cluster)
            && server.leads_to_cluster()
        {
            return cluster;
        }
        &self.route
    }

    /// The handler of events.
    pub(crate) fn events(&self) -> &Events {
        &self.breakers.events
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match self.route() {
            #[cfg(feature = "cluster")]
            Route::Cluster(_) => true,
            _ => false,
        }
    }

    /// Whether one server is known to have all keys; `key` is one that is in use. On a cluster they
    /// are in different slots.
    pub(crate) fn is_one_server(&self, key: &str) -> bool {
        by_route!(self, route => route.is_one_server(key))
    }

    /// A call on several keys was refused because of their slots.
    pub(crate) fn refuses_several_keys(&self) {
        by_route!(self, route => route.refuses_several_keys());
    }

    /// The node of a cluster that holds a key, as far as is known; `None` where there is no
    /// cluster.
    pub(super) fn node_of(&self, key: &str) -> Option<Endpoint> {
        by_route!(self, route => route.node_of(key))
    }

    /// The way to that node, or to the one server; `None` over a connection that the application
    /// supplies.
    pub(super) fn way_to(&self, node: Option<&Endpoint>) -> Option<(Arc<Resolver>, &Settings)> {
        by_route!(self, route => route.way_to(node))
    }

    /// Waits until a command on a key can be sent, as far as is known.
    pub(crate) async fn ready(&self, key: &str, deadline: Instant) -> Result<Pace, Failure> {
        by_route!(self, route => route.ready(key, deadline).await)
    }

    /// How long an answer takes from the server that holds a key, as far as is known.
    pub(crate) fn answer_time(&self, key: &[u8]) -> Duration {
        let pace = by_route!(self, route => route.pace(key));
        let pace = pace.unwrap_or_else(|| RoundTrip::default().pace());
        pace.answer_time
    }

    /// Whether all breakers are healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        self.breakers.are_healthy()
    }

    /// The breaker of the server that holds a key; `None` if no server is known, or outside a
    /// runtime.
    pub(crate) fn breaker(&self, key: &str) -> Option<Arc<Breaker>> {
        by_route!(self, route => route.breaker(key))
    }

    /// The breakers of the servers that the current runtime has connections to, or any if it has
    /// none.
    pub(crate) fn breakers(&self) -> Vec<Arc<Breaker>> {
        by_route!(self, route => route.breakers())
    }

    /// The servers, on a cluster the primaries.
    pub(crate) fn servers(&self) -> Result<Vec<Reached>, Failure> {
        by_route!(self, route => route.servers())
    }

    /// Sends a command to one server.
    pub(crate) async fn ask(
        &self,
        server: &Reached,
        command: &Cmd,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let message = Message::Command(command);
        let Some(link) = &server.link else {
            return self.send(message, limits).await;
        };
        let answer = link.send(message, false, limits, WaitUntil::Deadline).await;
        #[cfg(feature = "cluster")]
        if let (Route::Cluster(cluster), Err(_)) = (self.route(), &answer) {
            cluster.node_failed();
        }
        answer
    }

    /// Sends a message and waits for its answer until the deadline. The call of a script takes a
    /// second round trip where the server does not know it.
    pub(crate) async fn send(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        by_route!(self, route => route.send(message, limits).await)
    }
}
