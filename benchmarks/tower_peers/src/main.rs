//! What this crate's layer and that of tower-rate-limiter add to a request in memory, with a key of
//! each user from a header and the header fields that tell what is left.
//!
//! `cargo run --release --manifest-path benchmarks/tower_peers/Cargo.toml`, with Rust 1.96 or
//! later.

#[path = "../../benches/tower/asking.rs"]
mod asking;

use std::time::Duration;

use asking::{Handler, ask};
use http::Request;
use redisson_rate_limiter::{FixedWindow, RedissonClient, TokenBucket};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Header;
use tower::Layer;
use tower_rate_limiter as peer;

/// More than any run asks for.
const MANY: u32 = 1_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// The same key as [`Header`] finds.
#[derive(Clone)]
struct User;

impl peer::KeyExtractor for User {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, peer::RateLimitError> {
        let user = request.headers().get("x-user");
        let user = user.and_then(|it| it.to_str().ok());
        let missing = || peer::RateLimitError::Key("x-user".to_owned(), "is missing".to_owned());
        user.map(str::to_owned).ok_or_else(missing)
    }
}

fn run(name: &str, times: u32) {
    let client = RedissonClient::in_memory();
    match name {
        "handler" => ask(Handler, times),
        "layer, TokenBucket" => {
            let limiter = client.policy_limiter(TokenBucket::per_second(MANY * 1_000));
            let limiter = limiter.expect("valid").with_name("user");
            ask(
                RateLimitLayer::new(limiter, Header::new("x-user")).layer(Handler),
                times,
            );
        }
        "layer, FixedWindow" => {
            let limiter = client.policy_limiter(FixedWindow::new(MANY, 60 * SECOND));
            let limiter = limiter.expect("valid").with_name("user");
            ask(
                RateLimitLayer::new(limiter, Header::new("x-user")).layer(Handler),
                times,
            );
        }
        "tower-rate-limiter, FixedWindow" => {
            let policy = peer::FixedWindow::new(peer::MemoryStore::new(), MANY as _, 60 * SECOND);
            let layer = peer::RateLimitLayer::builder(User).policy_name("user");
            let layer = layer.with_policy(policy.expect("valid")).build();
            ask(layer.expect("valid").layer(Handler), times);
        }
        "tower-rate-limiter, MemoryGcra" => {
            let quota = peer::GcraQuota::new(MANY, SECOND, MANY).expect("valid");
            let layer = peer::RateLimitLayer::builder(User).policy_name("user");
            let layer = layer.with_policy(peer::MemoryGcra::new(quota)).build();
            ask(layer.expect("valid").layer(Handler), times);
        }
        other => panic!("there is no {other}"),
    }
}

fn main() {
    let names = [
        "handler",
        "layer, TokenBucket",
        "layer, FixedWindow",
        "tower-rate-limiter, FixedWindow",
        "tower-rate-limiter, MemoryGcra",
    ];
    asking::compare(&names, 1, run);
}
