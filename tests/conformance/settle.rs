//! Grants that were estimates, settled once it is known what was used.

use redisson_rate_limiter::{
    AnyPolicy, Decision, Error, FixedWindow, Gcra, Grant, LeakyBucket, Limiter, PenaltyTokenBucket,
    PermitsInUse, Policy, QuotaBucket, Rate, RateLimiter, SlidingWindowCounter, SlidingWindowLog,
    TokenBucket,
};

use crate::every_policy::{every_policy, gives_turns};
use crate::fixture::{Fixture, HOUR, SECOND, granted, ms};
use crate::stopped_time::{at_once, run_until_stalled};

async fn ten(fixture: &Fixture) -> RateLimiter {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(10, SECOND);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    limiter
}

async fn take(limiter: &dyn Limiter, key: &str, permits: u32) -> Grant {
    let decision = limiter.check(key, permits).await.unwrap();
    decision.into_grant().expect("it is granted")
}

async fn available(fixture: &Fixture, limiter: &RateLimiter, at: &[(i64, u64)]) {
    for &(at, available) in at {
        fixture.at(at);
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            available,
            "{at}"
        );
    }
}

pub async fn what_was_not_used_goes_back_and_the_rest_stays_in_use(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    let estimates = [take(&limiter, "", 4).await, take(&limiter, "", 6).await];
    fixture.at(1_400);
    for (estimate, used) in estimates.into_iter().zip([4, 1]) {
        limiter.settle(estimate, used).await.unwrap();
    }
    available(&fixture, &limiter, &[(1_400, 5), (1_999, 5), (2_000, 10)]).await;
}

pub async fn what_was_used_beyond_a_grant_is_taken_and_later_requests_wait(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    let estimate = take(&limiter, "", 6).await;
    fixture.at(1_500);
    limiter.settle(estimate, 15).await.unwrap(); // 5 more than the rate
    assert!(!limiter.try_acquire(1).await.unwrap());
    available(&fixture, &limiter, &[(1_999, 0), (2_000, 1)]).await;
    assert_eq!(granted(&limiter, 5).await, 1);
    available(&fixture, &limiter, &[(2_499, 0), (2_500, 9), (3_000, 10)]).await;
    assert_eq!(granted(&limiter, 11).await, 10);
}

pub async fn more_than_the_rate_may_have_been_used(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    let estimate = take(&limiter, "", 1).await;
    limiter.settle(estimate, u32::MAX).await.unwrap();
    available(&fixture, &limiter, &[(1_999, 0), (2_000, 10)]).await;
}

pub async fn of_a_grant_and_its_clones_one_is_settled_once(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    for used in [3, 5, 7] {
        let estimate = take(&limiter, "", 5).await;
        limiter.settle(estimate.clone(), used).await.unwrap();
        limiter.settle(estimate.clone(), 9).await.unwrap();
        assert_eq!(limiter.refund(estimate.clone()).await.unwrap(), 0);
        limiter.settle(estimate, 0).await.unwrap();
        let left = u64::from(10 - used);
        assert_eq!(limiter.available_permits().await.unwrap(), left);
        fixture.pass(SECOND);
    }
}

pub async fn a_grant_of_any_limiter_and_its_clones_are_spent_once(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let other = client.policy_limiter(FixedWindow::new(100, HOUR)).unwrap();
    for (policy, unit) in every_policy(10) {
        let name = policy.algorithm();
        let limiter = client.policy_limiter(policy).unwrap();
        let left = async |key: &str| limiter.peek(key, 1).await.unwrap().remaining();
        for (first, used) in [("refund", 2), ("less", 1), ("equal", 2), ("more", 4)] {
            for together in [false, true] {
                let key = format!("{tag}:{name}:{first}:{together}");
                let grant = if together {
                    let other = other.charge(&format!("{key}:other"), 1).unwrap();
                    let charges = [limiter.charge(&key, 2 * unit).unwrap(), other];
                    let decision = client.check_all(charges).await.unwrap();
                    let grant = decision.decisions()[0].clone().into_grant().unwrap();
                    if first == "refund" {
                        client.refund_all(decision).await.unwrap();
                    }
                    grant
                } else {
                    take(&limiter, &key, 2 * unit).await
                };
                match first {
                    "refund" if together => {}
                    "refund" => {
                        Limiter::refund(&limiter, &key, grant.clone())
                            .await
                            .unwrap();
                    }
                    _ => {
                        let settled = limiter.settle(&key, grant.clone(), used * unit);
                        settled.await.unwrap();
                    }
                }
                let before = left(&key).await;
                limiter.settle(&key, grant.clone(), 5 * unit).await.unwrap();
                assert_eq!(left(&key).await, before, "{key}");
                let refunded = Limiter::refund(&limiter, &key, grant).await.unwrap();
                assert_eq!((refunded, left(&key).await), (0, before), "{key}");
            }
        }
    }
}

