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
use super::credentials::Provider;
use super::failure::Failure;
use super::given::{self, Given};
use super::known_scripts::KnownScripts;
use super::one_server::OneServer;
use super::per_runtime::PerRuntime;
use super::request::Message;
use super::resolver::Resolver;
use super::retry::Limits;
use super::round_trip::{self, Pace, RoundTrip};
use super::sentinel::Sentinels;
use super::server_link::{Link, WaitUntil};
use super::server_time::ServerTime;
use super::settings::Settings;
use super::tls::{Tls, TlsConfig};
use super::wait::Wait;
use crate::breaker::{Breaker, Breakers};
use crate::error::{Error, Result};
use crate::event::Events;

/// What a client connects with.
pub(crate) struct Connecting {
    pub(crate) credentials: Option<Provider>,
    pub(crate) sentinel_credentials: Option<Provider>,
    pub(crate) response_timeout: Duration,
    pub(crate) tls: TlsConfig,
    /// How long `connect` keeps trying if no server is ready.
    pub(crate) wait: Duration,
    /// Whether it fails then.
    pub(crate) needs_server: bool,
    pub(crate) breakers: Arc<Breakers>,
}

/// A connection that many callers on many runtimes share.
pub(crate) struct Connection {
    route: Route,
    /// The cluster that the server of `route` may turn out to be part of.
    #[cfg(feature = "cluster")]
    cluster: Option<Route>,
    breakers: Arc<Breakers>,
}

#[expect(clippy::large_enum_variant, reason = "a client has one or two of them")]
enum Route {
    Server(Single),
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
    Given {
        connection: Arc<dyn Given>,
        one_server: Arc<OneServer>,
        scripts: KnownScripts,
        breaker: Arc<Breaker>,
        round_trip: RoundTrip,
        response_timeout: Duration,
    },
}

/// A server, and the way to it unless it is that of all commands.
pub(crate) struct Reached {
    pub(crate) breaker: Arc<Breaker>,
    link: Option<Arc<Link>>,
}

impl Reached {
    /// Its address, without credentials.
    pub(crate) fn name(&self) -> &str {
        self.breaker.server()
    }
}

