//! What is sent while the breaker is open or half open, and what it logs.

use redisson_rate_limiter::{FailurePolicy, FixedWindow, LimiterOptions, RedissonClient};
use tokio::task::JoinSet;

use crate::events::Events;
use crate::fixture::{
    HOUR, client, connect, kill, limiter, ms, policies, restart, until_by_policy, until_by_redis,
};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

#[tokio::test]
async fn while_it_is_open_no_call_goes_out() {
    for policy in policies() {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let client = client(&proxy.url(), policy).await;
        let limiter = limiter(&client, 1_000).await;
        let fixed = client.policy_limiter(FixedWindow::new(100, HOUR)).unwrap();
        // The proxy accepts connections that lead nowhere, so that it sees what is sent.
        proxy.lead_to(kill(server));
        let _ = until_by_policy(&limiter).await;
        proxy.take_seen();
        for _ in 0..100 {
            assert!(limiter.check(1).await.unwrap().is_by_failure_policy());
            assert!(fixed.check("key", 1).await.unwrap().is_by_failure_policy());
        }
        let calls = proxy.take_names();
        assert!(
            !calls.iter().any(|name| name.starts_with("EVAL")),
            "{calls:?}"
        );
    }
}

#[tokio::test]
async fn half_open_one_call_goes_out_at_a_time() {
    for policy in policies() {
        let server = Server::start();
        let mut proxy = Proxy::to(server.port()).await;
        let client = client(&proxy.url(), policy).await;
        // A limiter whose dropped calls are not reclaimed: nothing else is sent.
        let limiter = client
            .policy_limiter(FixedWindow::new(1_000, HOUR))
            .unwrap();
        let is_by_policy = async || {
            let decision = limiter.check("key", 1).await.unwrap();
            decision.is_by_failure_policy()
        };
        assert!(!is_by_policy().await);
        proxy.refuse_new(true);
        proxy.freeze();
        while !is_by_policy().await {}
        proxy.take_seen();
        proxy.next("EVALSHA", Fate::Held);
        proxy.refuse_new(false);
        // The first call after the new connection is held: it is the probe.
        let probing = tokio::spawn({
            let limiter = limiter.clone();
            async move {
                while limiter
                    .check("key", 1)
                    .await
                    .unwrap()
                    .is_by_failure_policy()
                {
                    tokio::time::sleep(ms(5)).await;
                }
            }
        });
        let probe = proxy.held().await;
        for _ in 0..100 {
            assert!(is_by_policy().await);
        }
        let calls = proxy.take_names();
        let sent = calls.iter().filter(|name| name.starts_with("EVAL")).count();
        assert_eq!(sent, 1, "{calls:?}");
        probe.let_through().await;
        probing.await.unwrap();
        assert!(!is_by_policy().await);
    }
}

#[tokio::test]
async fn an_outage_causes_a_bounded_number_of_events() {
    let events = Events::start();
    let server = Server::start();
    let builder = RedissonClient::builder()
        .default_options(LimiterOptions::new().failure_policy(FailurePolicy::Allow));
    let client = connect(&server.url(), builder).await;
    let limiter = limiter(&client, 1_000).await;
    let port = kill(server);
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            for _ in 0..100 {
                assert!(limiter.try_acquire(1).await.unwrap());
                tokio::time::sleep(ms(10)).await;
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let _server = restart(port);
    while limiter.check(1).await.is_ok() {
        tokio::time::sleep(ms(5)).await;
    }
    let events = events.take();
    let changes: Vec<_> = events
        .iter()
        .filter(|it| it.contains("circuit breaker"))
        .collect();
    let expected = [
        ["WARN", "circuit breaker opened", "refused"],
        ["INFO", "circuit breaker half open", ""],
        ["INFO", "circuit breaker closed", ""],
    ];
    assert_eq!(changes.len(), expected.len(), "{events:#?}");
    for (event, parts) in changes.iter().zip(expected) {
        assert!(parts.iter().all(|part| event.contains(part)), "{event}");
    }
    assert!(events.len() <= 10, "{events:#?}");
}

#[tokio::test]
async fn a_server_that_answers_no_call_opens_it_too() {
    let server = Server::start();
    let builder = RedissonClient::builder()
        .default_options(LimiterOptions::new().failure_policy(FailurePolicy::Deny));
    let patient = client(&server.url(), FailurePolicy::Deny).await;
    limiter(&patient, 1_000).await;
    let client = connect(&server.url(), builder.response_timeout(ms(200))).await;
    let limiter = client.rate_limiter("limiter");
    let _ = until_by_redis(&limiter).await;
    // The server accepts no writes, and new connections do not help.
    let mut raw = server.connection().await;
    let set = async |raw: &mut redis::aio::MultiplexedConnection, replicas: u32| {
        let mut command = redis::cmd("CONFIG");
        command
            .arg("SET")
            .arg("min-replicas-to-write")
            .arg(replicas);
        let _: () = command.query_async(raw).await.unwrap();
    };
    set(&mut raw, 1).await;
    for _ in 0..3 {
        assert!(limiter.check(1).await.unwrap().is_by_failure_policy());
    }
    let stats = async |raw: &mut redis::aio::MultiplexedConnection| {
        let info: String = redis::cmd("INFO")
            .arg("errorstats")
            .query_async(raw)
            .await
            .unwrap();
        info.lines()
            .find(|line| line.contains("NOREPLICAS"))
            .map(str::to_owned)
    };
    // While it is open nothing is sent. From time to time it is half open.
    let mut sent_nothing = 0;
    for _ in 0..20 {
        let before = stats(&mut raw).await;
        assert!(limiter.check(1).await.unwrap().is_by_failure_policy());
        sent_nothing += u32::from(stats(&mut raw).await == before);
    }
    assert_ne!(sent_nothing, 0);
    set(&mut raw, 0).await;
    assert!(until_by_redis(&limiter).await.is_granted());
}
