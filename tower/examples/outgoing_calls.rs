//! Calls of a partner's API within its quota: each waits for a permit, and when the partner says
//! "wait", all processes do.
//!
//! ```sh
//! cargo run -p redisson-rate-limiter-tower --example outgoing_calls
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p redisson-rate-limiter-tower --example outgoing_calls
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime};

use futures_util::{Stream, StreamExt, pin_mut, stream};
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient, Result};
use redisson_rate_limiter_tower::fields;
use reqwest::{Client, Response};

/// A server may name any time; nobody waits longer than this for one answer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A partner's API.
struct Partner {
    quota: RateLimiter,
    http: Client,
    url: String,
}

impl Partner {
    /// 5 calls a second, which all processes share, in whatever language.
    fn new(client: &RedissonClient, url: String) -> Result<Self> {
        let quota = client.rate_limiter("partner-api");
        Ok(Self {
            quota: quota.with_rate(Rate::overall(5, Duration::from_secs(1)))?,
            http: Client::new(),
            url,
        })
    }

    /// The answer of the partner, which is asked again when it says that it was asked too often.
    async fn get(&self, path: &str) -> std::result::Result<Response, Box<dyn Error>> {
        loop {
            self.quota.acquire(1).await?;
            let response = self.http.get(format!("{}{path}", self.url)).send().await?;
            let wait = fields::wait(response.headers(), SystemTime::now());
            if let Some(wait) = wait.filter(|it| !it.is_zero()) {
                self.quota.hold(wait.min(LONGEST_WAIT)).await?;
            }
            if response.status() != 429 {
                return Ok(response);
            }
        }
    }
}

/// The items of a stream, each after it has waited for a permit.
fn rate_limited<T>(
    items: impl Stream<Item = T>,
    limiter: &RateLimiter,
) -> impl Stream<Item = Result<T>> {
    items.then(async |item| {
        limiter.acquire(1).await?;
        Ok(item)
    })
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => RedissonClient::connect(&url).await?,
        Err(_) => RedissonClient::in_memory(),
    };
    let url = a_partner::start().await?;
    let partner = Partner::new(&client, url)?;
    for _ in 0..3 {
        println!("{}", partner.get("/orders").await?.status());
    }

    let jobs = client
        .rate_limiter("jobs")
        .with_rate(Rate::overall(2, Duration::from_secs(1)))?;
    let numbers = rate_limited(stream::iter(1..=4), &jobs);
    pin_mut!(numbers);
    while let Some(number) = numbers.next().await {
        println!("job {}", number?);
    }
    Ok(())
}

/// A partner that takes one call, and then wants a second of silence.
mod a_partner {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::response::IntoResponse;
    use axum::routing::get;

    pub async fn start() -> io::Result<String> {
        let calls = Arc::new(AtomicU32::new(0));
        let orders = move || async move {
            match calls.fetch_add(1, Ordering::Relaxed) {
                1 => (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
                _ => http::StatusCode::OK.into_response(),
            }
        };
        let router = Router::new().route("/orders", get(orders));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_call_that_came_too_often_is_made_again_after_the_time_to_retry() {
        let start = Instant::now();
        let partner = Partner::new(
            &RedissonClient::in_memory(),
            a_partner::start().await.unwrap(),
        )
        .unwrap();
        for _ in 0..2 {
            assert_eq!(partner.get("/orders").await.unwrap().status(), 200);
        }
        assert!(start.elapsed() >= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_flows_at_the_rate() {
        let start = Instant::now();
        let limiter = RedissonClient::in_memory().rate_limiter("jobs");
        let limiter = limiter
            .with_rate(Rate::overall(2, Duration::from_secs(1)))
            .unwrap();
        let times = rate_limited(stream::iter(0..5), &limiter).map(|it| {
            it.unwrap();
            start.elapsed().as_secs()
        });
        assert_eq!(times.collect::<Vec<_>>().await, [0, 0, 1, 1, 2]);
    }
}
