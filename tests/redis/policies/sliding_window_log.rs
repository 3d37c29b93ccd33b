//! A sliding log is a zset with a member for each unit of cost, scored with its time, as the
//! commands in circulation have it.

use redis::AsyncCommands;
use redisson_rate_limiter::SlidingWindowLog;

use crate::fixture::{Fixture, HOUR, NAME, denied, ms, passed};
use crate::keys::{self, assert_lives_for, member};

async fn add(fixture: &mut Fixture, score: &str, member: &[u8]) {
    let command = [b"ZADD", NAME.as_bytes(), score.as_bytes(), member];
    fixture.run_bytes(&command).await;
}

/// Scores and members of the log.
async fn logged(fixture: &mut Fixture) -> Vec<(Vec<u8>, i64)> {
    fixture.raw.zrange_withscores(NAME, 0, -1).await.unwrap()
}

#[tokio::test]
async fn a_unit_of_cost_is_a_member_with_the_call_id_and_its_number() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(SlidingWindowLog::new(10, HOUR)).await;
    assert!(passed(&limiter, 3).await);
    fixture.at(2_000);
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    let members = logged(&mut fixture).await;
    let read = members.iter().map(|(member, score)| {
        let (random, number) = member.split_at(16);
        (*score, random == &members[0].0[..16], number)
    });
    let expected: [(i64, bool, &[u8]); 4] = [
        (1_000, true, &[0, 0, 0, 1]),
        (1_000, true, &[0, 0, 0, 2]),
        (1_000, true, &[0, 0, 0, 3]),
        (2_000, false, &[0, 0, 0, 1]),
    ];
    assert_eq!(read.collect::<Vec<_>>(), expected);
    assert_lives_for(&mut fixture.raw, NAME, 2 * 3_600_000, since).await;
    assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
}

#[tokio::test]
async fn a_grant_removes_expired_members_and_a_denial_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(SlidingWindowLog::new(3, ms(60_000))).await;
    for at in [100_000, 110_000, 120_000] {
        fixture.at(at);
        assert!(passed(&limiter, 1).await);
    }
    fixture.at(170_000);
    let before = fixture.everything().await;
    assert_eq!(denied(&limiter, 3).await, (2, 10_000));
    assert_eq!(fixture.everything().await, before);
    assert!(passed(&limiter, 1).await);
    let logged = logged(&mut fixture).await;
    let scores: Vec<i64> = logged.iter().map(|(_, score)| *score).collect();
    assert_eq!(scores, [120_000, 170_000]);
}

#[tokio::test]
async fn a_peers_log_is_taken_over_each_id_counting_1() {
    let mut fixture = Fixture::start().await;
    // The last two begin with what could be a length, and are as long as that says; the one before
    // carries no cost.
    let ids: [&[u8]; 6] = [
        b"1000",
        b"",
        b"7f1c2a34-94f0-4a1e-8a5e-0c1d2e3f4a5b",
        &member(&[9; 16], 0),
        b"0f1c2a34-94f0-4a1e-8a5e-0c1d2e3f4a5b:1700000000000000",
        &[11, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    ];
    assert_eq!(
        (ids[4].len(), ids[5].len()),
        (5 + usize::from(b'0'), 5 + 11)
    );
    for (place, id) in ids.into_iter().enumerate() {
        add(&mut fixture, &(place + 1).to_string(), id).await;
    }
    let limiter = fixture.by(SlidingWindowLog::new(10, HOUR)).await;
    assert_eq!(denied(&limiter, 5).await, (4, 3_600_000 - 999));
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 4).await);
    assert_eq!(denied(&limiter, 7).await, (0, 3_600_000));
    assert_lives_for(&mut fixture.raw, NAME, 2 * 3_600_000, since).await;
}

#[tokio::test]
async fn the_retry_time_of_an_overfull_log_follows_from_what_may_stay() {
    let mut fixture = Fixture::start().await;
    for at in 1..=50 {
        add(&mut fixture, &at.to_string(), at.to_string().as_bytes()).await;
    }
    let limiter = fixture.by(SlidingWindowLog::new(10, HOUR)).await;
    for cost in 1..=10_u32 {
        // At most 10 - cost members may stay.
        let denial = denied(&limiter, cost).await;
        assert_eq!(
            denial,
            (0, 3_600_000 - 1_000 + u128::from(40 + cost)),
            "{cost}"
        );
    }
}

#[tokio::test]
async fn a_score_with_a_fraction_expires_when_the_fraction_has_passed() {
    let mut fixture = Fixture::start().await;
    add(&mut fixture, "1000.25", b"id").await;
    let limiter = fixture.by(SlidingWindowLog::new(1, ms(60_000))).await;
    assert_eq!(denied(&limiter, 1).await, (0, 60_001));
    fixture.at(61_000);
    assert_eq!(denied(&limiter, 1).await, (0, 1));
    fixture.at(61_001);
    assert!(passed(&limiter, 1).await);
}

#[tokio::test]
async fn a_key_that_is_no_log_is_an_error_and_stays() {
    for score in ["inf", "1e17"] {
        let mut fixture = Fixture::start().await;
        add(&mut fixture, score, b"id").await;
        let limiter = fixture.by(SlidingWindowLog::new(5, HOUR)).await;
        fixture.assert_is_bad_for(&limiter, score).await;
    }
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", NAME, "5"]).await;
    let limiter = fixture.by(SlidingWindowLog::new(5, HOUR)).await;
    fixture.assert_is_bad_for(&limiter, "a string").await;
}
