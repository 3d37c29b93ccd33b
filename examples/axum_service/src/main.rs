//! A service to copy from: limits for each user and each address and one that is shared with Java,
//! from a file; metrics, health, reload, graceful shutdown, and a background worker with a
//! partner's quota.
//!
//! It keeps its limits in memory, or with `REDIS_URL` in Redis, listens at `ADDRESS` or
//! 127.0.0.1:8080, and has the rules of the file that the first argument names. SIGHUP reads the
//! file again; SIGINT and SIGTERM end the service.

mod worker;

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use redisson_rate_limiter::{Rate, RedissonClient, RulesConfig};
use redisson_rate_limiter_metrics::Monitoring;
use redisson_rate_limiter_tower::key::Header;
use redisson_rate_limiter_tower::{RateLimitLayer, signals};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.toml");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let monitoring = Monitoring::start()?;
    let builder = RedissonClient::builder().on_event(monitoring.on_event());
    let client = builder
        .connect_or_memory(env::var("REDIS_URL").ok())
        .await?;

    let file = env::args().nth(1).unwrap_or_else(|| RULES.to_owned());
    let rules = Arc::new(client.rules_from(&RulesConfig::from_file(&file)?)?);
    let layer = RateLimitLayer::by_rules(Arc::clone(&rules))
        // A header, to try it out. Take the user that your authentication has found.
        .attribute("user", Header::new("x-user"));
    let read_again = move || rules.replace_from(&RulesConfig::from_file(&file)?);
    signals::on_hangup(move || match read_again() {
        Ok(change) => println!("read the rules again: {change}"),
        Err(error) => println!("kept the rules: {error}"),
    })?;

    let quota = client.rate_limiter("partner-api");
    let quota = quota.with_rate(Rate::overall(10, Duration::from_secs(1)))?;
    let (orders, received) = mpsc::channel(1_000);
    let send = |order: &str| println!("sent {order}");
    let worker = tokio::spawn(worker::send_orders(quota, received, send));

    let accept = async move |order| match orders.try_send(order) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let app = Router::new()
        .route("/orders", post(accept))
        .route_layer(layer)
        .merge(monitoring.routes(&client))
        .into_make_service_with_connect_info::<SocketAddr>();
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let end = signals::end()?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(end)
        .await?;

    // What still waits for permits ends with an error, and nothing that it was granted is kept.
    if !client.close(Duration::from_secs(10)).await {
        println!("some permits come back only with their window");
    }
    println!("closed; {} orders were not sent", worker.await?.len());
    Ok(())
}
