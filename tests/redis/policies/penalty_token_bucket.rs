//! PenaltyTokenBucket's three strings: what they hold, how long they live, what a peer leaves in
//! them.

use std::time::Instant;

use redis::AsyncCommands;
use redisson_rate_limiter::{Decision, Denied, Granted, PenaltyTokenBucket, PolicyLimiter};

use super::assert_bad_strings_are_refused;
use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::key_expiry::assert_lives_for;
use crate::keys;

const BUCKET: &str = "user:123";
const START: &str = "{user:123}-st";
const LOCK: &str = "{user:123}-lock";

async fn limiter(
    fixture: &Fixture,
    policy: PenaltyTokenBucket,
) -> PolicyLimiter<PenaltyTokenBucket> {
    let client = fixture.client().await;
    client.policy_limiter(policy).unwrap()
}

/// Ten tokens at most, and three with each second: twice the time to fill is 6668 ms.
async fn three_a_second(fixture: &Fixture) -> PolicyLimiter<PenaltyTokenBucket> {
    limiter(
        fixture,
        PenaltyTokenBucket::new(3, SECOND).with_capacity(10),
    )
    .await
}

async fn granted(limiter: &PolicyLimiter<PenaltyTokenBucket>, cost: u32) -> bool {
    limiter.check(BUCKET, cost).await.unwrap().is_granted()
}

async fn assert_holds(fixture: &mut Fixture, tokens: &str, start: &str) {
    assert_eq!(keys::names(&mut fixture.raw).await, [BUCKET, START]);
    let values: (String, String) = fixture.raw.mget(&[BUCKET, START]).await.unwrap();
    assert_eq!((values.0.as_str(), values.1.as_str()), (tokens, start));
}

#[tokio::test]
async fn the_keys_are_the_tokens_left_and_the_last_inflow() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture).await;
    fixture.at(1_700_000_000_123);
    let since = Instant::now();
    assert!(granted(&limiter, 8).await);
    assert_holds(&mut fixture, "2", "1700000000123").await;
    assert_lives_for(&mut fixture, START, 6_668, since).await;
    assert_lives_for(&mut fixture, BUCKET, 6_678, since).await;

    // Within the unit only the tokens are written.
    fixture.run(&["PEXPIRE", START, "5000"]).await;
    fixture.at(1_700_000_001_122);
    let since = Instant::now();
    assert!(granted(&limiter, 1).await);
    assert_holds(&mut fixture, "1", "1700000000123").await;
    assert_lives_for(&mut fixture, BUCKET, 6_678, since).await;
    let left: i64 = fixture.raw.pttl(START).await.unwrap();
    assert!(left <= 5_000);

    fixture.at(1_700_000_002_999);
    let since = Instant::now();
    assert!(granted(&limiter, 2).await);
    assert_holds(&mut fixture, "5", "1700000002123").await;
    assert_lives_for(&mut fixture, START, 6_668, since).await;
    assert_lives_for(&mut fixture, BUCKET, 6_678, since).await;
}

#[tokio::test]
async fn aligned_to_the_clock_the_last_inflow_is_when_the_second_began() {
    let mut fixture = Fixture::start().await;
    let policy = PenaltyTokenBucket::new(3, SECOND)
        .with_capacity(10)
        .aligned_to_clock();
    let limiter = limiter(&fixture, policy).await;
    fixture.at(1_700_000_000_123);
    assert!(granted(&limiter, 1).await);
    assert_holds(&mut fixture, "9", "1700000000000").await;
}

#[tokio::test]
async fn a_small_buckets_keys_live_a_unit() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(
        &fixture,
        PenaltyTokenBucket::new(10, 10 * SECOND).with_capacity(1),
    )
    .await;
    let since = Instant::now();
    assert!(granted(&limiter, 1).await);
    assert_lives_for(&mut fixture, START, 10_000, since).await;
    assert_lives_for(&mut fixture, BUCKET, 10_010, since).await;
}