pub async fn an_estimate_whose_window_has_passed_can_be_settled(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    let estimates = [take(&limiter, "", 5).await, take(&limiter, "", 5).await];
    fixture.at(2_100);
    for (estimate, used) in estimates.into_iter().zip([2, 8]) {
        limiter.settle(estimate, used).await.unwrap();
    }
    available(&fixture, &limiter, &[(2_100, 7), (3_100, 10)]).await;
}

pub async fn settling_by_a_handle_with_a_rate_creates_a_missing_limiter(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let estimates = [take(&limiter, "", 5).await, take(&limiter, "", 5).await];
    assert!(limiter.delete().await.unwrap());
    let [first, second] = estimates;
    let gone = limiter.settle(first, 8).await;
    assert!(
        matches!(gone, Err(Error::NotInitialized { .. })),
        "{gone:?}"
    );
    let knowing = limiter.clone().with_rate(Rate::overall(10, HOUR)).unwrap();
    knowing.settle(second, 8).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
}

pub async fn settling_leaves_the_settings_that_a_limiter_got_since_the_grant(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    // Of a limiter of the other type nothing was in use.
    for (new, left) in [
        (Rate::overall(20, HOUR), 12),
        (Rate::per_client(20, HOUR), 17),
    ] {
        limiter.delete().await.unwrap();
        let before = limiter.clone().with_rate(Rate::overall(10, HOUR)).unwrap();
        let estimate = take(&before, "", 5).await;
        limiter.update_rate(new, PermitsInUse::Keep).await.unwrap();
        take(&limiter, "", 1).await;
        before.settle(estimate, 7).await.unwrap();
        assert_eq!(limiter.config().await.unwrap(), Some(new));
        assert_eq!(limiter.available_permits().await.unwrap(), left);
    }
}

pub async fn a_waiter_waits_until_enough_has_come_back(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    let estimate = take(&limiter, "", 1).await;
    limiter.settle(estimate, 14).await.unwrap();
    fixture.at(1_999);
    let waited = limiter.try_acquire_timeout(1, ms(0)).await;
    assert!(!waited.unwrap());
    fixture.at(2_000);
    limiter.acquire(10).await.unwrap();
}

pub async fn what_those_who_wait_are_granted_can_be_settled(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let first = limiter.acquire_grant(10).await.unwrap();
    let _stopped = fixture.stop_time();
    let wait = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire_grant(5).await })
    };
    let waiters = [wait(), wait()];
    run_until_stalled(&limiter).await;
    limiter.settle(first, 0).await.unwrap();
    for (waiter, used) in waiters.into_iter().zip([1, 8]) {
        let estimate = at_once(waiter).await.unwrap().unwrap();
        limiter.settle(estimate, used).await.unwrap();
    }
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

pub async fn only_what_was_used_beyond_a_grant_counts_for_an_expired_key(fixture: Fixture) {
    let client = fixture.client("client").await;
    let prefix = format!("{}:", fixture.name());
    let keyed = client.keyed_rate_limiter(&prefix, Rate::overall(10, HOUR));
    let keyed = keyed.unwrap();
    let expire = async || assert!(keyed.rate_limiter("key").delete().await.unwrap());
    for (used, left) in [(3, 9), (5, 9), (8, 6)] {
        let estimate = take(&keyed, "key", 5).await;
        expire().await;
        keyed.settle("key", estimate, used).await.unwrap();
        assert_eq!(keyed.peek("key", 1).await.unwrap().remaining(), left);
        let whole = take(&keyed, "key", 5).await;
        expire().await;
        assert_eq!(keyed.refund("key", whole).await.unwrap(), 0);
    }
}

