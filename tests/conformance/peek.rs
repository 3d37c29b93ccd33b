//! What a check would say, and the reset of a target.

use std::time::Duration;

use redisson_rate_limiter::{
    Charge, Decision, Error, FixedWindow, PermitsInUse, Rate, SlidingWindowCounter, TokenBucket,
};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, SECOND};

/// What is said about a request, apart from the name of its grant.
fn said(decision: &Decision) -> (bool, u64, u64, Option<Duration>) {
    let retry_after = decision.retry_after();
    let numbers = (decision.limit(), decision.remaining());
    (decision.is_granted(), numbers.0, numbers.1, retry_after)
}

pub async fn a_peek_says_what_a_check_at_that_time_says(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(3) {
        let key = format!("{}:{}", fixture.name(), policy.algorithm());
        let limiter = client.policy_limiter(policy).unwrap();
        for expected in [true, true, true, false, false] {
            let peeked = limiter.peek(&key, unit).await.unwrap();
            let checked = limiter.check_without_waiting(&key, unit).await.unwrap();
            assert_eq!(checked.is_granted(), expected, "{key}");
            let (granted, limit, remaining, retry_after) = said(&peeked);
            let (_, of, left, retry_later) = said(&checked);
            assert_eq!((granted, limit, remaining), (expected, of, left), "{key}");
            // The server's clock may have moved on.
            assert_eq!(retry_after.is_some(), retry_later.is_some(), "{key}");
            assert!(retry_after >= retry_later, "{key}");
        }
    }
}

pub async fn a_peek_at_a_rate_limiter_says_what_its_check_says(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(5, SECOND);
    limiter.set_rate(rate).await.unwrap();
    for (at, permits) in [(1_000, 2), (1_100, 2), (1_200, 2), (2_000, 2), (2_050, 3)] {
        fixture.at(at);
        let peeked = limiter.peek(permits).await.unwrap();
        let checked = limiter.check(permits).await.unwrap();
        assert_eq!(said(&peeked), said(&checked), "at {at}");
        assert_eq!(peeked.reset(), checked.reset(), "at {at}");
    }
    let too_many = limiter.peek(6).await;
    assert!(matches!(
        too_many,
        Err(Error::ExceedsLimit { limit: 5, .. })
    ));
    let none = limiter.peek(0).await;
    assert!(matches!(none, Err(Error::InvalidArgument { .. })));
}

