//! What a rate limit adds to a request, in memory: this crate's layer beside tower_governor's, with
//! a key of each user from a header, and the header fields that tell what is left. And what the
//! layer adds to a decision, in memory, by Redis and by leases.
//!
//! `cargo bench -p benchmarks --bench tower`; `-- 100000 layer` makes so many requests to one of
//! them, for a profiler; `-- stores` does without the comparison in memory. It starts a
//! `redis-server` of its own.

mod asking;
mod stores;

use std::env;
use std::hint::black_box;
use std::time::Duration;

use asking::{Handler, ask, request};
use axum::body::Body;
use http::{Request, Response};
use redisson_rate_limiter::{Limiter, RedissonClient, TokenBucket};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::fields::Fields;
use redisson_rate_limiter_tower::key::{Header, Key};
use tokio::runtime::Runtime;
use tower::Layer;
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;

/// The same key as [`Header`] finds.
#[derive(Debug, Clone)]
struct User;

impl KeyExtractor for User {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let user = request
            .headers()
            .get("x-user")
            .and_then(|it| it.to_str().ok());
        user.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

/// More than any run asks for.
const MANY: u32 = 1_000_000_000;

fn run(name: &str, times: u32) {
    let client = RedissonClient::in_memory();
    let policy = TokenBucket::per_second(MANY);
    let limiter = client
        .policy_limiter(policy)
        .expect("valid")
        .with_name("user");
    let layer = RateLimitLayer::new(limiter.clone(), Header::new("x-user"));
    match name {
        "handler" => ask(Handler, times),
        "decision" => {
            let key = Header::new("x-user");
            for _ in 0..times {
                let (request, _) = request().into_parts();
                let key = key.key(&request).expect("a key").into_owned();
                let decided = limiter
                    .check_now(&key, 1)
                    .expect("in memory")
                    .expect("decided");
                assert!(decided.is_granted());
                black_box(Response::new(Body::empty()));
            }
        }
        "layer" => ask(layer.layer(Handler), times),
        "layer without fields" => ask(layer.fields(Fields::None).layer(Handler), times),
        "tower_governor" | "tower_governor with fields" => {
            let mut config = GovernorConfigBuilder::default();
            let mut config = config.key_extractor(User);
            let config = config.period(Duration::from_nanos(1)).burst_size(MANY);
            if name == "tower_governor" {
                let config = config.finish().expect("valid");
                ask(GovernorLayer::new(config).layer(Handler), times);
            } else {
                let config = config.use_headers().finish().expect("valid");
                ask(GovernorLayer::new(config).layer(Handler), times);
            }
        }
        other => panic!("there is no {other}"),
    }
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|it| it != "--bench").collect();
    if let [times, name] = &arguments[..] {
        return run(name, times.parse().expect("a number"));
    }
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(stores::compare());
    if arguments == ["stores"] {
        return;
    }
    let names = [
        "handler",
        "decision",
        "layer",
        "layer without fields",
        "tower_governor",
        "tower_governor with fields",
    ];
    asking::compare(&names, 2, run);
}
