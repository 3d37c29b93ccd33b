//! Releases, which do not name a grant.

use redisson_rate_limiter::{Error, Rate, RateLimiter};

use crate::fixture::{Fixture, SECOND, granted};

async fn ten(fixture: &Fixture) -> RateLimiter {
    let limiter = fixture.limiter().await;
    assert!(
        limiter
            .try_set_rate(Rate::overall(10, SECOND))
            .await
            .unwrap()
    );
    limiter
}

pub async fn what_was_taken_and_released_can_be_taken_at_once(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(3, SECOND))
        .await
        .unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    limiter.release(3).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 3);
    assert_eq!(granted(&limiter, 4).await, 3);
}

pub async fn releasing_more_than_is_in_use_does_not_lift_the_permits_above_the_rate(
    fixture: Fixture,
) {
    let limiter = ten(&fixture).await;
    limiter.release(4).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert!(limiter.try_acquire(3).await.unwrap());
    limiter.release(10).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    limiter.release(u32::MAX).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert_eq!(granted(&limiter, 11).await, 10);
}

pub async fn releasing_0_is_an_error_and_changes_nothing(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(limiter.try_acquire(3).await.unwrap());
    let error = limiter.release(0).await;
    assert!(
        matches!(
            &error,
            Err(Error::InvalidArgument {
                argument: "permits",
                ..
            })
        ),
        "{error:?}"
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
}

pub async fn what_was_released_is_not_there_twice_once_its_window_has_passed(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    assert!(limiter.try_acquire(3).await.unwrap());
    limiter.release(3).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    fixture.at(2_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    assert_eq!(granted(&limiter, 14).await, 10);
}

pub async fn released_permits_come_out_of_the_oldest_grants(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    for (at, permits) in [(1_000, 4), (1_300, 3), (1_600, 2)] {
        fixture.at(at);
        assert!(limiter.try_acquire(permits).await.unwrap());
    }
    limiter.release(5).await.unwrap(); // the 4 of 1000, and 1 of the 3 of 1300
    for (at, available) in [
        (1_600, 6),
        (2_000, 6),
        (2_299, 6),
        (2_300, 8),
        (2_599, 8),
        (2_600, 10),
    ] {
        fixture.at(at);
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            available,
            "at {at}"
        );
    }
}

pub async fn a_release_partly_of_expired_permits_gives_these_back_only_once(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.at(1_000);
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(1_500);
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(2_000); // the first 4 are over
    limiter.release(2).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 8);
    assert_eq!(granted(&limiter, 9).await, 8);
    fixture.at(2_500);
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
}

pub async fn a_release_by_another_client_counts_for_all(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(limiter.try_acquire(10).await.unwrap());
    let other = fixture.limiter_of("other").await;
    other.release(4).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 4);
    assert_eq!(granted(&limiter, 5).await, 4);
}

pub async fn all_that_has_expired_is_available_however_many_grants_it_was(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(100, SECOND);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    for _ in 0..80 {
        assert!(limiter.check(1).await.unwrap().is_granted());
    }
    fixture.pass(SECOND / 2);
    assert!(limiter.try_acquire(20).await.unwrap());
    fixture.pass(SECOND / 2);
    assert_eq!(limiter.available_permits().await.unwrap(), 80);
}
