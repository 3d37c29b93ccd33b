#![doc = include_str!("../README.md")]
//!
//! # The code
//! `door` accepts connections, limits their number, and adds TLS and timeouts. `http`, `grpc` and
//! `admin` serve them: they convert a request into parts (`part`), which `service` decides by the
//! rules of the file (`rules`). `trial` decides a request without a server.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod admin;
mod arguments;
mod connection;
mod credentials;
mod door;
mod grpc;
mod grpc_health;
mod http;
mod joint;
mod log;
mod part;
mod rules;
mod service;
mod timed_io;
mod trial;
mod usage;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use redisson_rate_limiter::{
    FailurePolicy, LimiterOptions, MemoryStore, RedissonClient, RedissonClientBuilder,
};
use redisson_rate_limiter_metrics::{BUCKETS, Metrics};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

pub use arguments::ServeArguments;
use credentials::Credentials;
use door::{Door, Protocol};
use grpc_health::GrpcHealth;
use rules::RulesFile;
use service::{Service, StoreState};
pub use trial::Tried;
use usage::Usage;

/// The share of its limit from which on a key counts as near the limit.
const NEAR_LIMIT: f64 = 0.8;

const SECOND: Duration = Duration::from_secs(1);

/// The error that keeps the server from starting, or rules from being tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or a file that it names is wrong, or an address is taken.
    #[error("{0}")]
    Usage(String),
    /// The limits cannot be used.
    #[error(transparent)]
    Limiter(#[from] redisson_rate_limiter::Error),
}

/// The store that has the limits.
#[derive(Debug)]
pub struct Store {
    /// The settings of the client of the store.
    pub builder: RedissonClientBuilder,
    /// The URL of the server; `None` for limits in memory.
    pub url: Option<String>,
    /// The response timeout that is set in `builder`.
    pub response_timeout: Duration,
}

/// Tries the rules without a server if the arguments have `--check` or `--try`, and returns the
/// result; otherwise returns `None`.
///
/// # Errors
/// [`Error::Usage`] if the rules or the request cannot be read, [`Error::Limiter`] if they cannot
/// decide it.
pub async fn try_rules(arguments: &ServeArguments) -> Result<Option<Tried>, Error> {
    match &arguments.tried {
        Some(request) => trial::decide(&arguments.rules, request).await.map(Some),
        None if arguments.check => trial::check(&arguments.rules).map(Some),
        None => Ok(None),
    }
}

/// Serves until a signal ends it, and logs on the standard error.
///
/// # Errors
/// [`Error`] if the server cannot start.
///
/// # Cancel safety
/// Dropping the future does not end open connections.
pub async fn serve(store: Store, arguments: ServeArguments) -> Result<(), Error> {
    log::start(arguments.log);
    allow_many_files();
    let service = Arc::new(service(store, arguments).await?);
    let mut signals = Signals::new().map_err(|error| failed(&error))?;
    let (open, mut all_closed) = mpsc::channel(1);
    for door in doors(&service).await.map_err(|error| failed(&error))? {
        tokio::spawn(door.serve(open.clone()));
    }
    drop(open);
    warn(&service);

    let ticking = tokio::spawn(tick(Arc::clone(&service)));
    let probing = tokio::spawn(probe(Arc::clone(&service)));
    loop {
        tokio::select! {
            _ = signals.hangup.recv() => service.reload(true),
            _ = signals.interrupt.recv() => break,
            _ = signals.terminate.recv() => break,
        }
    }
    service.closing.send_replace(true);
    log::line("ending: answering what is in flight");
    ticking.abort();
    probing.abort();
    service.grpc_health.end().await;
    let limit = service.settings.shutdown_timeout;
    let is_answered = timeout(limit, all_closed.recv()).await.is_ok();
    let is_given_back = service.client.close(limit).await;
    match (is_answered, is_given_back) {
        (true, true) => log::line("ended"),
        (false, _) => log::warning("ended: some requests were cut off"),
        (true, false) => log::warning("ended: some permits come back only with their window"),
    }
    Ok(())
}

