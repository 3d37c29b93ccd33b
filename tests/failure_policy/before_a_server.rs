//! A client that starts before its server: as in an outage, until there is one.

use redisson_rate_limiter::{
    BreakerState, Error, FailurePolicy, FixedWindow, KeyedRateLimiter, LimiterOptions, Rate,
    RedissonClient, RedissonClientBuilder,
};
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::fixture::{AT_LAST, HOUR, ms, policies, restart};
use crate::support::cluster::Cluster;
use crate::support::{Server, ports};
use crate::told::Told;

/// Permits an hour.
const RATE: usize = 20;

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn builder(policy: FailurePolicy) -> RedissonClientBuilder {
    RedissonClient::builder()
        .require_server(false)
        .response_timeout(AT_LAST)
        .default_options(LimiterOptions::new().failure_policy(policy))
}

async fn client(urls: &str, policy: FailurePolicy) -> RedissonClient {
    builder(policy).connect(urls).await.unwrap()
}

fn keyed(client: &RedissonClient) -> KeyedRateLimiter {
    let rate = Rate::overall(RATE as u64, HOUR);
    client.keyed_rate_limiter("keyed:", rate).unwrap()
}

/// Asks until Redis has denied a request, and returns how many it granted. Once it has decided, no
/// policy decides any more.
async fn granted_by_redis(limiter: &KeyedRateLimiter, key: &str) -> usize {
    let mut granted = 0;
    let asking = async {
        loop {
            let decision = limiter.check(key, 1).await.unwrap();
            match (decision.is_by_failure_policy(), decision.is_granted()) {
                (true, _) => assert_eq!(granted, 0, "by the failure policy again"),
                (false, true) => granted += 1,
                (false, false) => return granted,
            }
        }
    };
    timeout(AT_LAST, asking).await.expect("it is denied")
}

#[tokio::test]
async fn each_policy_decides_until_there_is_a_server_and_then_redis_does() {
    for policy in policies() {
        let port = ports::reserve();
        let client = client(&url(port), policy.clone()).await;
        let limiter = keyed(&client);
        for _ in 0..3 {
            let decision = limiter.check("key", 1).await.unwrap();
            assert!(decision.is_by_failure_policy());
            assert_eq!(decision.is_granted(), policy != FailurePolicy::Deny);
        }
        let _server = restart(port);
        assert_eq!(granted_by_redis(&limiter, "key").await, RATE);
        assert!(client.health().is_healthy());
        client.ping().await.unwrap();
    }
}

#[tokio::test]
async fn calls_pings_and_health_say_why_there_is_no_server() {
    let port = ports::reserve();
    let address = format!("127.0.0.1:{port}");
    let builder = builder(FailurePolicy::Error).response_timeout(ms(100));
    let client = builder.connect(&url(port)).await.unwrap();
    let limiter = client.rate_limiter("limiter");
    for error in [
        client.ping().await.unwrap_err(),
        limiter.try_acquire(1).await.unwrap_err(),
        limiter.acquire(1).await.unwrap_err(),
        limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap_err(),
    ] {
        let Error::StoreUnavailable { server, cause } = error else {
            panic!("{error:?}");
        };
        assert_eq!(server.as_deref(), Some(&*address));
        assert!(cause.to_string().contains("refused"), "{cause}");
    }
    let health = client.health();
    let [server] = &health.servers[..] else {
        panic!("{health:?}");
    };
    assert_eq!(*server.server, *address);
    assert_eq!(server.breaker, BreakerState::Open);
    let cause = server.last_cause.as_ref().unwrap().to_string();
    assert!(cause.contains("refused"), "{cause}");
}

