//! Requests that are dropped at any moment: on a server, what is taken is what was handled.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use redisson_rate_limiter::{Lease, Rate, RateLimiter, RedissonClient, Rule};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Everyone;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tower::limit::ConcurrencyLimit;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::fixture::{Handler, MINUTE, by_rules, request};
use crate::seeded::Seeded;
use crate::support::Server;

/// More than all requests cost together.
const RATE: u64 = 100_000;
const CALLERS: u64 = 24;
const REQUESTS_OF_EACH: u64 = 50;

/// What a dropped call may have taken is looked for when its response timeout is over.
async fn connect(server: &Server) -> RedissonClient {
    let builder = RedissonClient::builder().response_timeout(Duration::from_secs(3));
    builder.connect(&server.url()).await.unwrap()
}

fn rate() -> Rate {
    Rate::overall(RATE, 60 * MINUTE)
}

/// Makes a request, and drops it at a random moment: after a number of polls, or after a time.
async fn drop_at_random<S>(service: S, mut random: Seeded)
where
    S: Service<http::Request<String>, Response = http::Response<String>, Error = Infallible>,
{
    let mut asked = pin!(service.oneshot(request()));
    let mut polls = random.below(8);
    let some_polls = poll_fn(|context| {
        let Some(left) = polls.checked_sub(1) else {
            return Poll::Ready(());
        };
        polls = left;
        asked.as_mut().poll(context).map(|_| ())
    });
    match random.below(3) {
        0 => drop(asked.await.unwrap()),
        1 => some_polls.await,
        _ => {
            let time = Duration::from_micros(random.below(4_000));
            tokio::select! {
                _ = &mut asked => {}
                () = sleep(time) => {}
            }
        }
    }
}

/// How many requests were handled.
async fn dropped_at_random<L>(layer: &L) -> u64
where
    L: Layer<ConcurrencyLimit<Handler>>,
    L::Service: Service<
            http::Request<String>,
            Response = http::Response<String>,
            Error = Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static,
{
    let count = Arc::new(AtomicU64::new(0));
    let handler = {
        let count = Arc::clone(&count);
        service_fn(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                yield_now().await;
                Ok(http::Response::new(String::new()))
            }
        })
    };
    // Some of those that are granted wait for a place.
    let handler = ConcurrencyLimit::new(BoxCloneService::new(handler), 2);
    let service = layer.layer(handler);
    let random = Seeded::new();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (service, random) = (service.clone(), random.clone());
        callers.spawn(async move {
            for place in 0..REQUESTS_OF_EACH {
                let random = random.branch(caller * REQUESTS_OF_EACH + place + 1);
                drop_at_random(service.clone(), random).await;
            }
        });
    }
    let done = timeout(2 * MINUTE, callers.join_all()).await;
    done.unwrap_or_else(|_| panic!("{random}: a request waits for ever"));
    let handled = count.load(Ordering::Relaxed);
    let all = CALLERS * REQUESTS_OF_EACH;
    assert!(
        all / 10 < handled && handled < all,
        "{random}: {handled} of {all}"
    );
    handled
}

/// What is taken of a limiter once the client whose requests were dropped has ended.
async fn taken(server: &Server, client: RedissonClient, name: &str) -> u64 {
    assert!(client.close(MINUTE).await, "something is under way still");
    let limiter = connect(server).await.rate_limiter(name);
    RATE - limiter.available_permits().await.unwrap()
}

#[tokio::test]
async fn a_limiter_keeps_nothing_of_requests_that_were_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    let limiter: RateLimiter = client.rate_limiter("api").with_rate(rate()).unwrap();
    let layer = RateLimitLayer::new(limiter, Everyone);
    let handled = dropped_at_random(&layer).await;
    assert_eq!(taken(&server, client, "api").await, handled);
}

#[tokio::test]
async fn leases_keep_nothing_of_requests_that_were_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    let limiter = client.rate_limiter("api").with_rate(rate()).unwrap();
    let limiter = limiter.leased(Lease::up_to(Duration::from_millis(50)));
    let layer = RateLimitLayer::new(limiter, Everyone);
    let handled = dropped_at_random(&layer).await;
    assert_eq!(taken(&server, client, "api").await, handled);
}

#[tokio::test]
async fn a_key_keeps_nothing_of_requests_that_were_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    let limiter = client.keyed_rate_limiter("api:", rate()).unwrap();
    let layer = RateLimitLayer::with_async_key(limiter, |_| {
        Box::pin(async {
            tokio::task::yield_now().await;
            Some("alice".to_owned())
        })
    });
    let handled = dropped_at_random(&layer).await;
    assert_eq!(taken(&server, client, "api:alice").await, handled);
}

#[tokio::test]
async fn a_rule_keeps_nothing_of_requests_that_were_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    let limiter = client.keyed_rate_limiter("api:", rate()).unwrap();
    let rules = [Rule::new(limiter)];
    let layer = by_rules(Arc::new(client.rules(rules).unwrap()));
    let handled = dropped_at_random(&layer).await;
    assert_eq!(taken(&server, client, "api:all").await, handled);
}
