//! A constant pace: which requests go on at once, which wait for how long, and which are refused.

use std::time::Duration;

use redisson_rate_limiter::{Decision, Error, Granted, LeakyBucket, PolicyLimiter};

use crate::fixture::{Fixture, SECOND, fields, ms};

async fn limiter(fixture: &Fixture, policy: LeakyBucket) -> PolicyLimiter<LeakyBucket> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

/// Two a second, and four may wait.
async fn two_a_second(fixture: &Fixture) -> PolicyLimiter<LeakyBucket> {
    limiter(fixture, LeakyBucket::new(2, SECOND).with_capacity(4)).await
}

/// The wait of a granted request in ms.
fn wait(decision: &Decision) -> Option<u128> {
    match decision {
        Decision::Granted(Granted { delay, .. }) => Some(delay.as_millis()),
        Decision::Denied(_) => None,
    }
}

async fn waits<const N: usize>(
    limiter: &PolicyLimiter<LeakyBucket>,
    bucket: &str,
) -> [Option<u128>; N] {
    let mut waits = [None; N];
    for place in &mut waits {
        *place = wait(&limiter.check_without_waiting(bucket, 1).await.unwrap());
    }
    waits
}

pub async fn cost_beyond_a_units_quantity_waits_and_what_does_not_fit_is_denied(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    let first = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(
        (wait(&first), fields(&first)),
        (Some(0), (true, 5, None, 1_000))
    );
    assert!(matches!(first, Decision::Granted(Granted { limit: 6, .. })));
    fixture.at(1_300);
    assert_eq!(
        waits(&limiter, bucket).await,
        [
            Some(0),
            Some(700),
            Some(700),
            Some(1_700),
            Some(1_700),
            None
        ]
    );
    let denied = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&denied), (false, 0, Some(700), 2_700));
    let denied = limiter.check(bucket, 3).await.unwrap();
    assert_eq!(fields(&denied), (false, 0, Some(1_700), 2_700));
}

pub async fn with_each_whole_unit_a_quantity_flows_out(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 6).await.unwrap().is_granted());
    fixture.at(1_999);
    assert_eq!(waits(&limiter, bucket).await, [None]);
    fixture.at(2_000);
    assert_eq!(
        waits(&limiter, bucket).await,
        [Some(2_000), Some(2_000), None]
    );
    // The unit began at 4000, regardless of the time of the request.
    fixture.at(4_900);
    assert_eq!(
        waits(&limiter, bucket).await,
        [Some(100), Some(100), Some(1_100), Some(1_100), None]
    );
    fixture.at(5_000);
    assert_eq!(
        waits(&limiter, bucket).await,
        [Some(2_000), Some(2_000), None]
    );
}

pub async fn in_the_long_run_the_pace_is_the_quantity_per_unit(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 6).await.unwrap().is_granted());
    let mut granted = 0;
    for _ in 0..145 {
        fixture.pass(ms(70)); // 10,150 ms
        let decision = limiter.check_without_waiting(bucket, 1).await.unwrap();
        granted += u32::from(decision.is_granted());
    }
    assert_eq!(granted, 20);
}

pub async fn a_targets_first_request_goes_on_at_once_and_the_next_waits_for_it(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    let decision = limiter.check(bucket, 5).await.unwrap();
    assert_eq!((wait(&decision), fields(&decision).1), (Some(0), 1));
    assert_eq!(waits(&limiter, bucket).await, [Some(2_000), None]);
}

pub async fn after_idle_units_the_capacity_is_checked_also_for_a_large_cost(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 1).await.unwrap().is_granted());
    fixture.pass(5 * SECOND);
    for cost in [7, 100, u32::MAX] {
        let error = limiter.check(bucket, cost).await.unwrap_err();
        assert!(
            matches!(&error, Error::ExceedsLimit { name, limit: 6, .. } if name == bucket),
            "{error:?}"
        );
    }
    // Nothing remains from before, and no credit was accumulated.
    let decision = limiter.check_without_waiting(bucket, 6).await.unwrap();
    assert_eq!(wait(&decision), Some(2_000));
    assert_eq!(fields(&decision), (true, 0, None, 3_000));
    assert_eq!(waits(&limiter, bucket).await, [None]);
}

pub async fn with_something_left_after_idle_units_the_capacity_is_checked_too(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 3).await.unwrap().is_granted());
    fixture.pass(SECOND);
    let decision = limiter.check(bucket, 6).await.unwrap();
    assert_eq!(fields(&decision), (false, 5, Some(1_000), 1_000));
    let decision = limiter.check_without_waiting(bucket, 5).await.unwrap();
    assert_eq!(wait(&decision), Some(2_000));
}

pub async fn aligned_to_the_clock_the_first_unit_is_the_current_one(fixture: Fixture) {
    let policy = LeakyBucket::new(1, 60 * SECOND)
        .with_capacity(4)
        .aligned_to_clock();
    let limiter = limiter(&fixture, policy).await;
    fixture.at(3_615_000); // 15 s after a full minute
    assert_eq!(
        waits(&limiter, fixture.name()).await,
        [Some(0), Some(45_000), Some(105_000)]
    );
}

pub async fn what_a_new_policy_finds_in_the_bucket_flows_out_at_the_new_pace(fixture: Fixture) {
    let limiter = two_a_second(&fixture).await;
    let bucket = fixture.name();
    assert!(limiter.check(bucket, 6).await.unwrap().is_granted());
    limiter.set_policy(LeakyBucket::new(1, 2 * SECOND)).unwrap();
    let denied = limiter.check(bucket, 1).await.unwrap();
    assert_eq!(fields(&denied), (false, 0, Some(10_000), 12_000));
    fixture.pass(ms(9_999));
    assert_eq!(waits(&limiter, bucket).await, [None]);
    fixture.pass(ms(1));
    assert_eq!(waits(&limiter, bucket).await, [Some(2_000), None]);
    // A larger capacity has room at once.
    limiter
        .set_policy(LeakyBucket::new(1, 2 * SECOND).with_capacity(9))
        .unwrap();
    assert_eq!(waits(&limiter, bucket).await, [Some(4_000)]);
}

pub async fn an_idle_bucket_expires_when_it_has_flowed_out(fixture: Fixture) {
    let limiter = limiter(&fixture, LeakyBucket::new(1, ms(40))).await;
    let bucket = fixture.name();
    let decision = limiter.check(bucket, 2).await.unwrap();
    let Decision::Granted(Granted { reset, .. }) = decision else {
        panic!("denied");
    };
    assert_eq!(reset, ms(80));
    // Its clock does not move, so that its level stays the same: only the times to live of the keys
    // pass.
    tokio::time::sleep(reset + Duration::from_millis(5)).await;
    assert!(limiter.check(bucket, 2).await.unwrap().is_granted());
}