#[tokio::test]
async fn a_denial_without_a_penalty_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture).await;
    assert!(granted(&limiter, 10).await);
    let before = fixture.everything().await;
    for at in [1_500, 2_500] {
        fixture.at(at);
        assert!(!granted(&limiter, 4).await);
        assert_eq!(fixture.everything().await, before);
    }
}

#[tokio::test]
async fn a_denial_with_a_penalty_writes_the_lock_alone() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture)
        .await
        .with_penalty(ms(1_500))
        .unwrap();
    assert!(granted(&limiter, 10).await);
    let before = fixture.everything().await;
    let since = Instant::now();
    assert!(!granted(&limiter, 1).await);
    assert_lives_for(&mut fixture, LOCK, 1_500, since).await;
    let lock: String = fixture.raw.get_del(LOCK).await.unwrap();
    assert_eq!(lock, "1");
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_lock_denies_whichever_limiter_set_it_and_stays_as_it_is() {
    for penalty in [None, Some(HOUR)] {
        let mut fixture = Fixture::start().await;
        let mut limiter = three_a_second(&fixture).await;
        if let Some(penalty) = penalty {
            limiter = limiter.with_penalty(penalty).unwrap();
        }
        let since = Instant::now();
        fixture.run(&["SET", LOCK, "1", "PX", "30000"]).await;
        let before = fixture.everything().await;
        let Decision::Denied(Denied {
            retry_after,
            limit: 10,
            remaining: 0,
            reset,
            ..
        }) = limiter.check(BUCKET, 1).await.unwrap()
        else {
            panic!("granted");
        };
        assert_eq!(reset, retry_after);
        assert!(retry_after <= ms(30_000));
        assert!(retry_after + since.elapsed() + ms(1) >= ms(30_000));
        assert_eq!(fixture.everything().await, before);
    }
}

#[tokio::test]
async fn a_lock_without_a_time_to_live_stays_so_if_nobody_has_a_penalty() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture).await;
    fixture.run(&["SET", LOCK, "1"]).await;
    let before = fixture.everything().await;
    let Decision::Denied(Denied { retry_after, .. }) = limiter.check(BUCKET, 1).await.unwrap()
    else {
        panic!("granted");
    };
    assert_eq!(retry_after, ms(1));
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn what_a_peer_left_is_taken_over() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture).await;
    fixture.run(&["SET", BUCKET, "2"]).await;
    fixture.run(&["SET", START, "1000"]).await;
    fixture.at(3_200);
    let since = Instant::now();
    let decision = limiter.check(BUCKET, 1).await.unwrap();
    assert!(matches!(
        decision,
        Decision::Granted(Granted { remaining: 7, .. })
    ));
    assert_holds(&mut fixture, "7", "3000").await;
    assert_lives_for(&mut fixture, START, 6_668, since).await;
    assert_lives_for(&mut fixture, BUCKET, 6_678, since).await;
}

#[tokio::test]
async fn if_only_the_tokens_are_lost_the_bucket_is_full() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture).await;
    assert!(granted(&limiter, 10).await);
    for (at, start) in [(1_500, "1000"), (4_500, "4000")] {
        fixture.run(&["DEL", BUCKET]).await;
        fixture.at(at);
        assert!(granted(&limiter, 9).await);
        assert_holds(&mut fixture, "1", start).await;
    }
}

#[tokio::test]
async fn if_the_start_is_lost_the_bucket_is_full() {
    let mut fixture = Fixture::start().await;
    let limiter = three_a_second(&fixture).await;
    assert!(granted(&limiter, 10).await);
    fixture.run(&["DEL", START]).await;
    fixture.at(1_500);
    assert!(granted(&limiter, 9).await);
    assert_holds(&mut fixture, "1", "1500").await;
}

#[tokio::test]
async fn what_is_no_whole_number_or_no_string_is_refused_and_stays() {
    assert_bad_strings_are_refused(BUCKET, START, three_a_second).await;
}
