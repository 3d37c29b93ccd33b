//! A service to copy from: limits for each user, each address and all, with plans, costs and
//! a rule that is only tried out, from a file; limits that are shared with Java, one of which
//! requests wait for; metrics, health, reload, graceful shutdown, and a worker with a partner's
//! quota.
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
use axum::routing::{get, post};
use redisson_rate_limiter::{Rate, RedissonClient, RulesConfig};
use redisson_rate_limiter_metrics::Monitoring;
use redisson_rate_limiter_tower::key::{Everyone, Header};
use redisson_rate_limiter_tower::{RateLimitLayer, signals};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.toml");
const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let monitoring = Monitoring::start()?;
    let builder = RedissonClient::builder().on_event(monitoring.on_event());
    let url = env::var("REDIS_URL").ok();
    let client = builder.connect_or_memory(url).await?;

    let file = env::args().nth(1).unwrap_or_else(|| RULES.to_owned());
    let rules = Arc::new(client.rules_from(&RulesConfig::from_file(&file)?)?);
    let layer = RateLimitLayer::by_rules(Arc::clone(&rules))
        // A header, to try it out. Take the user that your authentication has found.
        .attribute("user", Header::new("x-user"))
        .attribute("items", Header::new("x-items"));
    let read_again = move || rules.replace_from(&RulesConfig::from_file(&file)?);
    signals::on_hangup(move || match read_again() {
        Ok(change) => println!("read the rules again: {change}"),
        Err(error) => println!("kept the rules: {error}"),
    })?;

    // Java: redisson.getRateLimiter("reports")
    let reports = client.rate_limiter("reports");
    let reports = reports.with_rate(Rate::overall(5, SECOND))?;
    let reports = RateLimitLayer::new(reports, Everyone).wait_up_to(2 * SECOND);

    let quota = client.rate_limiter("partner-api");
    let quota = quota.with_rate(Rate::overall(10, SECOND))?;
    let (orders, received) = mpsc::channel(1_000);
    let worker = worker::send_orders(quota, received, |order| println!("sent {order}"));
    let worker = tokio::spawn(worker);

    let accept = async move |order| match orders.try_send(order) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let app = Router::new()
        .route("/orders", post(accept))
        .route("/reports", get(async || "a report").route_layer(reports))
        .route_layer(layer)
        .merge(monitoring.routes(&client))
        .into_make_service_with_connect_info::<SocketAddr>();
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let end = signals::end()?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let serving = axum::serve(listener, app);
    serving.with_graceful_shutdown(end).await?;

    // What still waits for permits ends with an error, and nothing that it was granted is kept.
    if !client.close(10 * SECOND).await {
        println!("some permits come back only with their window");
    }
    println!("closed; {} orders were not sent", worker.await?.len());
    Ok(())
}
