//! QuotaBucket's hash: what it holds, how long it lives, what a peer leaves in it.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::AsyncCommands;
use redisson_rate_limiter::{Decision, Granted, PolicyLimiter, QuotaBucket};

use super::assert_refused;
use crate::fixture::{Fixture, SECOND};
use crate::key_expiry::assert_lives_for;
use crate::keys;

const BUCKET: &str = "quota:user:123";

fn in_a_minute(capacity: u32, quota: u32) -> QuotaBucket {
    QuotaBucket::new(quota, 60 * SECOND).with_capacity(capacity)
}

async fn limiter(fixture: &Fixture, policy: QuotaBucket) -> PolicyLimiter<QuotaBucket> {
    let client = fixture.client().await;
    client.policy_limiter(policy).unwrap()
}

async fn ask(limiter: &PolicyLimiter<QuotaBucket>, cost: u32) -> Decision {
    limiter.check(BUCKET, cost).await.unwrap()
}

async fn assert_holds(fixture: &mut Fixture, expected: &[(&str, i64)]) {
    assert_eq!(keys::names(&mut fixture.raw).await, [BUCKET]);
    let fields: BTreeMap<String, i64> = fixture.raw.hgetall(BUCKET).await.unwrap();
    let expected = expected.iter().map(|(name, n)| ((*name).to_owned(), *n));
    assert_eq!(fields, expected.collect());
}

#[tokio::test]
async fn the_hash_has_capacity_remain_period_quota_and_timestamp_in_seconds() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&fixture, in_a_minute(100, 30)).await;
    fixture.at(5_999);
    let since = Instant::now();
    assert!(ask(&limiter, 1).await.is_granted());
    assert_holds(
        &mut fixture,
        &[
            ("capacity", 100),
            ("remain", 99),
            ("period", 60),
            ("quota", 30),
            ("timestamp", 5),
        ],
    )
    .await;
    assert_lives_for(&mut fixture, BUCKET, 400_000, since).await;
}

#[tokio::test]
async fn it_lives_for_twice_the_time_that_an_empty_bucket_takes_to_fill() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&fixture, in_a_minute(100, 30)).await;
    // (taken, ms until full)
    for (cost, until_full) in [(30, 60_000), (1, 62_000), (69, 200_000)] {
        let since = Instant::now();
        let decision = ask(&limiter, cost).await;
        let Decision::Granted(Granted { reset, .. }) = decision else {
            panic!("{decision:?}");
        };
        assert_eq!(reset.as_millis(), until_full);
        assert_lives_for(&mut fixture, BUCKET, 400_000, since).await;
    }
}

#[tokio::test]
async fn a_denial_writes_what_came_in_and_the_numbers_it_was_asked_by() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&fixture, in_a_minute(10, 10)).await;
    assert!(ask(&limiter, 10).await.is_granted());
    fixture.at(14_000);
    limiter.set_policy(in_a_minute(20, 10)).unwrap();
    let since = Instant::now();
    assert!(!ask(&limiter, 5).await.is_granted());
    assert_holds(
        &mut fixture,
        &[
            ("capacity", 20),
            ("remain", 2),
            ("period", 60),
            ("quota", 10),
            ("timestamp", 13),
        ],
    )
    .await;
    assert_lives_for(&mut fixture, BUCKET, 240_000, since).await;
}

#[tokio::test]
async fn the_rest_of_a_second_is_kept_while_there_is_one() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&fixture, in_a_minute(7, 7)).await;
    assert!(ask(&limiter, 7).await.is_granted());
    let numbers = [("capacity", 7), ("period", 60), ("quota", 7)];
    // A token takes 8 4/7 s.
    for (at, left, timestamp, fraction) in [(10_000, 0, 9, 4), (20_000, 0, 18, 1)] {
        fixture.at(at);
        assert!(ask(&limiter, 1).await.is_granted());
        let mut fields = numbers.to_vec();
        fields.extend([
            ("remain", left),
            ("timestamp", timestamp),
            ("timestamp_fraction", fraction),
        ]);
        assert_holds(&mut fixture, &fields).await;
    }
    fixture.at(61_000); // seven tokens take 60 s
    assert!(ask(&limiter, 1).await.is_granted());
    let mut fields = numbers.to_vec();
    fields.extend([("remain", 4), ("timestamp", 61)]);
    assert_holds(&mut fixture, &fields).await;
}

#[tokio::test]
async fn a_peers_hash_is_taken_over_and_gets_a_time_to_live() {
    let mut fixture = Fixture::start().await;
    fixture
        .run(&[
            "HSET",
            BUCKET,
            "capacity",
            "10",
            "remain",
            "4",
            "period",
            "60",
            "quota",
            "10",
            "timestamp",
            "1",
        ])
        .await;
    let limiter = limiter(&fixture, in_a_minute(10, 10)).await;
    fixture.at(15_000);
    let since = Instant::now();
    let decision = ask(&limiter, 1).await;
    assert!(matches!(
        decision,
        Decision::Granted(Granted { remaining: 5, .. })
    ));
    assert_holds(
        &mut fixture,
        &[
            ("capacity", 10),
            ("remain", 5),
            ("period", 60),
            ("quota", 10),
            ("timestamp", 13),
        ],
    )
    .await;
    assert_lives_for(&mut fixture, BUCKET, 120_000, since).await;
}

#[tokio::test]
async fn if_a_peer_lost_a_field_that_counts_the_bucket_is_full() {
    for field in ["remain", "timestamp"] {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, in_a_minute(10, 10)).await;
        assert!(ask(&limiter, 10).await.is_granted());
        fixture.run(&["HDEL", BUCKET, field]).await;
        assert!(ask(&limiter, 10).await.is_granted());
    }
}

#[tokio::test]
async fn a_timestamp_far_ahead_does_not_count_and_keeps_no_key_for_ever() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&fixture, in_a_minute(10, 10)).await;
    fixture
        .run(&[
            "HSET",
            BUCKET,
            "remain",
            "0",
            "timestamp",
            "9007199254740000",
        ])
        .await;
    let since = Instant::now();
    assert!(ask(&limiter, 10).await.is_granted());
    assert!(!ask(&limiter, 1).await.is_granted());
    assert_lives_for(&mut fixture, BUCKET, 120_000, since).await;
}

#[tokio::test]
async fn fields_that_are_no_numbers_and_keys_that_are_no_hashes_are_refused() {
    for (field, bad) in [
        ("remain", "many"),
        ("remain", ""),
        ("remain", "1e17"),
        ("timestamp", "now"),
        ("timestamp", "nan"),
        ("timestamp_fraction", "half"),
    ] {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, in_a_minute(10, 10)).await;
        assert!(ask(&limiter, 1).await.is_granted());
        fixture.run(&["HSET", BUCKET, field, bad]).await;
        assert_refused(&mut fixture, &limiter, BUCKET, &format!("{field} {bad}")).await;
    }
    for key in [&["SET", BUCKET, "6"], &["RPUSH", BUCKET, "6"]] {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, in_a_minute(10, 10)).await;
        fixture.run(key).await;
        assert_refused(&mut fixture, &limiter, BUCKET, key[0]).await;
    }
}
