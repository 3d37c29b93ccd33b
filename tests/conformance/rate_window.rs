//! No window of the interval's length holds more than the rate, and expired permits are available
//! again.

use std::time::Duration;

use redisson_rate_limiter::Rate;

use crate::fixture::{Fixture, SECOND, granted, ms};

pub async fn a_permit_is_back_exactly_an_interval_after_it_was_taken(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(2, SECOND))
        .await
        .unwrap();
    fixture.at(1_000);
    assert!(limiter.try_acquire(2).await.unwrap());
    fixture.at(1_999);
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    assert!(!limiter.try_acquire(1).await.unwrap());
    fixture.at(2_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
    assert!(limiter.try_acquire(2).await.unwrap());
}

pub async fn of_two_in_five_seconds_taken_at_0_4_and_5_05_the_next_is_denied(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(2, ms(5_000)))
        .await
        .unwrap();
    fixture.at(0);
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.at(4_000);
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.at(5_050);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}

pub async fn ten_in_five_seconds_are_ten_again_six_seconds_after_one_was_taken(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(10, ms(5_000)))
        .await
        .unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    limiter.acquire(1).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    fixture.pass(ms(6_000));
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    limiter.acquire(1).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
}

pub async fn with_no_timeout_five_are_granted_five_denied_and_again_a_second_later(
    fixture: Fixture,
) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(5, SECOND))
        .await
        .unwrap();
    for _ in 0..2 {
        for place in 0..10 {
            let is_granted = limiter
                .try_acquire_timeout(1, Duration::ZERO)
                .await
                .unwrap();
            assert_eq!(is_granted, place < 5, "request {place}");
        }
        fixture.pass(SECOND);
    }
}

pub async fn in_each_of_three_rounds_ten_are_granted_and_ten_denied(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    assert!(
        limiter
            .try_set_rate(Rate::overall(10, SECOND))
            .await
            .unwrap()
    );
    assert!(
        !limiter
            .try_set_rate(Rate::overall(20, SECOND))
            .await
            .unwrap()
    );
    for _ in 0..3 {
        assert_eq!(granted(&limiter, 10).await, 10);
        assert_eq!(granted(&limiter, 10).await, 0);
        fixture.pass(SECOND);
    }
}

pub async fn no_second_holds_more_than_eighteen_of_a_thousand_grants_to_8_clients(
    fixture: Fixture,
) {
    let times = take_turns(&fixture, 18, 1_000).await;
    for (first, nineteenth) in times.iter().zip(&times[18..]) {
        assert!(nineteenth - first >= 1_000, "{first} to {nineteenth}");
    }
}

pub async fn each_tenth_grant_to_eight_clients_is_a_second_after_the_tenth_before(
    fixture: Fixture,
) {
    let times = take_turns(&fixture, 10, 200).await;
    for (before, after) in times.iter().zip(&times[10..]) {
        assert!(after - before >= 1_000, "{before} to {after}");
    }
    // No request was denied although permits were available: requests come every 13 ms.
    assert!(times[199] - times[0] <= 19 * (1_000 + 10 * 13));
}

/// When permits are granted to eight clients that ask in turn, one every 13 ms.
async fn take_turns(fixture: &Fixture, rate: u64, grants: usize) -> Vec<i64> {
    let mut limiters = Vec::new();
    for id in 0..8 {
        limiters.push(fixture.limiter_of(&id.to_string()).await);
    }
    limiters[0]
        .try_set_rate(Rate::overall(rate, SECOND))
        .await
        .unwrap();
    let mut times = Vec::with_capacity(grants);
    for turn in 0.. {
        if limiters[turn % 8].try_acquire(1).await.unwrap() {
            times.push(fixture.now());
        }
        if times.len() == grants {
            break;
        }
        fixture.pass(ms(13));
    }
    times
}
