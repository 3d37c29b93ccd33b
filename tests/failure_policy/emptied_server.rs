//! A server that has lost its data, under each failure policy, for limiters that know their rate.

use redisson_rate_limiter::{FailurePolicy, Rate};
use tokio::task::JoinSet;

use crate::fixture::{HOUR, client, kill, ms, one_of, policies, restart, until_by_policy};
use crate::support::Server;

#[tokio::test]
async fn waiters_and_requests_with_a_rate_create_a_limiter_under_each_policy() {
    for policy in policies().into_iter().chain([FailurePolicy::Error]) {
        let server = Server::start();
        let client = client(&server.url(), policy.clone()).await;
        let rate = Rate::overall(2, ms(500));
        let limiter = client.rate_limiter("limiter").with_rate(rate).unwrap();
        assert!(limiter.try_acquire(2).await.unwrap());
        let mut waiting = JoinSet::new();
        for is_timed in [false, true] {
            let limiter = limiter.clone();
            waiting.spawn(async move {
                match is_timed {
                    true => limiter.try_acquire_timeout(1, HOUR).await,
                    false => limiter.acquire(1).await.map(|()| true),
                }
            });
        }
        while limiter.waiters() < 2 {
            tokio::task::yield_now().await;
        }
        let mut raw = server.connection().await;
        redis::cmd("FLUSHALL").exec_async(&mut raw).await.unwrap();
        while let Some(waited) = waiting.join_next().await {
            assert!(waited.unwrap().unwrap(), "{policy:?}");
        }
        redis::cmd("FLUSHALL").exec_async(&mut raw).await.unwrap();
        let decision = limiter.check(2).await.unwrap();
        assert!(decision.is_granted() && !decision.is_by_failure_policy());
        redis::cmd("FLUSHALL").exec_async(&mut raw).await.unwrap();
        let charges = [limiter.charge(2).unwrap()];
        let decision = client.check_all(charges).await.unwrap();
        assert!(decision.is_granted() && !decision.is_by_failure_policy());
        assert_eq!(limiter.config().await.unwrap(), Some(rate));
    }
}

#[tokio::test]
async fn the_local_share_of_a_limiter_with_a_rate_needs_no_answer_of_redis() {
    let server = Server::start();
    let client = client(&server.url(), one_of(2)).await;
    let rate = Rate::overall(10, HOUR);
    let limiter = client.rate_limiter("limiter").with_rate(rate).unwrap();
    let port = kill(server);
    assert!(until_by_policy(&limiter).await.is_granted());
    assert!(limiter.try_acquire(4).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    drop(restart(port));
}