async fn service(store: Store, settings: ServeArguments) -> Result<Service, Error> {
    let metrics = Metrics::new().near_limit(NEAR_LIMIT);
    let durations = Matcher::Suffix("_duration_seconds".to_owned());
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(durations, &BUCKETS)
        .and_then(PrometheusBuilder::install_recorder);
    let prometheus = prometheus.map_err(|error| Error::Usage(error.to_string()))?;
    metrics.describe();
    let usage = Arc::new(Usage::new());
    let counted = Arc::clone(&usage);
    let options = LimiterOptions::new().failure_policy(settings.failure_policy.clone());
    let builder = store
        .builder
        .default_options(options)
        .on_event(move |event| {
            metrics.note(event);
            counted.event(event);
            log::event(event);
        });
    let client: RedissonClient = match store.url {
        // The program starts even if the server is down: until the server answers, the failure
        // policy decides.
        Some(url) => builder.require_server(false).connect(&url).await?,
        None => builder.in_memory(&MemoryStore::new()),
    };
    let rules = RulesFile::open(&client, settings.rules.clone()).map_err(Error::Usage)?;
    service::count_first_read();
    let credentials = Credentials::read(&settings).map_err(Error::Usage)?;
    let store_state = StoreState::new(&client.health());
    let is_ready = settings.failure_policy != FailurePolicy::Error || store_state.away().is_none();
    Ok(Service {
        client,
        rules,
        credentials,
        response_timeout: store.response_timeout,
        grpc_health: GrpcHealth::new(is_ready).await,
        settings,
        usage,
        metrics,
        prometheus,
        closing: watch::channel(false).0,
        store: store_state,
    })
}

async fn doors(service: &Arc<Service>) -> io::Result<Vec<Door>> {
    let settings = &service.settings;
    let mut doors = Vec::new();
    for (name, address, protocol) in [
        ("HTTP", settings.http, Protocol::Http),
        ("gRPC", settings.grpc, Protocol::Grpc),
        ("admin", settings.admin, Protocol::Admin),
    ] {
        if let Some(address) = address.0 {
            let door = Door::open(address, protocol, service).await?;
            log::line(format_args!("{name} at {}", door.address()?));
            doors.push(door);
        }
    }
    Ok(doors)
}

/// Logs warnings of settings that are probably not intended, and whether requests are decided.
fn warn(service: &Service) {
    let settings = &service.settings;
    let is_open = |address: arguments::Address| address.0.is_some_and(|it| !it.ip().is_loopback());
    let is_public = is_open(settings.http) || is_open(settings.grpc);
    if is_public && !service.credentials.are_needed(settings) {
        log::warning("anyone who reaches it may ask: there is neither a token nor --client-ca");
    }
    if is_open(settings.admin) {
        log::warning("anyone who reaches the admin address sees the keys");
    }
    let rules = trial::number_of_rules(&service.rules.shown());
    let store = if service.client.health().servers.is_empty() {
        "in memory"
    } else {
        "in the store"
    };
    if let Some(away) = service.store.away() {
        service.warn_of_store(&away);
    }
    let readiness = if service.is_ready() {
        "ready"
    } else {
        "listening"
    };
    log::line(format_args!("{readiness}: {rules}, limits {store}"));
}

/// Updates the usage and the metrics once a second, and reads the rules again if they have changed.
async fn tick(service: Arc<Service>) {
    let mut ticks = once_a_second();
    loop {
        ticks.tick().await;
        service.usage.tick();
        service.prometheus.run_upkeep();
        if service.rules.has_changed() {
            service.reload(false);
        }
    }
}

/// Probes the store once a second. It is a task of its own, because a probe may take as long as the
/// store's response timeout.
async fn probe(service: Arc<Service>) {
    let mut ticks = once_a_second();
    loop {
        ticks.tick().await;
        service.probe().await;
        service.grpc_health.set(service.is_ready()).await;
    }
}

fn once_a_second() -> Interval {
    let mut ticks = interval(SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

struct Signals {
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
}

/// Raises the limit of open files to the most that the system allows, because each connection is
/// a file.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, limit); // if it fails, fewer connections are possible
}

fn failed(error: &io::Error) -> Error {
    Error::Usage(error.to_string())
}
