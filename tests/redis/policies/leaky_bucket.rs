//! LeakyBucket's two strings: what they hold, how long they live, what a peer leaves in them.

use std::time::Instant;

use redis::AsyncCommands;
use redisson_rate_limiter::{Decision, Denied, Granted, LeakyBucket, PolicyLimiter};

use super::assert_bad_strings_are_refused;
use crate::fixture::{Fixture, SECOND, ms};
use crate::key_expiry::assert_lives_for;
use crate::keys;

const BUCKET: &str = "orders:api";
const START: &str = "{orders:api}-st";

async fn limiter(fixture: &Fixture, policy: LeakyBucket) -> PolicyLimiter<LeakyBucket> {
    let client = fixture.client().await;
    client.policy_limiter(policy).unwrap()
}

/// Two in ten seconds, and five may wait: both keys live 40 s.
async fn two_in_ten_seconds(fixture: &Fixture) -> PolicyLimiter<LeakyBucket> {
    limiter(fixture, LeakyBucket::new(2, 10 * SECOND).with_capacity(5)).await
}

/// The wait of a granted request in ms.
async fn wait(limiter: &PolicyLimiter<LeakyBucket>, cost: u32) -> Option<u128> {
    let decision = limiter.check_without_waiting(BUCKET, cost);
    match decision.await.unwrap() {
        Decision::Granted(Granted { delay, .. }) => Some(delay.as_millis()),
        Decision::Denied(_) => None,
    }
}

async fn assert_holds(fixture: &mut Fixture, value: &str, start: &str) {
    assert_eq!(keys::names(&mut fixture.raw).await, [BUCKET, START]);
    let values: (String, String) = fixture.raw.mget(&[BUCKET, START]).await.unwrap();
    assert_eq!((values.0.as_str(), values.1.as_str()), (value, start));
}

#[tokio::test]
async fn the_keys_are_the_requests_in_the_bucket_and_the_last_outflow() {
    let mut fixture = Fixture::start().await;
    let limiter = two_in_ten_seconds(&fixture).await;
    let first = Instant::now();
    fixture.at(1_700_000_000_123);
    assert_eq!(wait(&limiter, 1).await, Some(0));
    assert_holds(&mut fixture, "1", "1700000000123").await;
    assert_lives_for(&mut fixture, BUCKET, 40_000, first).await;
    assert_lives_for(&mut fixture, START, 40_000, first).await;

    // Within the unit only the requests are written, and what is left of the time's key is extended
    // if it is too short.
    fixture.run(&["PEXPIRE", START, "5000"]).await;
    let since = Instant::now();
    fixture.at(1_700_000_001_123);
    assert_eq!(wait(&limiter, 4).await, Some(19_000));
    assert_holds(&mut fixture, "5", "1700000000123").await;
    assert_lives_for(&mut fixture, BUCKET, 40_000, since).await;
    // The bucket is empty after three units.
    assert_lives_for(&mut fixture, START, 29_000, since).await;

    let since = Instant::now();
    fixture.at(1_700_000_010_123);
    assert_eq!(wait(&limiter, 1).await, Some(10_000));
    assert_holds(&mut fixture, "4", "1700000010123").await;
    assert_lives_for(&mut fixture, BUCKET, 40_000, since).await;
    assert_lives_for(&mut fixture, START, 40_000, since).await;
}

#[tokio::test]
async fn aligned_to_the_clock_the_last_outflow_is_when_the_second_began() {
    let mut fixture = Fixture::start().await;
    let policy = LeakyBucket::new(2, 10 * SECOND)
        .with_capacity(5)
        .aligned_to_clock();
    let limiter = limiter(&fixture, policy).await;
    fixture.at(1_700_000_000_123);
    assert_eq!(wait(&limiter, 3).await, Some(0));
    assert_holds(&mut fixture, "3", "1700000000000").await;
    assert_eq!(wait(&limiter, 1).await, Some(9_877));
}

#[tokio::test]
async fn a_denial_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = two_in_ten_seconds(&fixture).await;
    assert_eq!(wait(&limiter, 7).await, Some(0));
    let before = fixture.everything().await;
    for at in [1_500, 12_000] {
        fixture.at(at);
        assert_eq!(wait(&limiter, 3).await, None);
        assert_eq!(fixture.everything().await, before);
    }
}

#[tokio::test]
async fn what_a_peer_left_is_taken_over() {
    let mut fixture = Fixture::start().await;
    let limiter = two_in_ten_seconds(&fixture).await;
    fixture.run(&["SET", BUCKET, "6"]).await;
    fixture.run(&["SET", START, "1000"]).await;
    fixture.at(12_000); // one unit, and 1 s
    let since = Instant::now();
    assert_eq!(wait(&limiter, 1).await, Some(19_000));
    assert_holds(&mut fixture, "5", "11000").await;
    for key in [BUCKET, START] {
        assert_lives_for(&mut fixture, key, 40_000, since).await;
    }
}

#[tokio::test]
async fn if_one_key_is_lost_the_bucket_is_empty() {
    let mut fixture = Fixture::start().await;
    let limiter = two_in_ten_seconds(&fixture).await;
    for lost in [BUCKET, START] {
        assert_eq!(wait(&limiter, 6).await, Some(0));
        fixture.run(&["DEL", lost]).await;
        assert_eq!(wait(&limiter, 2).await, Some(0));
        assert_holds(&mut fixture, "2", "1000").await;
        fixture.run(&["DEL", BUCKET, START]).await;
    }
}

#[tokio::test]
async fn a_negative_number_of_requests_counts_as_none() {
    let mut fixture = Fixture::start().await;
    let limiter = two_in_ten_seconds(&fixture).await;
    fixture.run(&["SET", BUCKET, "-5"]).await;
    fixture.run(&["SET", START, "1000"]).await;
    assert_eq!(wait(&limiter, 7).await, Some(30_000));
    assert_eq!(wait(&limiter, 1).await, None);
}

#[tokio::test]
async fn more_in_the_bucket_than_fits_has_to_flow_out_first() {
    let fixture = Fixture::start().await;
    let limiter = limiter(&fixture, LeakyBucket::new(1, ms(100))).await;
    let mut fixture = fixture;
    fixture.run(&["SET", BUCKET, "9007199254740991"]).await;
    fixture.run(&["SET", START, "1000"]).await;
    let Decision::Denied(Denied { retry_after, .. }) = limiter.check(BUCKET, 1).await.unwrap()
    else {
        panic!("granted");
    };
    assert_eq!(retry_after, ms(1 << 52));
}

#[tokio::test]
async fn what_is_no_whole_number_or_no_string_is_refused_and_stays() {
    assert_bad_strings_are_refused(BUCKET, START, two_in_ten_seconds).await;
}
