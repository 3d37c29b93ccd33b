//! The connection of a client: over its own links, or over a connection that the application
//! supplies.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::address::{self, Address, Endpoint, Server};
use super::cluster::Cluster;
use super::failure::{self, Failure};
use super::limits::Limits;
use super::per_runtime::PerRuntime;
use super::request::Message;
use super::resolver::Resolver;
use super::round_trip::{Pace, RoundTrip};
use super::sentinel::Sentinels;
use super::server_link::{Link, WaitUntil};
use super::server_time::ServerTime;
use super::settings::{Connecting, Settings};
use super::supplied::SendsCommands;
use super::tls::Tls;
use super::wait::Wait;
use crate::breaker::{Breaker, Breakers};
use crate::error::{Error, Result};
use crate::event::Events;

/// A connection that many callers on many runtimes share.
pub(crate) struct Connection {
    route: Route,
    /// The cluster that the server of `route` may turn out to be part of.
    cluster: Option<Route>,
    breakers: Arc<Breakers>,
}

/// Where calls go.
enum Route {
    Server(Single),
    Cluster(Cluster),
    /// Over a connection that the application supplies.
    Supplied(Arc<Link>),
}

/// A server, on a cluster a primary.
pub(crate) struct Reached {
    /// Its address, without credentials.
    pub(crate) name: String,
    /// The node of a cluster that it is; `None` if there is no cluster.
    node: Option<Endpoint>,
}

/// The one server of a URL, or the primary that Sentinels name.
struct Single {
    links: PerRuntime<Link>,
    resolver: Arc<Resolver>,
    settings: Arc<Settings>,
}

impl Single {
    fn new(resolver: Resolver, settings: &Arc<Settings>) -> Self {
        Self {
            links: PerRuntime::new(),
            resolver: Arc::new(resolver),
            settings: Arc::clone(settings),
        }
    }

    /// The link of the current runtime.
    fn link(&self) -> Result<Arc<Link>, Failure> {
        let start = || Link::start(Arc::clone(&self.resolver), Arc::clone(&self.settings));
        self.links.current(start)
    }
}

impl Connection {
    /// Uses a connection that the application supplies.
    pub(crate) fn over(
        connection: impl SendsCommands,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self {
        let link = Link::supplied(connection, response_timeout, Arc::clone(&breakers));
        Self {
            route: Route::Supplied(Arc::new(link)),
            cluster: None,
            breakers,
        }
    }

    /// Connects to one server or primary, or to a cluster if there are several URLs or the server
    /// is part of one. A client that requires no server starts as in an outage: its links go on
    /// trying.
    pub(crate) async fn open(
        urls: &str,
        connecting: Connecting,
        breakers: Arc<Breakers>,
        server_time: &Arc<ServerTime>,
    ) -> Result<Self> {
        let address = address::parse(urls)?;
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        let requires_server = connecting.require_server;
        let mut wait = Wait::new(&connecting, address.to_string());
        let settings = Arc::new(Settings {
            credentials: connecting.credentials,
            sentinel_credentials: connecting.sentinel_credentials,
            tls: Tls::new(&address, &connecting.tls)?,
            response_timeout: connecting.response_timeout,
            server_time: Arc::clone(server_time),
            breakers,
            on_push: None,
        });
        let connection = Self::to(address, &settings)?;
        while let Err(cause) = connection.connected(wait.deadline()).await {
            match wait.again(cause).await {
                Ok(()) => {}
                Err(Error::StoreUnavailable { .. }) if !requires_server => break,
                Err(error) => return Err(error),
            }
        }
        Ok(connection)
    }

    /// A connection to what the URLs name, before anything is connected.
    fn to(address: Address, settings: &Arc<Settings>) -> Result<Self> {
        let single = |resolver| Route::Server(Single::new(resolver, settings));
        let cluster = |servers| Route::Cluster(Cluster::new(servers, Arc::clone(settings)));
        let (route, cluster) = match address {
            Address::Servers(servers) => match <[Server; 1]>::try_from(servers) {
                Ok([server]) => (
                    single(Resolver::first(server.clone())),
                    Some(cluster(vec![server])),
                ),
                Err(_) if !cfg!(feature = "cluster") => {
                    return Err(failure::of_connecting(failure::needs_cluster()));
                }
                Err(servers) => (cluster(servers), None),
            },
            Address::Sentinels(set) => (single(Resolver::Sentinels(Sentinels::new(set))), None),
        };
        Ok(Self {
            route,
            cluster,
            breakers: Arc::clone(&settings.breakers),
        })
    }

    /// Waits for the first connection, and for what calls must know before they are sent.
    async fn connected(&self, deadline: Instant) -> Result<(), Failure> {
        if let Route::Server(server) = self.route() {
            let ready = server.link()?.ready(deadline, WaitUntil::Refused).await;
            if !self.is_cluster() {
                return ready.map(drop);
            }
        }
        if let Route::Cluster(cluster) = self.route() {
            cluster.refresh(deadline).await?;
        }
        Ok(())
    }

    /// Where calls go now: the first connection to a server may show that it is part of a cluster.
    fn route(&self) -> &Route {
        if let (Route::Server(server), Some(cluster)) = (&self.route, &self.cluster)
            && server.resolver.leads_to_cluster()
        {
            return cluster;
        }
        &self.route
    }

    /// Returns the current runtime's link to the server that is known to hold a key.
    fn link(&self, key: &[u8]) -> Result<Arc<Link>, Failure> {
        match self.route() {
            Route::Server(server) => server.link(),
            Route::Cluster(cluster) => cluster.link(key),
            Route::Supplied(link) => match Handle::try_current() {
                Ok(_) => Ok(Arc::clone(link)),
                Err(_) => Err(Failure::NoRuntime),
            },
        }
    }

    /// The handler of events.
    pub(crate) fn events(&self) -> &Events {
        &self.breakers.events
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.route(), Route::Cluster(_))
    }

