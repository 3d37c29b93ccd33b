//! A sliding window is the start of its first period and a counter for each period, as in the
//! library that it comes from.

use redisson_rate_limiter::SlidingWindowCounter;

use crate::fixture::{Fixture, HOUR, denied, ms, passed};
use crate::keys::{self, assert_lives_for};

const START: &str = "{limiter}-st";
const LENGTHS: &str = "{limiter}-periods";

/// 5 in a minute of ten-second periods.
fn policy() -> SlidingWindowCounter {
    SlidingWindowCounter::new(5, ms(60_000)).with_period(ms(10_000))
}

#[tokio::test]
async fn a_counter_is_named_by_its_periods_last_millisecond_after_the_start() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(policy()).await;
    for (at, cost) in [
        (1_000, 1),
        (11_000, 1),
        (11_001, 1),
        (21_000, 1),
        (51_500, 1),
    ] {
        fixture.at(at);
        assert!(passed(&limiter, cost).await);
    }
    assert_eq!(
        keys::names(&mut fixture.raw).await,
        [
            "{limiter}-10999",
            "{limiter}-20999",
            "{limiter}-60999",
            LENGTHS,
            START
        ]
    );
    for (key, text) in [
        (START, "1000"),
        ("{limiter}-10999", "2"),
        ("{limiter}-20999", "2"),
        ("{limiter}-60999", "1"),
    ] {
        assert_eq!(fixture.text(key).await.as_deref(), Some(text), "{key}");
    }
}

#[tokio::test]
async fn start_and_counters_live_for_two_windows_from_a_periods_first_request() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(policy()).await;
    let first = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_lives_for(&mut fixture.raw, START, 120_000, first).await;
    assert_lives_for(&mut fixture.raw, "{limiter}-10999", 120_016, first).await;
    assert_lives_for(&mut fixture.raw, LENGTHS, 120_000, first).await;
    let before = [
        fixture.expires(START).await,
        fixture.expires("{limiter}-10999").await,
    ];
    tokio::time::sleep(ms(2)).await;

    assert!(passed(&limiter, 1).await);
    let after = [
        fixture.expires(START).await,
        fixture.expires("{limiter}-10999").await,
    ];
    assert_eq!(after, before);

    fixture.at(11_001);
    let second = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_lives_for(&mut fixture.raw, START, 120_000, second).await;
    assert_lives_for(&mut fixture.raw, LENGTHS, 120_000, second).await;
    assert_lives_for(&mut fixture.raw, "{limiter}-20999", 120_016, second).await;
    assert_eq!(fixture.expires("{limiter}-10999").await, before[1]);
}

#[tokio::test]
async fn what_is_denied_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(policy()).await;
    assert!(passed(&limiter, 5).await);
    for at in [1_000, 11_001, 61_000] {
        fixture.at(at);
        let before = fixture.everything().await;
        assert_eq!(denied(&limiter, 1).await.0, 0);
        assert_eq!(fixture.everything().await, before);
    }
}

#[tokio::test]
async fn the_first_period_is_aligned_to_the_unit_of_the_clock() {
    let mut fixture = Fixture::start().await;
    fixture.at(10 * 60_000 + 7_000);
    let limiter = fixture.by(policy().aligned_to_clock()).await;
    assert!(passed(&limiter, 1).await);
    assert_eq!(
        keys::names(&mut fixture.raw).await,
        ["{limiter}-609999", LENGTHS, START]
    );
    assert_eq!(fixture.text(START).await.as_deref(), Some("600000"));
}

#[tokio::test]
async fn a_peers_periods_are_taken_over() {
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", START, "1000"]).await;
    fixture.run(&["SET", "{limiter}-10999", "1"]).await; // gone from the window
    fixture.run(&["SET", "{limiter}-20999", "2"]).await;
    fixture.run(&["SET", "{limiter}-30998", "9"]).await; // belongs to no period
    fixture
        .run(&["SET", "{limiter}-70999", "1", "PX", "100000"])
        .await;
    let expires = fixture.expires("{limiter}-70999").await;
    fixture.at(70_000);
    let limiter = fixture.by(policy()).await;
    assert_eq!(denied(&limiter, 3).await, (2, 1_001));
    assert!(passed(&limiter, 2).await);
    assert_eq!(fixture.text("{limiter}-70999").await.as_deref(), Some("3"));
    assert_eq!(fixture.expires("{limiter}-70999").await, expires);
}

