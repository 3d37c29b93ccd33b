//! A fixed window is a counter that lives as long as its window, as in common scripts.

use redisson_rate_limiter::FixedWindow;

use crate::keys::{self, assert_lives_for};
use crate::stage::{HOUR, NAME, SECOND, Stage, denied, passed};

const LENGTH: &str = "{limiter}-window";

#[tokio::test]
async fn the_count_is_a_string_whose_time_to_live_only_the_first_request_sets() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(FixedWindow::new(5, HOUR)).await;
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_eq!(stage.text(NAME).await.as_deref(), Some("1"));
    assert_lives_for(&mut stage.raw, NAME, 3_600_000, since).await;
    let expires = stage.expires(NAME).await;
    assert!(passed(&limiter, 2).await);
    assert_eq!(stage.text(NAME).await.as_deref(), Some("3"));
    assert_eq!(stage.expires(NAME).await, expires);
    assert_eq!(keys::names(&mut stage.raw).await, [NAME]);
}

#[tokio::test]
async fn what_is_denied_writes_nothing() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(FixedWindow::new(5, HOUR)).await;
    assert!(passed(&limiter, 3).await);
    let before = stage.everything().await;
    assert_eq!(denied(&limiter, 3).await.0, 2);
    limiter.check(NAME, 6).await.unwrap_err();
    assert_eq!(stage.everything().await, before);
}

#[tokio::test]
async fn a_peers_counter_goes_on_counting_and_ends_when_it_says() {
    let mut stage = Stage::set().await;
    stage.run(&["SET", NAME, "99", "PX", "50000"]).await;
    let expires = stage.expires(NAME).await;
    let limiter = stage.by(FixedWindow::new(100, HOUR)).await;
    assert!(passed(&limiter, 1).await);
    let (remaining, retry_after) = denied(&limiter, 1).await;
    assert_eq!(remaining, 0);
    assert!(retry_after <= 50_000, "{retry_after}");
    assert_eq!(stage.text(NAME).await.as_deref(), Some("100"));
    assert_eq!(stage.expires(NAME).await, expires);
}

#[tokio::test]
async fn a_counter_without_a_time_to_live_gets_one_granted_or_denied() {
    for (count, is_granted, after) in [("4", true, "5"), ("5", false, "5"), ("-2", true, "-1")] {
        let mut stage = Stage::set().await;
        stage.run(&["SET", NAME, count]).await;
        let limiter = stage.by(FixedWindow::new(5, HOUR)).await;
        let since = keys::time(&mut stage.raw).await;
        assert_eq!(passed(&limiter, 1).await, is_granted);
        assert_eq!(stage.text(NAME).await.as_deref(), Some(after));
        assert_lives_for(&mut stage.raw, NAME, 3_600_000, since).await;
    }
}

#[tokio::test]
async fn a_natural_window_lives_until_the_unit_is_over() {
    let mut stage = Stage::set().await;
    stage.at(5 * 3_600_000 + 1_800_000);
    let limiter = stage
        .by(FixedWindow::new(5, HOUR).with_natural_start())
        .await;
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_lives_for(&mut stage.raw, NAME, 1_800_000, since).await;
}

#[tokio::test]
async fn after_a_change_a_sibling_key_has_the_windows_length_so_that_it_is_moved_once() {
    let mut stage = Stage::set().await;
    let limiters = [
        stage.by(FixedWindow::new(5, HOUR)).await,
        stage.by(FixedWindow::new(5, HOUR)).await,
    ];
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiters[0], 1).await);
    for limiter in &limiters {
        limiter.set_policy(FixedWindow::new(5, 2 * HOUR)).unwrap();
        for _ in 0..2 {
            assert!(passed(limiter, 1).await);
            assert_eq!(stage.text(LENGTH).await.as_deref(), Some("7200000"));
            assert_lives_for(&mut stage.raw, NAME, 7_200_000, since).await;
            assert_lives_for(&mut stage.raw, LENGTH, 7_200_000, since).await;
        }
    }
    assert_eq!(stage.text(NAME).await.as_deref(), Some("5"));
    assert_eq!(keys::names(&mut stage.raw).await, [NAME, LENGTH]);
}

#[tokio::test]
async fn a_denial_moves_a_window_whose_length_was_changed_too() {
    let mut stage = Stage::set().await;
    let limiter = stage.by(FixedWindow::new(5, HOUR)).await;
    let since = keys::time(&mut stage.raw).await;
    assert!(passed(&limiter, 5).await);
    limiter.set_policy(FixedWindow::new(5, HOUR / 2)).unwrap();
    assert_eq!(denied(&limiter, 1).await.0, 0);
    assert_lives_for(&mut stage.raw, NAME, 1_800_000, since).await;
}

#[tokio::test]
async fn a_key_that_is_no_counter_is_an_error_and_stays() {
    for bad in [
        "many",
        "",
        "1.5",
        "1e17",
        "99999999999999999999",
        "nan",
        "-inf",
    ] {
        let mut stage = Stage::set().await;
        stage.run(&["SET", NAME, bad]).await;
        let limiter = stage.by(FixedWindow::new(5, SECOND)).await;
        stage.assert_is_bad_for(&limiter, bad).await;
    }
    let mut stage = Stage::set().await;
    stage.run(&["HSET", NAME, "count", "1"]).await;
    let limiter = stage.by(FixedWindow::new(5, SECOND)).await;
    stage.assert_is_bad_for(&limiter, "a hash").await;
}
