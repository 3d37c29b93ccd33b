//! A fixed window is a counter that lives as long as its window, as in common scripts.

use redisson_rate_limiter::{FixedWindow, Limiter};

use crate::fixture::{Fixture, HOUR, NAME, SECOND, denied, passed};
use crate::keys::{self, assert_lives_for};

#[tokio::test]
async fn the_count_is_a_string_whose_time_to_live_only_the_first_request_sets() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(FixedWindow::new(5, HOUR)).await;
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_eq!(fixture.text(NAME).await.as_deref(), Some("1"));
    assert_lives_for(&mut fixture.raw, NAME, 3_600_000, since).await;
    let expires = fixture.expires(NAME).await;
    assert!(passed(&limiter, 2).await);
    assert_eq!(fixture.text(NAME).await.as_deref(), Some("3"));
    assert_eq!(fixture.expires(NAME).await, expires);
    assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
}

#[tokio::test]
async fn what_is_denied_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(FixedWindow::new(5, HOUR)).await;
    assert!(passed(&limiter, 3).await);
    let before = fixture.everything().await;
    assert_eq!(denied(&limiter, 3).await.0, 2);
    limiter.check(NAME, 6).await.unwrap_err();
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_peers_counter_goes_on_counting_and_ends_when_it_says() {
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", NAME, "99", "PX", "50000"]).await;
    let expires = fixture.expires(NAME).await;
    let limiter = fixture.by(FixedWindow::new(100, HOUR)).await;
    assert!(passed(&limiter, 1).await);
    let (remaining, retry_after) = denied(&limiter, 1).await;
    assert_eq!(remaining, 0);
    assert!(retry_after <= 50_000, "{retry_after}");
    assert_eq!(fixture.text(NAME).await.as_deref(), Some("100"));
    assert_eq!(fixture.expires(NAME).await, expires);
}

#[tokio::test]
async fn a_counter_without_a_time_to_live_gets_one_granted_or_denied() {
    for (count, is_granted, after) in [("4", true, "5"), ("5", false, "5"), ("-2", true, "-1")] {
        let mut fixture = Fixture::start().await;
        fixture.run(&["SET", NAME, count]).await;
        let limiter = fixture.by(FixedWindow::new(5, HOUR)).await;
        let since = keys::time(&mut fixture.raw).await;
        assert_eq!(passed(&limiter, 1).await, is_granted);
        assert_eq!(fixture.text(NAME).await.as_deref(), Some(after));
        assert_lives_for(&mut fixture.raw, NAME, 3_600_000, since).await;
    }
}

#[tokio::test]
async fn an_aligned_window_lives_until_the_unit_is_over() {
    let mut fixture = Fixture::start().await;
    fixture.at(5 * 3_600_000 + 1_800_000);
    let limiter = fixture
        .by(FixedWindow::new(5, HOUR).aligned_to_clock())
        .await;
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_lives_for(&mut fixture.raw, NAME, 1_800_000, since).await;
}

#[tokio::test]
async fn a_changed_length_writes_no_key_and_no_time_to_live() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(FixedWindow::new(5, HOUR)).await;
    assert!(passed(&limiter, 4).await);
    let expires = fixture.expires(NAME).await;
    limiter.set_policy(FixedWindow::new(5, HOUR / 2)).unwrap();
    assert!(passed(&limiter, 1).await);
    assert_eq!(denied(&limiter, 1).await.0, 0);
    assert_eq!(fixture.expires(NAME).await, expires);
    assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
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
        let mut fixture = Fixture::start().await;
        fixture.run(&["SET", NAME, bad]).await;
        let limiter = fixture.by(FixedWindow::new(5, SECOND)).await;
        fixture.assert_is_bad_for(&limiter, bad).await;
    }
    let mut fixture = Fixture::start().await;
    fixture.run(&["HSET", NAME, "count", "1"]).await;
    let limiter = fixture.by(FixedWindow::new(5, SECOND)).await;
    fixture.assert_is_bad_for(&limiter, "a hash").await;
}

/// The key, and so the window, ends by the server's clock.
#[tokio::test]
async fn a_charge_is_given_back_although_the_callers_clock_has_jumped() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(FixedWindow::new(5, HOUR)).await;
    for (then, now) in [(1_000, 11_000), (11_000, 1_000)] {
        fixture.at(then);
        let decision = limiter.check(NAME, 2).await.unwrap();
        fixture.at(now);
        let grant = decision.into_grant().unwrap();
        assert_eq!(limiter.refund(NAME, grant).await.unwrap(), 2);
        assert_eq!(fixture.text(NAME).await.as_deref(), Some("0"));
    }
}