/// One server or primary.
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
        Self::over(given::Cloned(connection), response_timeout, breakers)
    }

    pub(crate) fn over(
        connection: impl Given,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self {
        let server = "the application's connection".to_owned();
        let route = Route::Given {
            connection: Arc::new(connection),
            one_server: Arc::default(),
            scripts: KnownScripts::default(),
            breaker: Breaker::new(server, response_timeout, Arc::clone(&breakers)),
            round_trip: RoundTrip::default(),
            response_timeout,
        };
        Self::new(route, breakers)
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
            let ready = server.link()?.ready(deadline, WaitUntil::Refused).await;
            if !self.is_cluster() {
                return ready.map(drop);
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
            && server.resolver.leads_to_cluster()
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
        match self.route() {
            Route::Server(server) => server.link().is_ok_and(|link| link.is_one_server(key)),
            #[cfg(feature = "cluster")]
            Route::Cluster(_) => false,
            Route::Given {
                connection,
                one_server,
                ..
            } => one_server.has_all_keys(key, || Arc::clone(connection)),
        }
    }

    /// A call on several keys was refused because of their slots.
    pub(crate) fn refuses_several_keys(&self) {
        match self.route() {
            Route::Server(server) => {
                if let Ok(link) = server.link() {
                    link.refuses_several_keys();
                }
            }
            #[cfg(feature = "cluster")]
            Route::Cluster(_) => {}
            Route::Given { one_server, .. } => one_server.is_refused(),
        }
    }

    /// The node of a cluster that holds a key, as far as is known; `None` where there is no
    /// cluster.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "one server has all keys")
    )]
    pub(super) fn node_of(&self, key: &str) -> Option<Endpoint> {
        match self.route() {
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.node_of(key),
            _ => None,
        }
    }

    /// The way to that node, or to the one server; `None` over a connection that the application
    /// supplies.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "one server has all keys")
    )]
    pub(super) fn way_to(&self, node: Option<&Endpoint>) -> Option<(Arc<Resolver>, &Settings)> {
        match self.route() {
            Route::Server(server) => Some((Arc::clone(&server.resolver), &server.settings)),
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => Some(cluster.way_to(node?)),
            Route::Given { .. } => None,
        }
    }

    /// Waits until a command on a key can be sent, as far as is known.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "one server has all keys")
    )]
    pub(crate) async fn ready(&self, key: &str, deadline: Instant) -> Result<Pace, Failure> {
        match self.route() {
            Route::Server(server) => {
                let link = server.link()?;
                link.ready(deadline, WaitUntil::Deadline).await
            }
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.ready(key, deadline).await,
            Route::Given { round_trip, .. } => Ok(Pace {
                silence_limit: round_trip::LONGEST,
                ..round_trip.pace()
            }),
        }
    }

    /// How long an answer takes from the server that holds a key, as far as is known.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "one server has all keys")
    )]
    pub(crate) fn answer_time(&self, key: &[u8]) -> Duration {
        let pace = match self.route() {
            Route::Server(server) => server.link().ok().map(|link| link.pace()),
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.pace(key),
            Route::Given { round_trip, .. } => Some(round_trip.pace()),
        };
        let pace = pace.unwrap_or_else(|| RoundTrip::default().pace());
        pace.answer_time
    }

    /// Whether all breakers are healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        self.breakers.are_healthy()
    }

    /// The breaker of the server that holds a key; `None` if no server is known, or outside a
    /// runtime.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "one server has all keys")
    )]
    pub(crate) fn breaker(&self, key: &str) -> Option<Arc<Breaker>> {
        match self.route() {
            Route::Server(server) => Some(Arc::clone(server.link().ok()?.breaker())),
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.breaker(key),
            Route::Given { breaker, .. } => Some(Arc::clone(breaker)),
        }
    }

    /// The breakers of the servers that the current runtime has connections to, or any if it has
    /// none.
    pub(crate) fn breakers(&self) -> Vec<Arc<Breaker>> {
        let links = match self.route() {
            Route::Server(server) => server.links.in_use(),
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.links_in_use(),
            Route::Given { breaker, .. } => return vec![Arc::clone(breaker)],
        };
        let breakers = links.iter().map(|link| Arc::clone(link.breaker()));
        breakers.collect()
    }

    /// The servers, on a cluster the primaries.
    pub(crate) fn servers(&self) -> Result<Vec<Reached>, Failure> {
        let the_one = |breaker: &Arc<Breaker>| Reached {
            breaker: Arc::clone(breaker),
            link: None,
        };
        match self.route() {
            Route::Server(server) => Ok(vec![the_one(server.link()?.breaker())]),
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => {
                let links = cluster.links()?.into_iter();
                let reached = links.map(|link| Reached {
                    breaker: Arc::clone(link.breaker()),
                    link: Some(link),
                });
                Ok(reached.collect())
            }
            Route::Given { breaker, .. } => Ok(vec![the_one(breaker)]),
        }
    }

    /// Sends a command to one server.
    pub(crate) async fn ask(
        &self,
        server: &Reached,
        command: &Cmd,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let Some(link) = &server.link else {
            return self.send(command, limits).await;
        };
        let message = Message::Command(command);
        let answer = link.send(message, false, limits, WaitUntil::Deadline).await;
        #[cfg(feature = "cluster")]
        if let (Route::Cluster(cluster), Err(_)) = (self.route(), &answer) {
            cluster.node_failed();
        }
        answer
    }

    /// Sends a command and waits for its answer until the deadline.
    pub(crate) async fn send(&self, command: &Cmd, limits: Limits) -> Result<Value, Failure> {
        self.send_message(Message::Command(command), limits).await
    }

    /// The same for a call of a script, which takes a second round trip where the server does not
    /// know it.
    pub(crate) async fn send_message(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        match self.route() {
            Route::Server(server) => {
                let link = server.link()?;
                link.send(message, false, limits, WaitUntil::Deadline).await
            }
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.send(message, limits).await,
            Route::Given {
                connection,
                scripts,
                round_trip,
                response_timeout,
                ..
            } => {
                Handle::try_current().map_err(|_| Failure::NoRuntime)?;
                let over = given::Over {
                    connection: &**connection,
                    scripts,
                    round_trip,
                    response_timeout: *response_timeout,
                };
                over.send(message, limits).await
            }
        }
    }
}
