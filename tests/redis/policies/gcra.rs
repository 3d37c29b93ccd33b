//! The theoretical arrival time is a string in microseconds, which expires when it comes.

use redisson_rate_limiter::Gcra;

use crate::fixture::{Fixture, NAME, denied, passed};
use crate::keys::{self, assert_lives_for};

#[tokio::test]
async fn the_arrival_time_is_a_string_that_expires_when_it_comes() {
    let mut fixture = Fixture::start().await;
    fixture.at(1_000_000);
    let limiter = fixture.by(Gcra::per_minute(1).with_burst(5)).await;
    for (taken, arrival) in [(1, "1060000000"), (3, "1240000000")] {
        let since = keys::time(&mut fixture.raw).await;
        assert!(passed(&limiter, taken).await);
        assert_eq!(fixture.text(NAME).await.as_deref(), Some(arrival));
        let lives = arrival.parse::<i64>().unwrap() / 1_000 - 1_000_000;
        assert_lives_for(&mut fixture.raw, NAME, lives, since).await;
    }
    assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
}

#[tokio::test]
async fn what_is_denied_writes_nothing() {
    let mut fixture = Fixture::start().await;
    fixture.at(1_000_000);
    let limiter = fixture.by(Gcra::per_minute(1).with_burst(5)).await;
    assert!(passed(&limiter, 3).await);
    let before = fixture.everything().await;
    assert_eq!(denied(&limiter, 3).await.0, 2);
    limiter.check(NAME, 6).await.unwrap_err();
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_time_to_live_is_rounded_up_to_whole_milliseconds() {
    let mut fixture = Fixture::start().await;
    fixture.at(1_000_000);
    let limiter = fixture.by(Gcra::per_minute(7)).await;
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_eq!(fixture.text(NAME).await.as_deref(), Some("1008571429"));
    assert_lives_for(&mut fixture.raw, NAME, 8_572, since).await;
}

#[tokio::test]
async fn a_key_that_is_no_time_is_an_error_and_stays() {
    for bad in ["soon", "", "1.5", "1e17", "99999999999999999999", "nan"] {
        let mut fixture = Fixture::start().await;
        fixture.run(&["SET", NAME, bad]).await;
        let limiter = fixture.by(Gcra::per_second(5)).await;
        fixture.assert_is_bad_for(&limiter, bad).await;
    }
    let mut fixture = Fixture::start().await;
    fixture.run(&["HSET", NAME, "tat", "1"]).await;
    let limiter = fixture.by(Gcra::per_second(5)).await;
    fixture.assert_is_bad_for(&limiter, "a hash").await;
}
