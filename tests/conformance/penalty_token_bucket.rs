//! Tokens that come in with whole units of time, and a lock that denies whichever limiter set it.

use redisson_rate_limiter::{Decision, Denied, Error, PenaltyTokenBucket, PolicyLimiter};

use crate::fixture::{Fixture, HOUR, SECOND, fields, ms};

async fn limiter(
    fixture: &Fixture,
    policy: PenaltyTokenBucket,
) -> PolicyLimiter<PenaltyTokenBucket> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

/// Ten at most, two with each second.
async fn two_a_second(fixture: &Fixture) -> PolicyLimiter<PenaltyTokenBucket> {
    limiter(
        fixture,
        PenaltyTokenBucket::new(2, SECOND).with_capacity(10),
    )
    .await
}

pub async fn a_bucket_starts_full_and_tokens_come_in_when_a_unit_is_over(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    for (at, cost, expected) in [
        (1_000, 10, (true, 0, None, 5_000)),
        (1_000, 1, (false, 0, Some(1_000), 5_000)),
        (1_999, 3, (false, 0, Some(1_001), 4_001)),
        (2_000, 1, (true, 1, None, 5_000)),
        (3_700, 3, (true, 0, None, 4_300)),
        // The unit began at 3000, regardless of the time of the request.
        (4_000, 1, (true, 1, None, 5_000)),
        // And it never holds more than its capacity.
        (60_500, 1, (true, 9, None, 500)),
        (60_500, 10, (false, 9, Some(500), 500)),
    ] {
        fixture.at(at);
        let decision = limiter.check(bucket, cost).await.unwrap();
        assert_eq!(fields(&decision), expected, "{cost} at {at}");
    }
}

pub async fn in_the_long_run_the_tokens_are_the_quantity_per_unit(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 10).await.unwrap().is_granted());
    let mut granted = 0;
    for _ in 0..145 {
        fixture.pass(ms(70)); // 10,150 ms
        granted += u32::from(limiter.check(bucket, 1).await.unwrap().is_granted());
    }
    assert_eq!(granted, 20);
}

pub async fn aligned_to_the_clock_the_first_unit_is_the_current_minute(fixture: Fixture) {
    let policy = PenaltyTokenBucket::new(1, 60 * SECOND)
        .with_capacity(2)
        .aligned_to_clock();
    let limiter = limiter(&fixture, policy).await;
    let bucket = fixture.name();
    fixture.at(3_615_000);
    assert!(limiter.check(bucket, 2).await.unwrap().is_granted());
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (false, 0, Some(45_000), 105_000));
    fixture.pass(ms(45_000));
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
}

pub async fn a_cost_above_its_capacity_is_an_error_that_locks_nobody_out(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await.with_penalty(HOUR).unwrap();
    let bucket = fixture.name();
    let error = limiter.check(bucket, 11).await.unwrap_err();
    assert!(
        matches!(error, Error::ExceedsLimit { limit: 10, .. }),
        "{error:?}"
    );
    let decision = limiter.check(bucket, 10).await.unwrap();
    assert_eq!(fields(&decision), (true, 0, None, 5_000));
}

pub async fn a_lock_that_a_peer_set_denies_also_in_a_limiter_without_a_penalty(fixture: Fixture) {
    let strict = two_a_second(&fixture).await.with_penalty(HOUR).unwrap();
    let mild = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(mild.check(bucket, 10).await.unwrap().is_granted());
    assert!(!mild.check(bucket, 1).await.unwrap().is_granted());
    fixture.pass(SECOND);
    // Without a penalty a denial locks nobody out.
    assert!(mild.check(bucket, 1).await.unwrap().is_granted());
    assert!(!strict.check(bucket, 2).await.unwrap().is_granted());
    fixture.pass(HOUR);
    for limiter in [&mild, &strict] {
        let decision = limiter.check(bucket, 1).await.unwrap();
        let Decision::Denied(Denied {
            retry_after,
            limit: 10,
            remaining: 0,
            reset,
            ..
        }) = decision
        else {
            panic!("{decision:?}");
        };
        assert_eq!(reset, retry_after);
        assert!(retry_after <= HOUR && retry_after > HOUR / 2);
    }
}

pub async fn a_lock_that_a_peer_set_ends_when_its_time_is_over(fixture: Fixture) {
    let strict = two_a_second(&fixture).await.with_penalty(ms(60)).unwrap();
    let mild = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(strict.check(bucket, 10).await.unwrap().is_granted());
    assert!(!strict.check(bucket, 1).await.unwrap().is_granted());
    fixture.pass(SECOND);
    tokio::time::sleep(ms(65)).await;
    let decision = mild.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (true, 1, None, 5_000));
}

pub async fn a_smaller_capacity_caps_at_once_and_a_unit_counts_from_the_last_inflow(
    fixture: Fixture,
) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    let change = |capacity, quantity, unit| {
        limiter.set_policy(PenaltyTokenBucket::new(quantity, unit).with_capacity(capacity))
    };
    change(3, 2, SECOND).unwrap();
    let decision = limiter.check(bucket, 3).await.unwrap();
    assert_eq!(fields(&decision), (true, 0, None, 2_000));
    change(20, 5, 3 * SECOND).unwrap();
    fixture.pass(ms(2_999));
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (false, 0, Some(1), 9_001));
    fixture.pass(ms(1));
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (true, 4, None, 12_000));
}

pub async fn an_idle_bucket_expires_and_is_full_then(fixture: Fixture) {
    let limiter = limiter(&fixture, PenaltyTokenBucket::new(1, ms(40))).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    // Its clock does not move, so that no tokens are added: only the times to live of the keys
    // pass, twice the time to fill.
    tokio::time::sleep(ms(85)).await;
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
}

pub async fn a_bucket_smaller_than_a_units_quantity_is_full_only_after_the_unit(fixture: Fixture) {
    // Twice the time to fill by the quantity alone, 2 ms, has long passed.
    let limiter = limiter(
        &fixture,
        PenaltyTokenBucket::new(5_000, 10 * SECOND).with_capacity(1),
    )
    .await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    tokio::time::sleep(ms(20)).await;
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (false, 0, Some(10_000), 10_000));
}
