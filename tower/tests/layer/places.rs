//! What the service inside sets aside for a request, such as one of a limited number of places.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use redisson_rate_limiter::{KeyedRateLimiter, Rate, RedissonClient, Rule};
use redisson_rate_limiter_tower::key::Header;
use redisson_rate_limiter_tower::{ByRules, RateLimitLayer};
use tokio::time::timeout;
use tower::limit::ConcurrencyLimit;
use tower::util::Either;
use tower::{Layer, Service, ServiceExt};

use crate::fixture::{Handled, MINUTE, by_rules, of};
use crate::support::Server;

/// Requests of a user count for the user's own RRateLimiter.
struct Case {
    name: &'static str,
    layer: Either<RateLimitLayer, RateLimitLayer<ByRules>>,
    limiter: KeyedRateLimiter,
    _server: Option<Server>,
}

impl Case {
    /// The users' limits of five a minute, in memory and on a server, found at once and by a task,
    /// by one limiter and by rules.
    async fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for name in ["memory", "key later", "rules", "redis", "rules on redis"] {
            let server = name.ends_with("redis").then(Server::start);
            let client = match &server {
                Some(server) => {
                    let builder = RedissonClient::builder().response_timeout(MINUTE);
                    builder.connect(&server.url()).await.unwrap()
                }
                None => RedissonClient::in_memory(),
            };
            let limiter = client.keyed_rate_limiter("user:", Rate::overall(5, MINUTE));
            let limiter = limiter.unwrap();
            let key = Header::new("x-user");
            let layer = match name {
                "rules" | "rules on redis" => {
                    let rule = Rule::new(limiter.clone()).by(["user"]);
                    let rules = Arc::new(client.rules([rule]).unwrap());
                    Either::Right(by_rules(rules).wait_up_to(2 * MINUTE))
                }
                "key later" => {
                    let layer = RateLimitLayer::with_async_key(limiter.clone(), |request| {
                        let user = request.headers["x-user"].to_str().unwrap().to_owned();
                        Box::pin(async { Some(user) })
                    });
                    Either::Left(layer.wait_up_to(2 * MINUTE))
                }
                _ => {
                    let layer = RateLimitLayer::new(limiter.clone(), key);
                    Either::Left(layer.wait_up_to(2 * MINUTE))
                }
            };
            cases.push(Self {
                name,
                layer,
                limiter,
                _server: server,
            });
        }
        cases
    }

    /// The cases that do not decide at once: after a decision at once, the service is called at
    /// once.
    async fn decided_later() -> Vec<Self> {
        let mut cases = Self::all().await;
        cases.retain(|it| !["memory", "rules"].contains(&it.name));
        cases
    }

    /// Takes all that a user has.
    async fn use_up(&self, user: &str) {
        assert!(self.limiter.try_acquire(user, 5).await.unwrap());
    }

    /// Waits until a user has all of it again.
    async fn all_are_back(&self, user: &str) {
        let all = self.limiter.try_acquire_timeout(user, 5, MINUTE / 2);
        assert!(all.await.unwrap(), "{}: something is kept", self.name);
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_grant_takes_no_place() {
    for case in Case::all().await {
        let handler = ConcurrencyLimit::new(Handled::default().service(), 1);
        let service = case.layer.layer(handler);
        case.use_up("alice").await;
        let mut of_alice = service.clone();
        let waiting = of_alice.ready().await.unwrap().call(of("alice"));
        tokio::pin!(waiting);
        let others = async {
            for _ in 0..5 {
                let response = service.clone().oneshot(of("bob")).await.unwrap();
                assert_eq!(response.status(), 200, "{}", case.name);
            }
        };
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("{}: it is let through", case.name),
            served = timeout(MINUTE / 2, others) => served.expect(case.name),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_is_served_when_there_is_a_place() {
    for case in Case::all().await.into_iter().take(3) {
        let handler = ConcurrencyLimit::new(Handled::default().service(), 1);
        let place = handler.clone().ready_oneshot();
        let service = case.layer.layer(handler);
        case.use_up("alice").await;
        let waiting = tokio::spawn(service.clone().oneshot(of("alice")));
        tokio::time::sleep(MINUTE / 2).await;
        let place = timeout(MINUTE / 2, place).await.expect("it holds none");
        let place = place.unwrap();
        tokio::time::sleep(MINUTE).await;
        assert!(!waiting.is_finished(), "{}", case.name);
        drop(place);
        let response = timeout(MINUTE / 2, waiting).await.unwrap();
        assert_eq!(response.unwrap().unwrap().status(), 200, "{}", case.name);
    }
}

#[tokio::test]
async fn a_request_that_is_rejected_keeps_no_place() {
    for case in Case::all().await {
        let handler = ConcurrencyLimit::new(Handled::default().service(), 1);
        let layer = match case.layer.clone() {
            Either::Left(layer) => Either::Left(layer.wait_up_to(Duration::ZERO)),
            Either::Right(layer) => Either::Right(layer.wait_up_to(Duration::ZERO)),
        };
        let service = layer.layer(handler);
        case.use_up("alice").await;
        let mut of_alice = service.clone();
        let rejected = of_alice.ready().await.unwrap().call(of("alice"));
        assert_eq!(rejected.await.unwrap().status(), 429, "{}", case.name);
        let served = timeout(MINUTE / 2, service.clone().oneshot(of("bob"))).await;
        let served = served.expect(case.name).unwrap();
        assert_eq!(served.status(), 200, "{}", case.name);
        drop(of_alice);
    }
}

/// A service that is ready until it is told otherwise.
#[derive(Clone)]
struct Moody(Arc<AtomicU8>);

const READY: u8 = 0;
const BUSY: u8 = 1;
const BROKEN: u8 = 2;

#[derive(Debug, PartialEq)]
struct Broken;

impl Service<Request<String>> for Moody {
    type Response = Response<String>;
    type Error = Broken;
    type Future = std::future::Ready<Result<Response<String>, Broken>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        match self.0.load(Ordering::Relaxed) {
            READY => Poll::Ready(Ok(())),
            BUSY => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(Err(Broken)),
        }
    }

    fn call(&mut self, _request: Request<String>) -> Self::Future {
        panic!("it was not ready");
    }
}

#[tokio::test]
async fn a_grant_goes_back_where_the_service_fails_before_it_is_called() {
    for case in Case::decided_later().await {
        let mood = Arc::new(AtomicU8::new(READY));
        let service = case.layer.layer(Moody(Arc::clone(&mood)));
        let mut of_alice = service.clone();
        let mut response = Box::pin(of_alice.ready().await.unwrap().call(of("alice")));
        mood.store(BROKEN, Ordering::Relaxed);
        let ended = response.as_mut().await;
        assert_eq!(ended.map(|_| ()), Err(Broken), "{}", case.name);
        case.all_are_back("alice").await;
        drop(response); // also while its future is still there
    }
}

#[tokio::test]
async fn a_grant_goes_back_if_its_request_ends_before_the_service_is_ready() {
    for case in Case::decided_later().await {
        let mood = Arc::new(AtomicU8::new(READY));
        let service = case.layer.layer(Moody(Arc::clone(&mood)));
        let mut of_alice = service.clone();
        let mut response = Box::pin(of_alice.ready().await.unwrap().call(of("alice")));
        mood.store(BUSY, Ordering::Relaxed);
        let granted = async {
            // It polls the service again and again once it has its grant.
            while case.limiter.peek("alice", 5).await.unwrap().is_granted() {
                poll_fn(|context| {
                    let _ = response
                        .as_mut()
                        .poll(context)
                        .map(|_| panic!("it is over"));
                    Poll::Ready(())
                })
                .await;
            }
        };
        timeout(MINUTE / 2, granted).await.expect(case.name);
        drop(response);
        case.all_are_back("alice").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_charges_nothing_gives_nothing_back_of_another() {
    let client = RedissonClient::in_memory();
    let calls = client.keyed_rate_limiter("calls:", Rate::overall(5, MINUTE));
    let calls = calls.unwrap();
    let mood = Arc::new(AtomicU8::new(READY));
    let no_rules = Arc::new(client.rules([]).unwrap());
    let inner = RateLimitLayer::by_rules(no_rules)
        .async_attribute("user", |_| Box::pin(async { None }))
        .layer(Moody(Arc::clone(&mood)));
    let outer = RateLimitLayer::new(calls.clone(), Header::new("x-user"));
    let mut service = outer.layer(inner);
    let mut response = Box::pin(service.ready().await.unwrap().call(of("alice")));
    mood.store(BUSY, Ordering::Relaxed);
    poll_fn(|context| {
        assert!(response.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    // The outer layer has passed the request on, so it stays charged.
    drop(response);
    assert!(calls.try_acquire("alice", 4).await.unwrap());
    assert!(!calls.try_acquire("alice", 1).await.unwrap());
}
