//! A sliding log is a zset of requests scored with their times, as the commands in circulation have it; a member may carry
//! a cost.

use redisson_rate_limiter::SlidingLog;
use tokio::task::JoinSet;

use crate::keys::{self, assert_lives_for, grants, member};
use crate::stage::{HOUR, NAME, Stage, denied, ms, passed};

async fn add(stage: &mut Stage, score: &str, member: &[u8]) {
    let command = [b"ZADD", NAME.as_bytes(), score.as_bytes(), member];
    stage.run_bytes(&command).await;
}

#[tokio::test]
async fn a_request_is_a_member_with_16_random_bytes_and_its_cost_scored_with_its_time() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(SlidingLog::new(10, HOUR)).await;
    assert!(passed(&limiter, 3).await);
    stage.at(2_000);
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 1).await);
    let members = keys::members(&mut stage.raw, NAME).await;
    let told: Vec<_> = { members.iter() }
        .map(|m| (m.score, m.random.len(), m.permits))
        .collect();
    assert_eq!(told, [(1_000, 16, 3), (2_000, 16, 1)]);
    assert_ne!(members[0].random, members[1].random);
    assert_lives_for(&mut stage.raw, NAME, 3_600_000, since).await;
    assert_eq!(keys::names(&mut stage.raw).await, [NAME]);
}

#[tokio::test]
async fn requests_that_share_a_call_are_all_logged() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(SlidingLog::new(150, HOUR)).await;
    let mut asked = JoinSet::new();
    for cost in 1..=100 {
        let limiter = limiter.clone();
        asked
            .spawn(async move { u32::from(passed(&limiter, 1 + cost % 2).await) * (1 + cost % 2) });
    }
    let taken: u32 = asked.join_all().await.into_iter().sum();
    let logged = grants(&mut stage.raw, NAME).await;
    assert!(logged.len() < 100, "{}", logged.len());
    assert_eq!(logged.iter().map(|(_, cost)| cost).sum::<u32>(), taken);
    assert!((149..=150).contains(&taken), "{taken}");
}

#[tokio::test]
async fn a_grant_drops_what_is_over_and_a_denial_writes_nothing() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(SlidingLog::new(3, ms(60_000))).await;
    for at in [100_000, 110_000, 120_000] {
        stage.at(at);
        assert!(passed(&limiter, 1).await);
    }
    stage.at(170_000);
    let before = stage.everything().await;
    assert_eq!(denied(&limiter, 3).await, (2, 10_000));
    assert_eq!(stage.everything().await, before);
    assert!(passed(&limiter, 1).await);
    let logged = grants(&mut stage.raw, NAME).await;
    assert_eq!(logged, [(120_000, 1), (170_000, 1)]);
}

#[tokio::test]
async fn a_peers_log_is_taken_over_each_id_counting_1() {
    let mut stage = Stage::set().await;
    // The last two begin with what could be a length, and are as long as that says; the one before carries no cost.
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
        add(&mut stage, &(place + 1).to_string(), id).await;
    }
    let limiter = stage.by(SlidingLog::new(10, HOUR)).await;
    assert_eq!(denied(&limiter, 5).await, (4, 3_600_000 - 999));
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 4).await);
    assert_eq!(denied(&limiter, 7).await, (0, 3_600_000));
    assert_lives_for(&mut stage.raw, NAME, 3_600_000, since).await;
}

#[tokio::test]
async fn of_a_log_fuller_than_the_limit_the_retry_is_told_by_what_may_stay() {
    let mut stage = Stage::set().await;
    for at in 1..=50 {
        add(&mut stage, &at.to_string(), at.to_string().as_bytes()).await;
    }
    let limiter = stage.by(SlidingLog::new(10, HOUR)).await;
    for cost in 1..=10_u32 {
        // As many as 10 - cost may stay.
        let told = denied(&limiter, cost).await;
        assert_eq!(
            told,
            (0, 3_600_000 - 1_000 + u128::from(40 + cost)),
            "{cost}"
        );
    }
}

#[tokio::test]
async fn a_score_with_a_fraction_is_over_when_all_of_it_is() {
    let mut stage = Stage::set().await;
    add(&mut stage, "1000.25", b"id").await;
    let limiter = stage.by(SlidingLog::new(1, ms(60_000))).await;
    assert_eq!(denied(&limiter, 1).await, (0, 60_001));
    stage.at(61_000);
    assert_eq!(denied(&limiter, 1).await, (0, 1));
    stage.at(61_001);
    assert!(passed(&limiter, 1).await);
}

#[tokio::test]
async fn a_key_that_is_no_log_is_told_and_left() {
    for score in ["inf", "1e17"] {
        let mut stage = Stage::set().await;
        add(&mut stage, score, b"id").await;
        let limiter = stage.by(SlidingLog::new(5, HOUR)).await;
        stage.assert_is_bad_for(&limiter, score).await;
    }
    let mut stage = Stage::set().await;
    stage.run(&["SET", NAME, "5"]).await;
    let limiter = stage.by(SlidingLog::new(5, HOUR)).await;
    stage.assert_is_bad_for(&limiter, "a string").await;
}
