//! A quota for each period: what is left, what comes in, and numbers that change from call to call.

use redisson_rate_limiter::{Decision, Denied, Error, Granted, PolicyLimiter, QuotaBucket};

use crate::fixture::{Fixture, HOUR, SECOND, fields};

/// A limiter whose buckets get `quota` a minute.
async fn a_minute(fixture: &Fixture, capacity: u32, quota: u32) -> PolicyLimiter<QuotaBucket> {
    let client = fixture.client("client").await;
    client.policy_limiter(in_a_minute(capacity, quota)).unwrap()
}

fn in_a_minute(capacity: u32, quota: u32) -> QuotaBucket {
    QuotaBucket::new(quota, 60 * SECOND).with_capacity(capacity)
}

pub async fn of_100_with_30_a_minute_one_leaves_99(fixture: Fixture) {
    let limiter = a_minute(&fixture, 100, 30).await;
    let decision = limiter.check(fixture.name(), 1).await.unwrap();
    assert_eq!(fields(&decision), (true, 99, None, 2_000));
    assert!(matches!(
        decision,
        Decision::Granted(Granted { limit: 100, .. })
    ));
}

pub async fn of_10_a_minute_two_fives_are_granted_and_a_third_is_denied(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 10).await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let decision = limiter.check(fixture.name(), 5).await.unwrap();
        answers.push(fields(&decision));
    }
    assert_eq!(
        answers,
        [
            (true, 5, None, 30_000),
            (true, 0, None, 60_000),
            (false, 0, Some(30_000), 60_000),
        ]
    );
}

pub async fn the_time_of_a_tokens_fraction_goes_on_counting(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 10).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 10).await.unwrap().is_granted());
    // A token takes 6 s, so there are 7 in 42 s, even if one is taken every 7 s.
    for _ in 0..6 {
        fixture.pass(7 * SECOND);
        assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    }
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    assert!(!limiter.check(bucket, 1).await.unwrap().is_granted());
}

pub async fn tokens_that_take_fractions_of_seconds_come_in_at_the_exact_rate(fixture: Fixture) {
    let limiter = a_minute(&fixture, 7, 7).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 7).await.unwrap().is_granted());
    let mut granted = 0;
    for _ in 0..600 {
        fixture.pass(SECOND);
        granted += u32::from(limiter.check(bucket, 1).await.unwrap().is_granted());
    }
    assert_eq!(granted, 70);
}

pub async fn a_denied_request_is_granted_after_its_retry_time_and_not_before(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 10).await;
    let bucket = fixture.name();
    fixture.at(1_500);
    assert!(limiter.check(bucket, 10).await.unwrap().is_granted());
    for (at, wait) in [(1_500, 11_500), (7_000, 6_000), (12_999, 1)] {
        fixture.at(at);
        let decision = limiter.check(bucket, 2).await.unwrap();
        let Decision::Denied(Denied { retry_after, .. }) = decision else {
            panic!("granted at {at}");
        };
        assert_eq!(retry_after.as_millis(), wait, "at {at}");
    }
    fixture.at(13_000);
    assert!(limiter.check(bucket, 2).await.unwrap().is_granted());
}

pub async fn a_bucket_is_never_fuller_than_its_capacity(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 10).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 10).await.unwrap().is_granted());
    fixture.pass(HOUR);
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (true, 9, None, 6_000));
    // The time during which it was full adds nothing.
    let decision = limiter.check(bucket, 10).await.unwrap();
    assert_eq!(fields(&decision), (false, 9, Some(6_000), 6_000));
}

pub async fn a_clock_that_goes_back_takes_and_gives_nothing(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 10).await;
    let bucket = fixture.name();
    fixture.at(100_000);
    assert!(limiter.check(bucket, 8).await.unwrap().is_granted());
    fixture.at(94_000);
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (true, 1, None, 60_000));
}

pub async fn a_smaller_capacity_caps_what_is_left_at_once(fixture: Fixture) {
    let limiter = a_minute(&fixture, 100, 30).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    limiter.set_policy(in_a_minute(10, 30)).unwrap();
    let decision = limiter.check(bucket, 4).await.unwrap();
    assert_eq!(fields(&decision), (true, 6, None, 8_000));
    // The tokens above the smaller capacity do not come back with the old one.
    limiter.set_policy(in_a_minute(100, 30)).unwrap();
    let decision = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&decision), (true, 5, None, 190_000));
}

pub async fn another_quota_and_period_count_from_the_next_request_on(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 10).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 10).await.unwrap().is_granted());
    fixture.pass(6 * SECOND);
    limiter
        .set_policy(QuotaBucket::new(5, 10 * SECOND).with_capacity(20))
        .unwrap();
    let decision = limiter.check(bucket, 4).await.unwrap();
    assert_eq!(fields(&decision), (false, 3, Some(2_000), 34_000));
    fixture.pass(2 * SECOND);
    let decision = limiter.check(bucket, 4).await.unwrap();
    assert_eq!(fields(&decision), (true, 0, None, 40_000));
}

pub async fn a_quantity_above_the_capacity_is_an_error_and_takes_nothing(fixture: Fixture) {
    let limiter = a_minute(&fixture, 10, 30).await;
    let bucket = fixture.name();
    for cost in [11, u32::MAX] {
        let error = limiter.check(bucket, cost).await.unwrap_err();
        assert!(
            matches!(&error, Error::ExceedsLimit { name, limit: 10, .. } if name == bucket),
            "{error:?}"
        );
    }
    let decision = limiter.check(bucket, 10).await.unwrap();
    assert_eq!(fields(&decision), (true, 0, None, 20_000));
}
