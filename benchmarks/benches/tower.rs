//! What a rate limit adds to a request, in memory: this crate's layer beside tower_governor's, with a key of each user from a header,
//! and the header fields that tell what is left.
//!
//! `cargo bench -p benchmarks --bench tower`; `-- 100000 layer` makes so many requests to one of them, for a profiler.

use std::convert::Infallible;
use std::env;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response};
use redisson_rate_limiter::{Limiter, RedissonClient, TokenBucket};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::fields::Fields;
use redisson_rate_limiter_tower::key::{Header, Key};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;

const ROUNDS: usize = 9;

#[derive(Clone)]
struct Handler;

impl Service<Request<Body>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        ready(Ok(Response::new(Body::empty())))
    }
}

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

fn request() -> Request<Body> {
    let request = Request::builder().header("x-user", "user:123");
    request.body(Body::empty()).expect("a request")
}

fn ask<S>(mut service: S, times: u32)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let mut context = Context::from_waker(std::task::Waker::noop());
    for _ in 0..times {
        assert!(service.poll_ready(&mut context).is_ready());
        let mut response = std::pin::pin!(service.call(request()));
        let Poll::Ready(Ok(response)) = response.as_mut().poll(&mut context) else {
            panic!("it waits for nobody")
        };
        assert_eq!(response.status(), 200);
        black_box(response);
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
    let names = [
        "handler",
        "decision",
        "layer",
        "layer without fields",
        "tower_governor",
        "tower_governor with fields",
    ];
    const TIMES: u32 = 100_000;
    let mut best = [Duration::MAX; 6];
    for _ in 0..ROUNDS {
        for (name, best) in names.iter().zip(&mut best) {
            let start = Instant::now();
            run(name, TIMES);
            *best = start.elapsed().min(*best);
        }
    }
    let nanos = best.map(|it| it.as_nanos() as f64 / f64::from(TIMES));
    println!("| | ns a request | ns beside the handler | of the layer |\n|---|--:|--:|--:|");
    let layer = nanos[2] - nanos[0];
    for (name, time) in names.iter().zip(nanos) {
        let added = time - nanos[0];
        println!("| {name} | {time:.0} | {added:.0} | {:.2} |", added / layer);
    }
}