pub async fn settling_for_more_than_is_left_locks_nobody_out(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = TokenBucket::per_second(1).with_capacity(10);
    let bucket = client.policy_limiter(bucket).unwrap();
    let bucket = bucket.with_prefix(format!("{}:", fixture.name()));
    let bucket = bucket.with_penalty(HOUR).unwrap();
    fixture.at(1_000);
    let estimate = take(&bucket, "key", 4).await;
    bucket.settle("key", estimate, 15).await.unwrap();
    assert_eq!(bucket.peek("key", 1).await.unwrap().remaining(), 0);
    fixture.at(2_000);
    assert!(bucket.check("key", 1).await.unwrap().is_granted());
    // A request for more than is left locks the target out.
    let denied = bucket.check("key", 1).await.unwrap();
    assert_eq!(denied.retry_after(), Some(HOUR));
}

pub async fn settling_waits_for_no_turn(fixture: Fixture) {
    let client = fixture.client("client").await;
    let paced = LeakyBucket::new(1, HOUR).with_capacity(10);
    let paced = client.policy_limiter(paced).unwrap();
    let paced = paced.with_prefix(format!("{}:", fixture.name()));
    let _stopped = fixture.stop_time();
    let estimate = take(&paced, "key", 1).await;
    let settling = tokio::spawn({
        let paced = paced.clone();
        async move { paced.settle("key", estimate, 5).await }
    });
    run_until_stalled(&client.rate_limiter(fixture.name())).await;
    assert!(settling.is_finished());
    let next = paced.check_without_waiting("key", 1).await.unwrap();
    assert!(matches!(next, Decision::Granted(next) if next.delay == 5 * HOUR));
}

pub async fn a_limiter_of_any_kind_gives_back_and_takes_what_it_has(fixture: Fixture) {
    let client = fixture.client("client").await;
    let name = fixture.name();
    let keyed = client.keyed_rate_limiter(&format!("{name}:keyed:"), Rate::overall(10, HOUR));
    let window = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
    let window = window.with_prefix(format!("{name}:window:"));
    let limiters: [Box<dyn Limiter>; 2] = [Box::new(keyed.unwrap()), Box::new(window)];
    for limiter in limiters {
        let estimate = take(&*limiter, "key", 4).await;
        limiter.settle("key", estimate, 3).await.unwrap();
        let grant = take(&*limiter, "key", 1).await;
        let decision = limiter.check("key", 1).await.unwrap();
        assert_eq!(decision.remaining(), 5);
        limiter.settle("key", grant, 10).await.unwrap();
        assert!(!limiter.check("key", 1).await.unwrap().is_granted());
    }
}

/// A limiter of each policy that is used up is like a new one once each of its grants is given
/// back.
pub async fn each_policy_gives_back_once_what_a_grant_has_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let _stopped = fixture.stop_time();
    for policy in AnyPolicy::examples(10, HOUR) {
        // A token bucket of an hour has a multiple of the limit.
        let unit = u32::try_from(policy.quota().limit / 10).unwrap();
        let gives_back = !gives_turns(&policy);
        let limiter = client.policy_limiter(policy.clone()).unwrap();
        let limiter = limiter.with_prefix(format!("{}:", fixture.name()));
        let key = policy.algorithm();
        let left = async || limiter.peek(key, unit).await.unwrap().remaining() / u64::from(unit);
        let mut grants = Vec::new();
        for cost in [1, 2, 3] {
            let decision = limiter.check_without_waiting(key, cost * unit).await;
            grants.push(decision.unwrap().into_grant().unwrap());
        }
        let before = left().await;
        for (grant, used) in grants.into_iter().zip([1, 3, 6]) {
            let permits = grant.permits();
            let refunded = limiter.refund(key, grant.clone()).await.unwrap();
            assert_eq!(refunded, if gives_back { permits } else { 0 }, "{policy}");
            assert_eq!(limiter.refund(key, grant).await.unwrap(), 0);
            let expected = before + if gives_back { used } else { 0 };
            assert_eq!(left().await, expected, "{policy}");
        }
        if gives_back {
            let whole = limiter.check_without_waiting(key, 10 * unit).await;
            assert!(whole.unwrap().is_granted(), "{policy}");
        }
    }
}

