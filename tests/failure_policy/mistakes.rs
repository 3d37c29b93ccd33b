//! A caller's mistake is an error, never an outage.

use redisson_rate_limiter::{Error, FixedWindow, TokenBucket};

use crate::fixture::{HOUR, client, kill, limiter, policies, until_by_policy};
use crate::support::Server;

#[tokio::test]
async fn a_limiter_without_a_rate_and_one_of_another_kind_are_errors() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy).await;
        let missing = client.rate_limiter("missing");
        for answer in [
            missing.try_acquire(1).await.map(drop),
            missing.acquire(1).await,
        ] {
            assert!(
                matches!(answer, Err(Error::NotInitialized { .. })),
                "{answer:?}"
            );
        }
        let bucket = client
            .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
            .unwrap();
        let _ = bucket.check("key", 1).await.unwrap();
        let fixed = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
        let answer = fixed.check("key", 1).await;
        assert!(matches!(answer, Err(Error::BadState { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn a_missing_permission_is_an_error() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER")
        .arg("app")
        .arg("on")
        .arg(">secret")
        .arg("~allowed*")
        .arg("+@all");
    let _: () = user.query_async(&mut raw).await.unwrap();
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    for policy in policies() {
        let client = client(&url, policy).await;
        let fixed = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
        for _ in 0..5 {
            let answer = fixed.check("other", 1).await;
            assert!(
                matches!(answer, Err(Error::PermissionDenied { .. })),
                "{answer:?}"
            );
            let answer = client.rate_limiter("other").try_acquire(1).await;
            assert!(
                matches!(answer, Err(Error::PermissionDenied { .. })),
                "{answer:?}"
            );
        }
        // Errors are answers: the breaker stays closed.
        let decision = fixed.check("allowed", 1).await.unwrap();
        assert!(!decision.is_by_failure_policy());
    }
}

#[tokio::test]
async fn arguments_and_costs_are_checked_without_redis_too() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy).await;
        let limiter = limiter(&client, 1_000).await;
        let fixed = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
        kill(server);
        let _ = until_by_policy(&limiter).await;
        let answer = limiter.try_acquire(0).await;
        assert!(matches!(answer, Err(Error::InvalidArgument { .. })));
        let answer = limiter.try_acquire(1_001).await;
        assert!(matches!(answer, Err(Error::ExceedsLimit { .. })));
        let answer = fixed.check("key", 11).await;
        assert!(matches!(answer, Err(Error::ExceedsLimit { .. })));
        let answer = fixed.check("", 1).await;
        assert!(matches!(answer, Err(Error::InvalidName { .. })));
        assert!(limiter.try_acquire(1).await.is_ok());
    }
}