#[tokio::test]
async fn those_who_wait_are_granted_when_the_server_starts() {
    for policy in [FailurePolicy::Wait, FailurePolicy::Deny] {
        let port = ports::reserve();
        let client = client(&url(port), policy).await;
        let limiter = keyed(&client);
        let mut waiting = JoinSet::new();
        for _ in 0..RATE {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire("key", 1).await });
        }
        sleep(ms(100)).await;
        assert!(waiting.try_join_next().is_none());
        let _server = restart(port);
        let granted = timeout(AT_LAST, waiting.join_all()).await.unwrap();
        granted.into_iter().for_each(|it| it.unwrap());
        let left = limiter.rate_limiter("key");
        assert_eq!(left.available_permits().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_call_from_before_the_server_started_is_made_when_it_starts() {
    let port = ports::reserve();
    let client = client(&url(port), FailurePolicy::Error).await;
    let limiter = client.rate_limiter("limiter");
    let setting = { limiter.clone() };
    let setting = tokio::spawn(async move { setting.try_set_rate(Rate::overall(1, HOUR)).await });
    let pinging = tokio::spawn(async move { client.ping().await });
    sleep(ms(50)).await;
    let _server = restart(port);
    assert!(setting.await.unwrap().unwrap());
    pinging.await.unwrap().unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

#[tokio::test]
async fn a_wrong_url_or_login_is_an_error_at_once() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let port = server.port();
    for (urls, is_expected) in [
        ("redis://".to_owned(), "invalid_argument"),
        ("redis://127.0.0.1:port".to_owned(), "invalid_argument"),
        (
            format!("redis://:right@127.0.0.1:{port}/99"),
            "invalid_argument",
        ),
        (
            format!("redis://:wrong@127.0.0.1:{port}"),
            "authentication_failed",
        ),
        (url(port), "authentication_failed"),
    ] {
        let error = builder(FailurePolicy::Allow).connect(&urls).await;
        let error = error.expect_err(&urls);
        assert_eq!(error.kind().as_str(), is_expected, "{urls}: {error}");
    }
}

#[tokio::test]
async fn credentials_that_a_later_server_refuses_are_an_outage() {
    let port = ports::reserve();
    let urls = format!("redis://:ours@127.0.0.1:{port}");
    let client = client(&urls, FailurePolicy::Deny).await;
    let limiter = keyed(&client);
    let server = Server::start_at(port, &["--requirepass", "other"]);
    let is_refused = || {
        let cause = client.health().servers.remove(0).last_cause;
        matches!(cause, Some(Error::AuthenticationFailed { .. }))
    };
    while !is_refused() {
        sleep(ms(5)).await;
    }
    let decision = limiter.check("key", 1).await.unwrap();
    assert!(decision.is_by_failure_policy() && !decision.is_granted());
    let raw = redis::Client::open(format!("redis://:other@127.0.0.1:{port}")).unwrap();
    let mut raw = raw.get_multiplexed_async_connection().await.unwrap();
    let mut change = redis::cmd("CONFIG");
    change.arg("SET").arg("requirepass").arg("ours");
    let () = change.query_async(&mut raw).await.unwrap();
    assert_eq!(granted_by_redis(&limiter, "key").await, RATE);
    drop(server);
}

#[tokio::test]
async fn a_client_that_ends_before_there_is_a_server_leaves_no_task() {
    let [one, other] = [ports::reserve(), ports::reserve()];
    let before = Handle::current().metrics().num_alive_tasks();
    for urls in [
        url(one),
        format!("{},{}", url(one), url(other)),
        format!("redis-sentinel://127.0.0.1:{one},127.0.0.1:{other}/orders"),
    ] {
        for is_closed in [true, false] {
            let client = client(&urls, FailurePolicy::Wait).await;
            let limiter = keyed(&client);
            let mut waiting = Box::pin(limiter.acquire("key", 1));
            assert!(timeout(ms(20), &mut waiting).await.is_err());
            if is_closed {
                assert!(client.close(AT_LAST).await);
                assert!(matches!(waiting.await, Err(Error::Closed)));
            } else {
                drop(waiting);
            }
            drop((client, limiter));
            // They end when they are polled next, and wait for nothing.
            for _ in 0..1_000 {
                yield_now().await;
            }
            let left = Handle::current().metrics().num_alive_tasks() - before;
            assert_eq!(left, 0, "{urls}, closed: {is_closed}");
        }
    }
}

#[test]
fn each_runtime_finds_the_server_when_it_starts() {
    let [first, second] =
        [(); 2].map(|()| Builder::new_current_thread().enable_all().build().unwrap());
    let port = ports::reserve();
    let client = first.block_on(client(&url(port), FailurePolicy::Deny));
    let limiter = keyed(&client);
    let decision = second.block_on(limiter.check("key", 1)).unwrap();
    assert!(decision.is_by_failure_policy());
    let _server = restart(port);
    assert_eq!(second.block_on(granted_by_redis(&limiter, "key")), RATE);
    assert_eq!(first.block_on(granted_by_redis(&limiter, "other")), RATE);
}

/// The ports of a cluster, and the URLs that lead to it: of one of its nodes, or of all.
fn ways_to_a_cluster() -> [([u16; 3], String); 2] {
    [1, 3].map(|urls| {
        let ports = [(); 3].map(|()| ports::reserve_for_node());
        let all: Vec<_> = ports[..urls].iter().map(|&port| url(port)).collect();
        (ports, all.join(","))
    })
}

#[tokio::test]
async fn a_cluster_that_starts_later_decides_on_each_of_its_nodes() {
    for (ports, urls) in ways_to_a_cluster() {
        let told = Told::default();
        let builder = told.by(builder(FailurePolicy::Wait));
        let client = builder.connect(&urls).await.unwrap();
        assert!(!client.health().is_healthy());
        let limiter = keyed(&client);
        let denying = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
        let denying = limiter.clone().with_options(denying);
        let denied = timeout(AT_LAST / 2, denying.try_acquire("key", 1)).await;
        assert!(!denied.expect("it does not wait for a server").unwrap());
        let keys: Vec<_> = (0..16).map(|key| key.to_string()).collect();
        let mut waiting = JoinSet::new();
        for key in keys.clone() {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire(&key, 1).await });
        }
        sleep(ms(50)).await;
        assert!(waiting.try_join_next().is_none());
        let cluster = Cluster::start_at(ports);
        let granted = timeout(AT_LAST, waiting.join_all()).await.unwrap();
        granted.into_iter().for_each(|it| it.unwrap());
        for key in &keys {
            assert_eq!(granted_by_redis(&limiter, key).await, RATE - 1);
        }
        // A limiter whose keys are in several slots is refused as by a client that started with the
        // cluster.
        let refused = client.rate_limiter("a}b{c").exists().await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })));
        client.ping().await.unwrap();
        let health = client.health();
        assert_eq!(health.servers.len(), cluster.nodes().len(), "{health:?}");
        assert!(health.is_healthy(), "{health:?}");
        if !urls.contains(',') {
            // The outage is over also for the connection that was tried before the server was known
            // to be part of a cluster.
            let changes = told.take_changes();
            let closed = format!("127.0.0.1:{} closed", ports[0]);
            assert!(changes.contains(&closed), "{changes:#?}");
        }
    }
}

#[tokio::test]
async fn what_was_asked_before_a_cluster_started_is_answered_by_its_slots() {
    for (ports, urls) in ways_to_a_cluster() {
        let client = client(&urls, FailurePolicy::Error).await;
        let policy = FixedWindow::new(1, HOUR);
        let limiter = client.policy_limiter(policy).unwrap();
        let charges = || ["a", "b", "c", "d"].map(|key| limiter.charge(key, 1).unwrap());
        let (asking, peeking) = (client.clone(), client.clone());
        let (asked, peeked) = (charges(), charges());
        let peeking = tokio::spawn(async move { peeking.peek_all(peeked).await });
        let asking = tokio::spawn(async move { asking.check_all(asked).await });
        let pinging = client.clone();
        let pinging = tokio::spawn(async move { pinging.ping().await });
        sleep(ms(50)).await;
        let _cluster = Cluster::start_at(ports);
        pinging.await.unwrap().unwrap();
        assert!(asking.await.unwrap().unwrap().is_granted());
        assert!(!peeking.await.unwrap().unwrap().is_by_failure_policy());
        for key in ["a", "b", "c", "d"] {
            assert!(!limiter.check(key, 1).await.unwrap().is_granted());
        }
    }
}
