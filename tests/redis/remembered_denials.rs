//! Remembered denials: how many calls reach the server, and what makes the next request reach it.

use std::future::Future;

use redisson_rate_limiter::{
    Decision, DecisionSource, Granted, LimiterOptions, Rate, RateLimiter, RedissonClient,
};
use tokio::time::{Instant, sleep};

use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE, ms};

/// A limiter of 2 an hour, both in use, that remembers denials for `at_most`, and one of the
/// grants.
async fn exhausted(fixture: &Fixture, at_most: std::time::Duration) -> (RateLimiter, Decision) {
    let client = fixture.client().await;
    let limiter = client
        .rate_limiter(NAME)
        .with_options(LimiterOptions::new().remember_denials(at_most));
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    let grant = limiter.check(1).await.unwrap();
    assert!(grant.is_granted() && limiter.try_acquire(1).await.unwrap());
    (limiter, grant)
}

async fn scripts_run(fixture: &mut Fixture) -> u64 {
    let mut info = redis::cmd("INFO");
    let info: String = info
        .arg("commandstats")
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    let scripts = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
    scripts
        .map(|line| {
            let calls = line.split_once("calls=").unwrap().1;
            calls.split_once(',').unwrap().0.parse::<u64>().unwrap()
        })
        .sum()
}

#[tokio::test]
async fn while_a_denial_is_remembered_no_request_reaches_the_server() {
    let mut fixture = Fixture::start().await;
    let (limiter, _) = exhausted(&fixture, HOUR).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    let before = scripts_run(&mut fixture).await;
    for _ in 0..2_000 {
        assert!(!limiter.try_acquire(1).await.unwrap());
    }
    assert_eq!(scripts_run(&mut fixture).await, before);
}

/// Asserts that after `change` the server decides the next request.
async fn drops<F: Future<Output = ()>>(change: impl FnOnce(RateLimiter, Decision) -> F) {
    let mut fixture = Fixture::start().await;
    let (limiter, grant) = exhausted(&fixture, SECOND * 1_000).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    let before = scripts_run(&mut fixture).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(scripts_run(&mut fixture).await, before);
    change(limiter.clone(), grant).await;
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_release_of_this_client_drops_the_denial() {
    drops(|limiter, _| async move { limiter.release(1).await.unwrap() }).await;
}

#[tokio::test]
async fn a_refund_of_this_client_drops_the_denial() {
    let refund = |limiter: RateLimiter, decision| async move {
        let Decision::Granted(Granted { grant, .. }) = decision else {
            panic!("it was denied");
        };
        assert_eq!(limiter.refund(grant).await.unwrap(), 1);
    };
    drops(refund).await;
}

#[tokio::test]
async fn another_rate_that_this_client_sets_drops_the_denial() {
    let raise = |limiter: RateLimiter, _| async move {
        limiter.set_rate(Rate::overall(3, HOUR)).await.unwrap();
    };
    drops(raise).await;
}

#[tokio::test]
async fn another_rate_that_a_joint_decision_sets_drops_the_denial() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let options = LimiterOptions::new().remember_denials(HOUR);
    let limiter = client.rate_limiter(NAME).with_options(options);
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(2).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    let raised = client.keyed_rate_limiter("", Rate::overall(4, HOUR));
    let charge = raised.unwrap().charge(NAME, 1).unwrap();
    assert!(client.check_all([charge]).await.unwrap().is_granted());
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn what_an_audit_of_this_client_finds_is_granted_after_a_denial() {
    let mut fixture = Fixture::start().await;
    let client = RedissonClient::connect(&fixture.server.url()).await;
    let limiter = client.unwrap().rate_limiter(NAME);
    limiter
        .try_set_rate(Rate::overall(300, HOUR))
        .await
        .unwrap();
    fixture.fill(VALUE, PERMITS, 200, 0).await; // a peer's retry lost 100
    let limiter = limiter.with_options(LimiterOptions::new().remember_denials(HOUR));
    let started = Instant::now();
    while !limiter.try_acquire(1).await.unwrap() {
        assert!(started.elapsed() < SECOND * 60, "it is denied from memory");
        sleep(ms(5)).await;
    }
}

#[tokio::test]
async fn fewer_permits_than_were_denied_get_an_earlier_remembered_time() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.at(3_001_000);
    assert!(limiter.try_acquire(9).await.unwrap());
    let denied = limiter.check(4).await.unwrap();
    assert_eq!(denied.retry_after(), Some(HOUR));

    // Its age counts.
    let limiter = limiter.with_options(LimiterOptions::new().remember_denials(HOUR));
    let first = HOUR - ms(3_000_000);
    for (permits, time) in [(4, HOUR), (10, HOUR), (3, first), (1, first)] {
        let decision = limiter.check(permits).await.unwrap();
        let told = decision.retry_after().unwrap();
        assert!(told <= time && told > time / 2, "{permits}: {told:?}");
        assert!(
            matches!(decision, Decision::Denied(it) if it.source == DecisionSource::Remembered)
        );
    }
}