pub async fn a_bucket_gives_back_what_has_not_flowed_in_since(fixture: Fixture) {
    let client = fixture.client("client").await;
    let buckets: [AnyPolicy; 4] = [
        TokenBucket::per_second(1).with_capacity(10).into(),
        QuotaBucket::new(1, SECOND).with_capacity(10).into(),
        PenaltyTokenBucket::new(1, SECOND).with_capacity(10).into(),
        Gcra::per_second(1).with_burst(10).into(),
    ];
    for bucket in buckets {
        let limiter = client.policy_limiter(bucket.clone()).unwrap();
        let limiter = limiter.with_prefix(format!("{}:", fixture.name()));
        let key = bucket.algorithm();
        for (pause, given_back) in [(0, 4), (1, 3), (3, 1), (4, 0), (60, 0)] {
            fixture.at(0);
            limiter.reset(key).await.unwrap();
            let first = take(&limiter, key, 6).await;
            let grant = take(&limiter, key, 4).await;
            fixture.at(1_000 * pause);
            assert_eq!(
                limiter.refund(key, grant).await.unwrap(),
                given_back,
                "{bucket}"
            );
            // What has flowed in is there besides.
            let left = (pause as u64 + u64::from(given_back)).min(10);
            let peeked = limiter.peek(key, 1).await.unwrap();
            assert_eq!(
                peeked.remaining() + u64::from(peeked.is_granted()),
                left,
                "{bucket} {pause}"
            );
            drop(first);
        }
    }
}

pub async fn a_window_gives_back_what_it_counts_while_it_lasts(fixture: Fixture) {
    let client = fixture.client("client").await;
    // The windows that end by the client's clock; the others end by the server's.
    let windows: [AnyPolicy; 2] = [
        SlidingWindowLog::new(10, 60 * SECOND).into(),
        SlidingWindowCounter::new(10, 60 * SECOND)
            .with_period(10 * SECOND)
            .into(),
    ];
    for window in windows {
        let limiter = client.policy_limiter(window.clone()).unwrap();
        let key = format!("{}:{window}", fixture.name());
        fixture.at(0);
        let grant = take(&limiter, &key, 4).await;
        fixture.at(30_000);
        let other = take(&limiter, &key, 6).await;
        assert_eq!(limiter.refund(&key, grant).await.unwrap(), 4, "{window}");
        let grant = take(&limiter, &key, 4).await;
        // Later another window counts, or the window is over.
        fixture.at(2 * 86_400_000);
        let next = take(&limiter, &key, 10).await;
        for late in [grant, other] {
            assert_eq!(limiter.refund(&key, late).await.unwrap(), 0, "{window}");
        }
        assert!(!limiter.check(&key, 1).await.unwrap().is_granted());
        assert_eq!(limiter.refund(&key, next.part(3)).await.unwrap(), 3);
        assert!(limiter.check(&key, 3).await.unwrap().is_granted());
        assert!(!limiter.check(&key, 1).await.unwrap().is_granted());
    }
}

pub async fn what_was_used_beyond_one_calls_largest_cost_is_taken_in_parts(fixture: Fixture) {
    let client = fixture.client("client").await;
    let log = client.policy_limiter(SlidingWindowLog::new(2_000, HOUR));
    let log = log.unwrap().with_prefix(format!("{}:", fixture.name()));
    let estimate = take(&log, "key", 2).await;
    log.settle("key", estimate.clone(), 1_203).await.unwrap(); // 500, 500 and 201 more
    assert_eq!(log.peek("key", 1).await.unwrap().remaining(), 796);
    log.settle("key", estimate, 2_000).await.unwrap(); // no effect: it is settled
    let estimate = take(&log, "key", 1).await;
    log.settle("key", estimate, 1_000).await.unwrap(); // as many as there are
    assert!(!log.check("key", 1).await.unwrap().is_granted());
}
