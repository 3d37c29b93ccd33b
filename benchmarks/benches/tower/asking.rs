//! Requests to a handler behind layers, as fast as they are answered, and what each layer adds.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

const ROUNDS: usize = 9;
const TIMES: u32 = 100_000;

#[derive(Clone)]
pub struct Handler;

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

pub fn request() -> Request<Body> {
    let request = Request::builder().header("x-user", "user:123");
    request.body(Body::empty()).expect("a request")
}

pub fn ask<S>(mut service: S, times: u32)
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

/// Prints the time of each, by its best round. The first is the handler alone, and `layer` the
/// place of this crate's layer.
pub fn compare(names: &[&str], layer: usize, run: impl Fn(&str, u32)) {
    let mut best = vec![Duration::MAX; names.len()];
    for _ in 0..ROUNDS {
        for (name, best) in names.iter().zip(&mut best) {
            let start = Instant::now();
            run(name, TIMES);
            *best = start.elapsed().min(*best);
        }
    }
    let nanos = best
        .iter()
        .map(|it| it.as_nanos() as f64 / f64::from(TIMES));
    let nanos: Vec<f64> = nanos.collect();
    println!("| | ns a request | ns beside the handler | of the layer |\n|---|--:|--:|--:|");
    for (name, time) in names.iter().zip(&nanos) {
        let added = time - nanos[0];
        let ratio = added / (nanos[layer] - nanos[0]);
        println!("| {name} | {time:.0} | {added:.0} | {ratio:.2} |");
    }
}
