//! A thousand callers while Redis goes down and comes back: each gets its answer, and permits are
//! neither lost nor granted twice.

use std::time::Duration;

use redisson_rate_limiter::{Decision, FailurePolicy};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{client, limiter, ms, one_of, policies, until_by_policy, until_by_redis};
use crate::support::Server;

const CALLERS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_hangs_while_redis_goes_down_and_comes_back() {
    for policy in policies() {
        let server = Server::start();
        let client = client(&server.url(), policy).await;
        let limiter = limiter(&client, 1_000_000).await;
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let limiter = limiter.clone();
            callers.spawn(async move {
                let mut of_redis = 0;
                for turn in 0..5 {
                    match (number + turn) % 3 {
                        // The answer may be Redis's or not: a `bool` does not say.
                        0 => drop(limiter.try_acquire_timeout(1, ms(200)).await.unwrap()),
                        _ => {
                            let decision = limiter.check(1).await.unwrap();
                            let is_redis = !decision.is_by_failure_policy();
                            of_redis += u64::from(decision.is_granted() && is_redis);
                        }
                    }
                    tokio::time::sleep(ms(number % 500)).await;
                }
                of_redis
            });
        }
        for _ in 0..2 {
            tokio::time::sleep(ms(200)).await;
            server.signal("STOP");
            let _ = until_by_policy(&limiter).await;
            server.signal("CONT");
            let _ = until_by_redis(&limiter).await;
        }
        let mut granted = 0;
        let all = async {
            while let Some(of_redis) = callers.join_next().await {
                granted += of_redis.unwrap();
            }
        };
        timeout(Duration::from_secs(60), all)
            .await
            .expect("no caller hangs");
        assert!(granted > 0);
    }
}

#[tokio::test]
async fn a_thousand_waiters_without_redis_return_to_it_and_each_is_granted_once() {
    for policy in [FailurePolicy::Deny, one_of(1_000_000)] {
        let server = Server::start();
        let client = client(&server.url(), policy).await;
        let limiter = limiter(&client, 10_000).await;
        let left = limiter.available_permits().await.unwrap();
        server.signal("STOP");
        let _ = until_by_policy(&limiter).await;
        let mut waiting = JoinSet::new();
        for _ in 0..CALLERS {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire(1).await });
        }
        tokio::time::sleep(ms(100)).await;
        let served_here = waiting.len().abs_diff(CALLERS as usize);
        server.signal("CONT");
        while let Some(waited) = waiting.join_next().await {
            waited.unwrap().unwrap();
        }
        // Requests from before the outage was noticed may have taken permits, which come back in
        // the background.
        let goal = left - CALLERS + served_here as u64;
        while limiter.available_permits().await.unwrap().abs_diff(goal) > 1 {
            tokio::time::sleep(ms(20)).await;
        }
    }
}

#[tokio::test]
async fn dropping_a_request_that_the_policy_decides_takes_nothing() {
    let server = Server::start();
    let client = client(&server.url(), one_of(2)).await;
    let limiter = limiter(&client, 20).await;
    server.signal("STOP");
    let _ = until_by_policy(&limiter).await;
    let mut granted = 0;
    for _ in 0..100 {
        let dropped = timeout(ms(1), limiter.acquire(10)).await;
        assert!(dropped.is_err(), "more than is left was granted");
    }
    while let Decision::Granted(_) = limiter.check(1).await.unwrap() {
        granted += 1;
    }
    // The share is 10: one was taken from Redis, one by the question whether it is away.
    assert_eq!(granted, 8);
    server.signal("CONT");
}
