//! Starts the service: in memory, or with `REDIS_URL` in Redis, at `ADDRESS` or 127.0.0.1:8080, by the rules of the file that the
//! first argument names. SIGHUP reads the file again; SIGINT and SIGTERM end the service.

use std::env;
use std::path::PathBuf;

use axum_service::{Failure, Service};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let rules = env::args_os().nth(1);
    let rules = rules.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/rules.toml").into());
    let redis_url = env::var("REDIS_URL").ok();
    let service = Service::start(redis_url.as_deref(), PathBuf::from(rules)).await?;

    let (mut hangup, mut interrupt, mut terminate) = (
        signal(SignalKind::hangup())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let shutdown = {
        let service = service.clone();
        async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => return,
                    _ = terminate.recv() => return,
                    _ = hangup.recv() => match service.reload() {
                        Ok(()) => println!("read the rules again"),
                        Err(error) => println!("kept the rules: {error}"),
                    },
                }
            }
        }
    };

    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let left = service.run(listener, shutdown).await?;
    println!("closed; {left} orders were not sent");
    Ok(())
}
