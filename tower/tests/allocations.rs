//! How often the layer allocates for a request that a limiter in memory decides.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use redisson_rate_limiter::{FixedWindow, Limiter, RedissonClient, Rule, TokenBucket};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::fields::Fields;
use redisson_rate_limiter_tower::key::Header;
use tower::{Layer, Service, service_fn};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: it does as the system's allocator does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    // A block that becomes smaller stays where it is; one that grows is a new one.
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + u32::from(size > layout.size()));
        unsafe { System.realloc(place, layout, size) }
    }
}

/// A subscriber of an application that logs no more than INFO.
struct Info;

impl Subscriber for Info {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        unreachable!("the spans have the level DEBUG")
    }

    fn event(&self, _: &Event<'_>) {
        unreachable!("nothing has happened")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A request as a server makes it: with the address of the connection.
fn request(user: &'static str) -> Request<()> {
    let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
    let request = Request::builder().header("x-user", user).extension(peer);
    request.body(()).unwrap()
}

/// Answers with a body, as most handlers do.
fn handle(_: Request<()>) -> Ready<Result<Response<String>, Infallible>> {
    let mut response = Response::new(String::new());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    ready(Ok(response))
}

/// How often a service allocates for a request, once it has had one.
fn allocations<S>(mut service: S, user: &'static str) -> u32
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut counted = 0;
    for _ in 0..2 {
        let request = request(user);
        let before = COUNT.get();
        assert!(service.poll_ready(&mut context).is_ready());
        let mut answered = pin!(service.call(request));
        let Poll::Ready(Ok(response)) = answered.as_mut().poll(&mut context) else {
            panic!("it was not decided at once")
        };
        counted = COUNT.get() - before;
        assert_eq!(response.status(), 200);
    }
    counted
}

fn of_layers(user: &'static str) -> [u32; 4] {
    let limiter = RedissonClient::in_memory()
        .policy_limiter(TokenBucket::per_second(1_000_000))
        .unwrap()
        .with_name("user");
    let alone = allocations(service_fn(handle), user);
    let by_user = || RateLimitLayer::new(limiter.clone(), Header::new("x-user"));
    [
        by_user(),
        by_user().fields(Fields::None),
        by_user().fields(Fields::XRateLimit),
        by_user().skip(|_| true),
    ]
    .map(|layer| allocations(layer.layer(service_fn(handle)), user) - alone)
}

const CHARGED: u32 = 1; // in the extensions of the request, with a short key

#[test]
fn the_layer_allocates_for_the_fields_and_for_an_extension_with_the_key() {
    let expected = [CHARGED + 2, CHARGED, CHARGED + 3, 0];
    let uuid = "0b8e4a0c-7c0a-4c55-9d0f-2f6a5c1f8f11";
    for user in ["alice", uuid] {
        assert_eq!(of_layers(user), expected);
        tracing::subscriber::with_default(Info, || assert_eq!(of_layers(user), expected));
    }
    let long = "the address of a user who has a long name in a long domain";
    let expected = [CHARGED + 3, CHARGED + 1, CHARGED + 4, 0];
    assert_eq!(of_layers(long), expected);
}

/// How often the layer allocates for a request to which these rules apply, each by the same key.
fn of_rules(rules: &[&'static str], user: &'static str) -> u32 {
    let client = RedissonClient::in_memory();
    let rules = rules.iter().map(|&name| {
        let limiter = client.policy_limiter(TokenBucket::per_second(1_000_000));
        let limiter = limiter.unwrap().with_prefix(name).with_name(name);
        Rule::new(limiter).by(["user"])
    });
    let rules = client.rules(rules.collect::<Vec<_>>()).unwrap();
    let layer = RateLimitLayer::by_rules(Arc::new(rules))
        .attribute("user", Header::new("x-user"))
        .fields(Fields::None);
    let alone = allocations(service_fn(handle), user);
    allocations(layer.layer(service_fn(handle)), user) - alone
}

/// The key by which a rule counts, and its name in the store, which begins with the prefix.
const KEY: u32 = 2;

#[test]
fn a_single_rule_allocates_for_its_key_and_the_extension() {
    assert_eq!(of_rules(&["user:"], "alice"), KEY + CHARGED);
    assert_eq!(of_rules(&["user:", "address:"], ""), 0); // none applies
}

#[test]
fn rules_that_decide_together_allocate_for_their_keys_and_a_few_lists() {
    const NAME: u32 = 1; // shared with the call
    const LISTS: u32 = 8; // two each of requests, call and answers; the limiters, and what fields state of them
    for rules in [
        &["a:", "b:"][..],
        &["a:", "b:", "c:"],
        &["a:", "b:", "c:", "d:"],
    ] {
        let expected = (KEY + NAME) * rules.len() as u32 + CHARGED + LISTS;
        assert_eq!(of_rules(rules, "alice"), expected, "{rules:?}");
    }
}

#[test]
fn a_decision_in_memory_allocates_nothing() {
    let client = RedissonClient::in_memory();
    let hour = Duration::from_secs(3600);
    let limiter = client.policy_limiter(FixedWindow::new(9, hour));
    let limiter = limiter.unwrap();
    let check = || limiter.check_now("alice", 1).unwrap().unwrap();
    for _ in 0..2 {
        assert!(check().is_granted());
    }
    let before = COUNT.get();
    assert!(check().is_granted());
    assert_eq!(COUNT.get(), before);
}
