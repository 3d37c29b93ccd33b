//! Redis goes down in different ways, and comes back.

use redisson_rate_limiter::{Error, FailurePolicy, LimiterOptions, RedissonClient};

use crate::fixture::{
    client, connect, kill, limiter, ms, policies, restart, until_by_policy, until_by_redis,
};
use crate::proxy::Proxy;
use crate::support::Server;

#[tokio::test]
async fn a_killed_server_leaves_each_policy_to_decide_until_it_is_started_again() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy.clone()).await;
        let limiter = limiter(&client, 1_000).await;
        let port = kill(server);
        let decision = until_by_policy(&limiter).await;
        assert_eq!(decision.is_granted(), policy != FailurePolicy::Deny);
        let _server = restart(port);
        // It has lost the limiter: that is an answer, and no outage.
        let error = loop {
            match limiter.check(1).await {
                Ok(decision) => assert!(decision.is_by_failure_policy()),
                Err(error) => break error,
            }
            tokio::time::sleep(ms(5)).await;
        };
        assert!(matches!(error, Error::NotInitialized { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_stopped_server_leaves_each_policy_to_decide_until_it_continues() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy.clone()).await;
        let limiter = limiter(&client, 1_000).await;
        server.signal("STOP");
        let _ = until_by_policy(&limiter).await;
        server.signal("CONT");
        let _ = until_by_redis(&limiter).await;
    }
}

#[tokio::test]
async fn a_server_that_loses_connections_and_refuses_new_ones_is_an_outage() {
    for policy in policies() {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let client = client(&proxy.url(), policy.clone()).await;
        let limiter = limiter(&client, 1_000).await;
        proxy.refuse_new(true);
        proxy.freeze();
        let _ = until_by_policy(&limiter).await;
        proxy.refuse_new(false);
        let _ = until_by_redis(&limiter).await;
    }
}

#[tokio::test]
async fn a_client_needs_a_server_to_start_with_whatever_the_policy() {
    let port = kill(Server::start());
    for policy in policies() {
        let builder = RedissonClient::builder()
            .default_options(LimiterOptions::new().failure_policy(policy.clone()));
        let error = builder.connect(&format!("redis://127.0.0.1:{port}")).await;
        assert!(matches!(error, Err(Error::StoreUnavailable { .. })));
    }
}

#[tokio::test]
async fn refused_credentials_are_an_outage_until_they_are_accepted() {
    let server = Server::start();
    let client = client(&server.url(), FailurePolicy::Deny).await;
    let limiter = limiter(&client, 1_000).await;
    let mut raw = server.connection().await;
    let set = async |raw: &mut redis::aio::MultiplexedConnection, password: &str| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("requirepass").arg(password);
        let _: () = command.query_async(raw).await.unwrap();
    };
    set(&mut raw, "other").await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes");
    let _: u64 = kill.query_async(&mut raw).await.unwrap();
    assert!(!until_by_policy(&limiter).await.is_granted());
    let strict = limiter
        .clone()
        .with_options(LimiterOptions::new().failure_policy(FailurePolicy::Error));
    let error = strict.available_permits().await.unwrap_err();
    assert!(
        matches!(error, Error::AuthenticationFailed { .. }),
        "{error:?}"
    );
    set(&mut raw, "").await;
    assert!(until_by_redis(&limiter).await.is_granted());
}

#[tokio::test]
async fn a_limiters_own_policy_takes_precedence_over_that_of_its_client() {
    let server = Server::start();
    let client = client(&server.url(), FailurePolicy::Deny).await;
    let limiter = limiter(&client, 1_000).await;
    kill(server);
    assert!(!until_by_policy(&limiter).await.is_granted());
    let lenient = limiter
        .clone()
        .with_options(LimiterOptions::new().failure_policy(FailurePolicy::Allow));
    assert!(lenient.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn what_sets_or_reads_state_fails_whatever_the_policy() {
    for policy in policies() {
        let server = Server::start();
        let builder = RedissonClient::builder()
            .default_options(LimiterOptions::new().failure_policy(policy.clone()));
        let patient = client(&server.url(), policy.clone()).await;
        limiter(&patient, 1_000).await;
        let client = connect(&server.url(), builder.response_timeout(ms(300))).await;
        let limiter = client.rate_limiter("limiter");
        let _ = until_by_redis(&limiter).await;
        kill(server);
        let _ = until_by_policy(&limiter).await;
        let rate = limiter.config().await.map(drop);
        let errors = [
            rate,
            limiter.available_permits().await.map(drop),
            limiter.exists().await.map(drop),
            limiter.delete().await.map(drop),
            limiter.expire(crate::fixture::HOUR).await.map(drop),
        ];
        for error in errors {
            assert!(
                matches!(error, Err(Error::StoreUnavailable { .. })),
                "{error:?}"
            );
        }
    }
}
