//! A service to copy from: limits for each user and each address and one that is shared with Java, from a file; metrics, health,
//! reload, graceful shutdown, and a background worker with a partner's quota.

mod rules;
mod worker;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redisson_rate_limiter::{MemoryStore, Rate, RedissonClient, Rules};
use redisson_rate_limiter_metrics::Metrics;
use redisson_rate_limiter_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// Why the service cannot start, or the rules cannot be read.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What every handler has at hand.
#[derive(Clone)]
pub struct Service {
    client: RedissonClient,
    rules: Arc<Rules<Parts, ()>>,
    rules_file: Arc<PathBuf>,
    metrics: Metrics,
}

impl Service {
    /// With a client of Redis, or in memory without a URL.
    pub async fn start(redis_url: Option<&str>, rules_file: PathBuf) -> Result<Self, Failure> {
        let metrics = Metrics::new().near_limit(0.8);
        prometheus(); // before the first event
        metrics.describe();
        let builder = RedissonClient::builder().on_event(move |event| metrics.note(event));
        let client = match redis_url {
            Some(url) => builder.connect(url).await?,
            None => builder.in_memory(&MemoryStore::new()),
        };
        let read = rules::read(&client, &rules_file)?;
        let rules = Arc::new(client.rules(read.rules)?);
        rules.set_shadow(read.is_shadow);
        Ok(Self {
            client,
            rules,
            rules_file: Arc::new(rules_file),
            metrics,
        })
    }

    /// The client of the service.
    pub fn client(&self) -> RedissonClient {
        self.client.clone()
    }

    /// Reads the file of the rules again. If it has a mistake, the old rules stay.
    pub fn reload(&self) -> Result<(), Failure> {
        let read = rules::read(&self.client, &self.rules_file)?;
        self.rules.replace(read.rules)?;
        self.rules.set_shadow(read.is_shadow);
        Ok(())
    }

    /// Serves until `shutdown`, answers what is in flight, and returns how many orders were not sent.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<usize> {
        let partner = self.client.rate_limiter("partner-api");
        let partner = partner
            .with_rate(Rate::overall(10, Duration::from_secs(1)))
            .map_err(io::Error::other)?;
        let (orders, received) = mpsc::channel(1_000);
        let worker = tokio::spawn(worker::send_orders(partner, received));

        let app = Router::new()
            .route("/orders", post(order).with_state(orders))
            .layer(RateLimitLayer::by_rules(Arc::clone(&self.rules)))
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .with_state(self.clone())
            .into_make_service_with_connect_info::<SocketAddr>();
        let (stop, stopped) = watch::channel(());
        let serve = axum::serve(listener, app).with_graceful_shutdown(async move {
            let mut stopped = stopped;
            let _ = stopped.changed().await; // an error is the end too
        });
        let close = async {
            shutdown.await;
            drop(stop);
            // Those who wait for permits end with an error, and nothing that they were granted is kept.
            if !self.client.close(Duration::from_secs(10)).await {
                println!("some permits come back only with their window");
            }
        };
        let (served, ()) = tokio::join!(serve, close);
        served?;
        worker.await.map_err(io::Error::other)
    }
}

async fn order(State(orders): State<mpsc::Sender<String>>, order: String) -> StatusCode {
    match orders.try_send(order) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn metrics(State(service): State<Service>) -> String {
    service.metrics.sample(&service.client);
    prometheus().render()
}

/// Whether Redis answers, and what is known of its servers.
async fn healthz(State(service): State<Service>) -> (StatusCode, String) {
    match service.client.ping().await {
        Ok(()) => (StatusCode::OK, format!("{:?}\n", service.client.health())),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

/// The recorder of the process.
fn prometheus() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new().install_recorder();
        recorder.expect("no other recorder is installed")
    })
}