#[tokio::test]
async fn if_the_start_is_lost_the_window_begins_with_the_next_request() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.by(policy()).await;
    assert!(passed(&limiter, 5).await);
    fixture.run(&["DEL", START]).await;
    fixture.at(2_000);
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 5).await);
    assert_eq!(fixture.text(START).await.as_deref(), Some("2000"));
    assert_lives_for(&mut fixture.raw, START, 120_000, since).await;
    assert_lives_for(&mut fixture.raw, "{limiter}-11999", 120_016, since).await;
}

#[tokio::test]
async fn a_start_that_lies_ahead_is_in_its_first_period() {
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", START, "5000"]).await;
    let limiter = fixture.by(policy()).await;
    assert!(passed(&limiter, 5).await);
    assert_eq!(fixture.text("{limiter}-14999").await.as_deref(), Some("5"));
    assert_eq!(denied(&limiter, 1).await, (0, 64_001));
}

#[tokio::test]
async fn a_window_of_five_hundred_periods_is_one_call() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(SlidingWindowCounter::new(1_000, ms(60_000)).with_period(ms(120)))
        .await;
    limiter
        .set_policy(SlidingWindowCounter::new(1_000, ms(61_000)).with_period(ms(122)))
        .unwrap(); // also reads the counters of the earlier periods
    for at in (0..60_000).step_by(600) {
        fixture.at(1_000 + at);
        assert!(passed(&limiter, 10).await);
    }
    assert_eq!(denied(&limiter, 1).await.0, 0);
    assert_eq!(keys::names(&mut fixture.raw).await.len(), 102);
}

#[tokio::test]
async fn of_shorter_periods_the_newest_thousand_count() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(SlidingWindowCounter::new(9, ms(500)).with_period(ms(1)))
        .await;
    assert!(passed(&limiter, 4).await);
    limiter
        .set_policy(SlidingWindowCounter::new(9, 24 * HOUR).with_period(HOUR))
        .unwrap();
    fixture.at(2_000); // its counter is the thousandth
    assert!(passed(&limiter, 3).await);
    assert_eq!(denied(&limiter, 3).await.0, 2);
    fixture.at(90_000); // and stays so
    assert_eq!(denied(&limiter, 3).await.0, 2);
    assert_eq!(
        fixture.text("{limiter}-3600999").await.as_deref(),
        Some("3")
    );
}

#[tokio::test]
async fn keys_that_are_no_start_or_no_counter_are_an_error_and_stay() {
    for (key, bad) in [
        (START, "soon"),
        (START, ""),
        (START, "1.5"),
        (START, "1e17"),
        (START, "9007199254740991"),
        (START, "nan"),
        ("{limiter}-10999", "many"),
        ("{limiter}-10999", ""),
        ("{limiter}-10999", "1.5"),
        ("{limiter}-20999", "1e17"),
        (LENGTHS, ""),
        (LENGTHS, "60000 10000"),
        (LENGTHS, "sixteen letters!"),
        (LENGTHS, "twenty-four letters here"),
        (LENGTHS, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    ] {
        let mut fixture = Fixture::start().await;
        fixture.run(&["SET", START, "1000"]).await;
        fixture.run(&["SET", key, bad]).await;
        fixture.at(15_000);
        let limiter = fixture.by(policy()).await;
        fixture
            .assert_is_bad_for(&limiter, &format!("{key} {bad}"))
            .await;
    }
    for key in [START, LENGTHS, "{limiter}-10999", "{limiter}-20999"] {
        let mut fixture = Fixture::start().await;
        fixture.run(&["SET", START, "1000"]).await;
        fixture.run(&["DEL", key]).await;
        fixture.run(&["RPUSH", key, "1000"]).await;
        fixture.at(15_000);
        let limiter = fixture.by(policy()).await;
        fixture.assert_is_bad_for(&limiter, key).await;
    }
}
