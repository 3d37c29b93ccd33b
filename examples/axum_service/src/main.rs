//! A service to copy from: limits for each user and each address and one that is shared with Java, from a file; metrics, health,
//! reload, graceful shutdown, and a background worker with a partner's quota.
//!
//! It keeps its limits in memory, or with `REDIS_URL` in Redis, listens at `ADDRESS` or 127.0.0.1:8080, and has the rules of the
//! file that the first argument names. SIGHUP reads the file again; SIGINT and SIGTERM end the service.

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusBuilder;
use redisson_rate_limiter::{
    FailurePolicy, LimiterOptions, MemoryStore, Rate, RateLimiter, RedissonClient, RulesFile,
};
use redisson_rate_limiter_metrics::Metrics;
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::{ClientAddress, Everyone, Header, by};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    let metrics = Metrics::new().near_limit(0.8);
    metrics.describe();
    let builder = RedissonClient::builder().on_event(move |event| metrics.note(event));
    let client = match env::var("REDIS_URL") {
        Ok(url) => builder.connect(&url).await?,
        Err(_) => builder.in_memory(&MemoryStore::new()),
    };

    let path = env::args().nth(1);
    let path = path.as_deref();
    let file = RulesFile::new(path.unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/rules.toml")))
        // A header, to try it out. Take the user that your authentication has found.
        .key("user", by(Header::new("x-user")))
        .key("address", by(ClientAddress::peer()))
        .key("all", by(Everyone));
    let rules = Arc::new(client.rules_from(&file)?);
    let layer = RateLimitLayer::by_rules(Arc::clone(&rules));
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match rules.replace_from(&file) {
                Ok(()) => println!("read the rules again"),
                Err(error) => println!("kept the rules: {error}"),
            }
        }
    });

    let quota = client.rate_limiter("partner-api");
    let quota = quota.with_rate(Rate::overall(10, Duration::from_secs(1)))?;
    // While Redis is away, the worker waits.
    let waits = LimiterOptions::new().failure_policy(FailurePolicy::Wait);
    let (orders, received) = mpsc::channel(1_000);
    let worker = tokio::spawn(send_orders(quota.with_options(waits), received));

    let (scraped, asked) = (client.clone(), client.clone());
    let app = Router::new()
        .route(
            "/orders",
            post(|order| async move { accept(&orders, order) }),
        )
        .layer(layer)
        .route(
            "/metrics",
            get(async move || {
                metrics.sample(&scraped);
                prometheus.render()
            }),
        )
        .route("/healthz", get(async move || health(&asked).await))
        .into_make_service_with_connect_info::<SocketAddr>();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
        })
        .await?;

    // What still waits for permits ends with an error, and nothing that it was granted is kept.
    if !client.close(Duration::from_secs(10)).await {
        println!("some permits come back only with their window");
    }
    println!("closed; {} orders were not sent", worker.await?);
    Ok(())
}

fn accept(orders: &mpsc::Sender<String>, order: String) -> StatusCode {
    match orders.try_send(order) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Whether Redis answers, and what is known of its servers.
async fn health(client: &RedissonClient) -> (StatusCode, String) {
    match client.ping().await {
        Ok(()) => (StatusCode::OK, format!("{:?}\n", client.health())),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

/// Sends orders to a partner, whose quota all instances of the service share. Ends when the client is closed, and returns how many
/// were not sent.
async fn send_orders(quota: RateLimiter, mut orders: mpsc::Receiver<String>) -> usize {
    while quota.acquire(1).await.is_ok() {
        match orders.recv().await {
            Some(order) => println!("sent {order}"),
            None => return 0,
        }
    }
    orders.len()
}
