//! Routes for the operators of a service: its metrics and its health.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use redisson_rate_limiter::{Event, RedissonClient};
use tokio::time::interval;

use super::{BUCKETS, Metrics};

/// The time between upkeeps of the recorder. Histograms keep each value until an upkeep or a
/// scrape, and the service may never be scraped.
const UPKEEP: Duration = Duration::from_secs(5);
const NEAR_LIMIT: f64 = 0.8;

/// The metrics of a service for Prometheus, and its health: `/metrics` and `/healthz`.
///
/// For another exporter or other routes, use [`Metrics`] directly.
///
/// ```
/// use axum::Router;
/// use axum::body::{Body, to_bytes};
/// use axum::http::Request;
/// use redisson_rate_limiter::{FixedWindow, MemoryStore, RedissonClient};
/// use redisson_rate_limiter_metrics::Monitoring;
/// use std::time::Duration;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let monitoring = Monitoring::start()?;
/// let builder = RedissonClient::builder().on_event(monitoring.on_event());
/// let client = builder.in_memory(&MemoryStore::new()); // or .connect("redis://127.0.0.1:6379").await?
/// let app = Router::new().merge(monitoring.routes(&client)); // beside the routes of the service
///
/// let logins = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(60)))?.with_name("logins");
/// assert!(logins.check("alice", 1).await?.is_granted());
/// let response = app.oneshot(Request::get("/metrics").body(Body::empty())?).await?;
/// let text = String::from_utf8(to_bytes(response.into_body(), usize::MAX).await?.to_vec())?;
/// assert!(text.contains(r#"rate_limiter_requests_total{limiter="logins",result="granted""#), "{text}");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Monitoring {
    metrics: Metrics,
    prometheus: PrometheusHandle,
}

impl fmt::Debug for Monitoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitoring").finish_non_exhaustive()
    }
}

/// The error if the recorder of the metrics cannot be installed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use redisson_rate_limiter_metrics::Monitoring;
///
/// let _first = Monitoring::start().expect("there is no recorder yet");
/// let error = Monitoring::start().unwrap_err();
/// assert_eq!(error.to_string(), "the recorder of metrics cannot be installed");
/// # }
/// ```
#[derive(Debug)]
pub struct MonitoringError {
    source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for MonitoringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the recorder of metrics cannot be installed")
    }
}

impl Error for MonitoringError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

impl Monitoring {
    /// Installs Prometheus's recorder for the whole process, with [`BUCKETS`] for durations. Spawns
    /// a task on the current tokio runtime that bounds the recorder's memory if nobody scrapes it.
    /// Also counts the requests after which a key has used at least 0.8 of its limit.
    ///
    /// # Errors
    /// If a recorder is installed already.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start() -> Result<Self, MonitoringError> {
        let durations = Matcher::Suffix("_duration_seconds".to_owned());
        let prometheus = PrometheusBuilder::new()
            .set_buckets_for_metric(durations, &BUCKETS)
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| MonitoringError {
                source: error.into(),
            })?;
        let metrics = Metrics::new().near_limit(NEAR_LIMIT);
        metrics.describe();
        let recorder = prometheus.clone();
        tokio::spawn(async move {
            let mut upkeep = interval(UPKEEP);
            loop {
                upkeep.tick().await;
                recorder.run_upkeep();
            }
        });
        Ok(Self {
            metrics,
            prometheus,
        })
    }

    /// Returns a callback that counts the events of a client, for
    /// [`on_event`](redisson_rate_limiter::RedissonClientBuilder::on_event).
    pub fn on_event(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static + use<> {
        let metrics = self.metrics;
        move |event| metrics.note(event)
    }

    /// The routes `/metrics`, for Prometheus, and `/healthz`: 200 if Redis answers, and otherwise
    /// 503 with the cause. Neither belongs behind a rate limit, nor on a public address.
    pub fn routes(&self, client: &RedissonClient) -> Router {
        let (sampled, pinged) = (client.clone(), client.clone());
        let Self {
            metrics,
            prometheus,
        } = self.clone();
        let scrape = async move || {
            metrics.sample(&sampled);
            prometheus.render()
        };
        Router::new()
            .route("/metrics", get(scrape))
            .route("/healthz", get(async move || health(&pinged).await))
    }
}

async fn health(client: &RedissonClient) -> (StatusCode, String) {
    match client.ping().await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}
