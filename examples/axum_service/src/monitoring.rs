//! What operators see: metrics for Prometheus, and health.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use redisson_rate_limiter::RedissonClient;
use redisson_rate_limiter_metrics::Metrics;
use tokio::time::interval;

/// Starts to record metrics.
pub fn start() -> Result<(Metrics, PrometheusHandle), BuildError> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    let metrics = Metrics::new().near_limit(0.8);
    metrics.describe();
    // Histograms keep each value until then, and nobody may come to scrape them.
    let kept = prometheus.clone();
    tokio::spawn(async move {
        let mut upkeep = interval(Duration::from_secs(5));
        loop {
            upkeep.tick().await;
            kept.run_upkeep();
        }
    });
    Ok((metrics, prometheus))
}

/// `/metrics` and `/healthz`.
pub fn routes(client: &RedissonClient, metrics: Metrics, prometheus: PrometheusHandle) -> Router {
    let (scraped, asked) = (client.clone(), client.clone());
    let scrape = async move || {
        metrics.sample(&scraped);
        prometheus.render()
    };
    Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", get(async move || health(&asked).await))
}

/// Whether Redis answers, and what is known of its servers.
async fn health(client: &RedissonClient) -> (StatusCode, String) {
    match client.ping().await {
        Ok(()) => (StatusCode::OK, format!("{:?}\n", client.health())),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}
