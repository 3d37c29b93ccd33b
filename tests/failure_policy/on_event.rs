//! What a client tells its handler of events about requests that the failure policy decides.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use redisson_rate_limiter::{
    Event, FailurePolicy, FixedWindow, LimiterOptions, RateLimiter, RedissonClient,
};

use crate::fixture::{HOUR, connect, kill, limiter, ms, policies, until_by_policy, until_by_redis};
use crate::proxy::Proxy;
use crate::support::Server;
use crate::told::Told;

#[tokio::test]
async fn a_request_without_redis_is_reported_as_decided_by_the_policy() {
    for policy in policies() {
        let server = Server::start();
        let told = Told::default();
        let options = LimiterOptions::new().failure_policy(policy.clone());
        let builder = RedissonClient::builder().default_options(options);
        let client = connect(&server.url(), told.by(builder)).await;
        let limiter = limiter(&client, 1_000).await;
        let fixed = client
            .policy_limiter(FixedWindow::new(1_000, HOUR))
            .unwrap();
        let fixed = fixed.with_prefix("fixed:");
        kill(server);
        let _ = until_by_policy(&limiter).await;
        told.take_requests();

        let is_denied = policy == FailurePolicy::Deny;
        assert_eq!(limiter.try_acquire(1).await.unwrap(), !is_denied);
        assert_eq!(limiter.check(1).await.unwrap().is_granted(), !is_denied);
        if !is_denied {
            limiter.acquire(1).await.unwrap();
        }
        assert_eq!(fixed.check("a", 1).await.unwrap().is_granted(), !is_denied);
        let charges = [limiter.charge(1).unwrap(), fixed.charge("a", 1).unwrap()];
        let joint = client.check_all(charges).await.unwrap();
        assert_eq!(joint.is_granted(), !is_denied);

        let expected = match is_denied {
            true => &[
                "*limiter 1: denied by failure_policy",
                "*limiter 1 denied: denied by failure_policy",
                "*fixed: 1 denied: denied by failure_policy",
                "limiter 1 denied, *fixed: 1 denied: denied by failure_policy",
            ][..],
            false => &[
                "*limiter 1: granted by failure_policy",
                "*limiter 1 granted: granted by failure_policy",
                "*limiter 1: granted by failure_policy",
                "*fixed: 1 granted: granted by failure_policy",
                "*limiter 1 granted, *fixed: 1 granted: granted by failure_policy",
            ],
        };
        assert_eq!(told.take_requests(), expected, "{policy:?}");
    }
}

#[tokio::test]
async fn a_request_that_no_policy_decides_is_reported_with_its_kind_of_error() {
    let server = Server::start();
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(ms(300));
    let client = connect(&server.url(), told.by(builder)).await;
    let limiter = limiter(&client, 1_000).await;
    kill(server);
    told.take_requests();
    let kind = limiter.acquire(1).await.unwrap_err().kind();
    assert_eq!(told.take_requests(), [format!("*limiter 1: {kind}")]);
}

#[tokio::test]
async fn a_handler_may_use_the_client_when_its_connection_and_breaker_change() {
    let handles = Arc::new(OnceLock::<(RedissonClient, RateLimiter)>::new());
    let (of_handler, changes) = (Arc::clone(&handles), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&changes);
    let using = RedissonClient::builder().on_event(move |event| {
        if let (Event::BreakerChanged { .. } | Event::Connected { .. }, Some((client, limiter))) =
            (event, of_handler.get())
        {
            assert!(!client.health().servers.is_empty());
            let request = pin!(limiter.acquire(1));
            let _ = request.poll(&mut Context::from_waker(Waker::noop()));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let deny = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = connect(&proxy.url(), using.default_options(deny)).await;
    let limiter = limiter(&client, 1_000).await;
    handles.set((client, limiter.clone())).unwrap();
    proxy.refuse_new(true);
    proxy.freeze();
    let _ = until_by_policy(&limiter).await;
    proxy.refuse_new(false);
    let _ = until_by_redis(&limiter).await;
    assert!(changes.load(Ordering::SeqCst) >= 4); // open, connected, half open, closed
}
