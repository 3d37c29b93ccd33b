//! What a request through the layer takes longer than the check itself, wherever it is decided. The
//! goal: p50 at most 10 us.

use std::hint::black_box;
use std::time::{Duration, Instant};

use compat_tests::Server;
use redisson_rate_limiter::{Lease, Limiter, Rate, RedissonClient};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Header;
use tower::{Layer, Service, ServiceExt};

use crate::asking::{Handler, request};

const GOAL: f64 = 10.0;
/// Of each kind, in turn.
const REQUESTS: usize = 5_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Prints a line for each store.
pub async fn compare() {
    let server = Server::start();
    let in_redis = RedissonClient::connect(&server.url())
        .await
        .expect("a server");
    let limiter = |client: &RedissonClient, prefix: &str| {
        let rate = Rate::overall(1_000_000_000, HOUR);
        client.keyed_rate_limiter(prefix, rate).expect("valid")
    };
    println!("| decided | check, p50 us | through the layer | longer | at most {GOAL} us longer |");
    println!("|---|--:|--:|--:|---|");
    compare_one("in memory", limiter(&RedissonClient::in_memory(), "")).await;
    compare_one("by Redis", limiter(&in_redis, "redis:")).await;
    let leased = limiter(&in_redis, "leased:").leased(Lease::up_to(Duration::from_millis(100)));
    compare_one("by leases of 100 ms", leased).await;
}

async fn compare_one<L: Limiter + Clone + 'static>(name: &str, limiter: L) {
    let mut service = RateLimitLayer::new(limiter.clone(), Header::new("x-user")).layer(Handler);
    let (mut checks, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        let start = Instant::now();
        let decision = limiter.check("user:123", 1).await.expect("decided");
        checks.push(start.elapsed());
        assert!(decision.is_granted());

        let request = request();
        let start = Instant::now();
        let ready = service.ready().await.expect("infallible");
        let response = ready.call(request).await.expect("infallible");
        requests.push(start.elapsed());
        assert_eq!(response.status(), 200);
        black_box(response);
    }
    let [check, request] = [checks, requests].map(|mut times| {
        times.sort_unstable();
        times[REQUESTS / 2].as_nanos() as f64 / 1_000.0
    });
    let longer = request - check;
    let holds = if longer <= GOAL { "yes" } else { "**no**" };
    println!("| {name} | {check:.1} | {request:.1} | {longer:.1} | {holds} |");
}