    /// Whether one server is known to have all keys; on a cluster it is not. `key` is a key in use,
    /// from which the keys to ask for are made.
    pub(crate) fn is_one_server(&self, key: &str) -> bool {
        let is_one_server = |link: Arc<Link>| link.is_one_server(key);
        !self.is_cluster() && self.link(b"").is_ok_and(is_one_server)
    }

    /// Notes that a server refused a call on several keys because of their slots.
    pub(crate) fn refuses_several_keys(&self) {
        if !self.is_cluster()
            && let Ok(link) = self.link(b"")
        {
            link.refuses_several_keys();
        }
    }

    /// The node of a cluster that is known to hold a key; `None` if there is no cluster.
    pub(super) fn node_of(&self, key: &str) -> Option<Endpoint> {
        match self.route() {
            Route::Cluster(cluster) => cluster.node_of(key),
            _ => None,
        }
    }

    /// How to connect to a node of a cluster, or to the one server; `None` over a supplied
    /// connection.
    pub(super) fn way_to(&self, node: Option<&Endpoint>) -> Option<(Arc<Resolver>, &Settings)> {
        match self.route() {
            Route::Server(server) => Some((Arc::clone(&server.resolver), &server.settings)),
            Route::Cluster(cluster) => cluster.way_to(node),
            Route::Supplied(_) => None,
        }
    }

    /// Waits until a command on a key can be sent, as far as is known.
    pub(crate) async fn ready(&self, key: &str, deadline: Instant) -> Result<Pace, Failure> {
        let until = match self.is_cluster() {
            true => WaitUntil::Refused,
            false => WaitUntil::Deadline,
        };
        self.link(key.as_bytes())?.ready(deadline, until).await
    }

    /// How long an answer takes from the server that holds a key, as far as is known.
    pub(crate) fn answer_time(&self, key: &[u8]) -> Duration {
        let pace = self.link(key).map(|link| link.pace());
        pace.unwrap_or_else(|_| RoundTrip::default().pace())
            .answer_time
    }

    /// Whether all breakers are healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        self.breakers.are_healthy()
    }

    /// The breaker of the server that holds a key; `None` if no server is known, or outside a
    /// runtime.
    pub(crate) fn breaker(&self, key: &str) -> Option<Arc<Breaker>> {
        let link = self.link(key.as_bytes()).ok()?;
        Some(Arc::clone(link.breaker()))
    }

    /// The breakers of the servers that the current runtime has connections to, or any if it has
    /// none.
    pub(crate) fn breakers(&self) -> Vec<Arc<Breaker>> {
        let links = match self.route() {
            Route::Server(server) => server.links.in_use(),
            Route::Cluster(cluster) => cluster.links(),
            Route::Supplied(link) => vec![Arc::clone(link)],
        };
        links
            .iter()
            .map(|link| Arc::clone(link.breaker()))
            .collect()
    }

    /// The servers, on a cluster the primaries.
    pub(crate) fn servers(&self) -> Result<Vec<Reached>, Failure> {
        if let Route::Cluster(cluster) = self.route() {
            let nodes = cluster.servers()?.into_iter().map(|node| Reached {
                name: node.to_string(),
                node: Some(node),
            });
            return Ok(nodes.collect());
        }
        Ok(vec![Reached {
            name: self.link(b"")?.breaker().server().to_owned(),
            node: None,
        }])
    }

    /// Sends a command to one server.
    pub(crate) async fn ask(
        &self,
        server: &Reached,
        command: &Cmd,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let message = Message::Command(command);
        match (self.route(), &server.node) {
            (Route::Cluster(cluster), Some(node)) => cluster.send_to(node, message, limits).await,
            _ => self.send(message, limits).await,
        }
    }

    /// The current runtime's breaker of a server; `None` outside a runtime.
    pub(crate) fn breaker_of(&self, server: &Reached) -> Option<Arc<Breaker>> {
        let link = match (self.route(), &server.node) {
            (Route::Cluster(cluster), Some(node)) => cluster.link_to(node),
            _ => self.link(b""),
        };
        Some(Arc::clone(link.ok()?.breaker()))
    }

    /// Sends a message and waits for its answer until the deadline. The call of a script takes a
    /// second round trip where the server does not know it.
    pub(crate) async fn send(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        match self.route() {
            Route::Cluster(cluster) => cluster.send(message, limits).await,
            _ => {
                let link = self.link(b"")?;
                link.send(message, false, limits, WaitUntil::Deadline).await
            }
        }
    }
}