pub async fn a_peek_counts_all_expired_grants_however_many(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .set_rate(Rate::overall(1_300, SECOND))
        .await
        .unwrap();
    for at in 1_000..1_600 {
        fixture.at(at);
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    fixture.at(2_599); // one is not back yet
    assert!(limiter.try_acquire(700).await.unwrap());
    fixture.at(2_599 + 5);
    let peeked = limiter.peek(600).await.unwrap();
    assert!(peeked.is_granted());
    assert_eq!(peeked.remaining(), 0);
    assert!(!limiter.peek(601).await.unwrap().is_granted());
    assert_eq!(limiter.available_permits().await.unwrap(), 600);
}

pub async fn a_peek_creates_no_limiter_and_needs_one(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.rate_limiter(fixture.name());
    assert!(matches!(
        limiter.peek(1).await,
        Err(Error::NotInitialized { .. })
    ));
    let own = limiter.clone().with_rate(Rate::overall(3, SECOND)).unwrap();
    assert_eq!(own.peek(1).await.unwrap().remaining(), 2);
    let keyed = client
        .keyed_rate_limiter(fixture.name(), Rate::overall(3, SECOND))
        .unwrap();
    assert_eq!(keyed.peek(":key", 1).await.unwrap().remaining(), 2);
    assert!(!limiter.exists().await.unwrap());
    assert!(!keyed.rate_limiter(":key").exists().await.unwrap());
}

pub async fn a_peek_takes_nothing_and_its_grant_gives_nothing_back(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    limiter.acquire(2).await.unwrap();
    let grant = limiter.peek(3).await.unwrap().into_grant().unwrap();
    assert_eq!(limiter.refund(grant).await.unwrap(), 0);
    assert_eq!(limiter.available_permits().await.unwrap(), 3);
}

pub async fn a_peek_sets_no_penalty_and_sees_one(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(2) {
        let key = format!("{}:{}", fixture.name(), policy.algorithm());
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_penalty(100 * HOUR).unwrap();
        assert!(limiter.check(&key, unit).await.unwrap().is_granted());
        // More than is left: a check would lock the target.
        let denied = limiter.peek(&key, 2 * unit).await.unwrap();
        assert_eq!(denied.retry_after(), Some(100 * HOUR), "{key}");
        assert!(limiter.peek(&key, unit).await.unwrap().is_granted());
        let decision = limiter.check_without_waiting(&key, unit).await;
        assert!(decision.unwrap().is_granted());
        assert!(!limiter.check(&key, unit).await.unwrap().is_granted());
        let locked_out = limiter.peek(&key, unit).await.unwrap();
        assert!(!locked_out.is_granted(), "{key}");
        assert!(locked_out.retry_after() > Some(99 * HOUR), "{key}");
    }
}

pub async fn several_limiters_are_peeked_at_as_they_decide(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let bucket = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
    let bucket = bucket.with_prefix(format!("{{{}}}:tokens:", fixture.name()));
    let window = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let window = window.with_prefix(format!("{{{}}}:window:", fixture.name()));
    let charges = |permits| -> [Charge; 3] {
        [
            limiter.charge(permits).unwrap(),
            bucket.charge("a", 1).unwrap(),
            window.charge("a", 1).unwrap(),
        ]
    };
    for (permits, expected) in [(2, true), (4, false), (5, true), (5, false)] {
        let peeked = client.peek_all(charges(permits)).await.unwrap();
        assert_eq!(peeked.is_granted(), expected, "{permits}");
        let checked = client.check_all(charges(permits)).await.unwrap();
        let (peeked, checked) = (peeked.decisions().iter(), checked.decisions().iter());
        for (peeked, checked) in peeked.zip(checked) {
            let numbers = |it: &Decision| (it.is_granted(), it.limit(), it.remaining());
            assert_eq!(numbers(peeked), numbers(checked), "{permits}");
        }
        if permits == 4 {
            assert!(limiter.reset().await.unwrap());
            assert!(bucket.reset("a").await.unwrap());
        }
    }
}

pub async fn a_reset_target_is_like_one_without_requests(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(2) {
        let name = format!("{}:{}", fixture.name(), policy.algorithm());
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_penalty(100 * HOUR).unwrap();
        let (key, other) = (format!("{name}:a"), format!("{name}:b"));
        for key in [&key, &other] {
            assert!(limiter.check(key, 2 * unit).await.unwrap().is_granted());
            assert!(!limiter.check(key, unit).await.unwrap().is_granted());
        }
        assert!(limiter.reset(&key).await.unwrap(), "{key}");
        assert!(!limiter.reset(&key).await.unwrap(), "{key}");
        let decision = limiter.check(&key, 2 * unit).await.unwrap();
        assert!(decision.is_granted(), "{key}");
        let decision = limiter.peek(&other, unit).await.unwrap();
        assert!(!decision.is_granted(), "{other}");
    }
}

/// The names of the counters contain their times.
pub async fn a_reset_leaves_no_counter_of_a_period(fixture: Fixture) {
    let client = fixture.client("client").await;
    fixture.at(7_200_000);
    let policy = SlidingWindowCounter::new(5, HOUR).aligned_to_clock();
    let limiter = client.policy_limiter(policy).unwrap();
    let limiter = limiter.with_prefix(fixture.name());
    for _ in 0..2 {
        assert!(limiter.check(":key", 5).await.unwrap().is_granted());
        assert!(limiter.reset(":key").await.unwrap());
    }
}

pub async fn a_reset_of_a_rate_limiter_frees_its_permits_and_keeps_its_rate(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    assert!(!limiter.reset().await.unwrap());
    let rate = Rate::overall(5, HOUR).keep_alive(2 * HOUR);
    limiter.set_rate(rate).await.unwrap();
    assert!(!limiter.reset().await.unwrap());
    limiter.acquire(5).await.unwrap();
    assert!(limiter.reset().await.unwrap());
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert_eq!(limiter.config().await.unwrap(), Some(rate));

    // A grant from before is gone.
    let grant = limiter.check(5).await.unwrap().into_grant().unwrap();
    limiter.reset().await.unwrap();
    assert_eq!(limiter.refund(grant).await.unwrap(), 0);
    limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
}

pub async fn a_reset_of_a_rate_per_client_frees_the_permits_of_this_client(fixture: Fixture) {
    let [one, other] = [
        fixture.limiter_of("one").await,
        fixture.limiter_of("other").await,
    ];
    one.set_rate(Rate::per_client(5, HOUR)).await.unwrap();
    one.acquire(5).await.unwrap();
    other.acquire(3).await.unwrap();
    assert!(one.reset().await.unwrap());
    assert_eq!(one.available_permits().await.unwrap(), 5);
    assert_eq!(other.available_permits().await.unwrap(), 2);
}

pub async fn a_reset_of_a_key_frees_its_permits_alone(fixture: Fixture) {
    let client = fixture.client("client").await;
    let keyed = client
        .keyed_rate_limiter(fixture.name(), Rate::overall(2, HOUR))
        .unwrap();
    for key in [":a", ":b"] {
        assert!(keyed.check(key, 2).await.unwrap().is_granted());
    }
    assert!(keyed.reset(":a").await.unwrap());
    assert!(!keyed.reset(":c").await.unwrap());
    assert!(keyed.peek(":a", 2).await.unwrap().is_granted());
    assert!(!keyed.peek(":b", 1).await.unwrap().is_granted());
}

pub async fn a_reset_serves_those_who_wait(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    limiter.acquire(2).await.unwrap();
    let (waited, reset) = tokio::join!(limiter.acquire(1), async {
        while limiter.waiters() == 0 {
            tokio::task::yield_now().await;
        }
        limiter.reset().await
    });
    waited.unwrap();
    assert!(reset.unwrap());
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}
