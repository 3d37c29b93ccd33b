//! Waiters are served when another client frees permits, without asking for them now and then: no
//! time passes here, unless the server has no channels.

use std::time::Duration;

use redisson_rate_limiter::{Error, PermitsInUse, Rate, RateLimiter, Result};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, HOUR};
use crate::stopped_time::{StoppedTime, run_until_stalled};

const RATE: u32 = 10;

/// The limiter as another client sees it, with all its permits in use; a waiter for this many; and
/// the stopped time.
async fn waiting(
    fixture: &Fixture,
    permits: u32,
) -> (RateLimiter, JoinHandle<Result<()>>, StoppedTime) {
    let other = fixture.limiter_of("other").await;
    let rate = Rate::overall(u64::from(RATE), HOUR);
    assert!(other.try_set_rate(rate).await.unwrap());
    assert!(other.try_acquire(RATE).await.unwrap());
    let limiter = fixture.limiter_of("waiting").await;
    let stopped = fixture.stop_time();
    let waiting = tokio::spawn(async move { limiter.acquire(permits).await });
    fixture.until_told(&other).await;
    assert!(!waiting.is_finished());
    (other, waiting, stopped)
}

pub async fn a_waiter_is_served_as_another_client_releases_permits(fixture: Fixture) {
    let (other, waiting, _stopped) = waiting(&fixture, 1).await;
    other.release(RATE).await.unwrap();
    fixture.served(waiting, &other).await.unwrap();
    assert_eq!(other.available_permits().await.unwrap(), 9);
}

pub async fn a_waiter_is_served_as_another_client_gives_a_grant_back(fixture: Fixture) {
    let other = fixture.limiter_of("other").await;
    other.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let grant = other.check(RATE).await.unwrap().into_grant().unwrap();
    let limiter = fixture.limiter_of("waiting").await;
    let _stopped = fixture.stop_time();
    let waiting = tokio::spawn(async move { limiter.acquire(1).await });
    fixture.until_told(&other).await;
    assert_eq!(other.refund(grant).await.unwrap(), RATE);
    fixture.served(waiting, &other).await.unwrap();
}

pub async fn a_waiter_is_served_as_another_client_raises_the_rate(fixture: Fixture) {
    let (other, waiting, _stopped) = waiting(&fixture, 1).await;
    let raised = Rate::overall(20, HOUR);
    let raising = other.set_rate_with(raised, PermitsInUse::Keep);
    raising.await.unwrap();
    fixture.served(waiting, &other).await.unwrap();
    assert_eq!(other.available_permits().await.unwrap(), 9);
}

pub async fn a_waiter_is_served_as_another_client_resets_the_rate(fixture: Fixture) {
    let (other, waiting, _stopped) = waiting(&fixture, 10).await;
    other.set_rate(Rate::overall(40, HOUR)).await.unwrap();
    fixture.served(waiting, &other).await.unwrap();
    assert_eq!(other.available_permits().await.unwrap(), 30);
}

pub async fn a_waiter_learns_at_once_that_another_client_deleted_the_limiter(fixture: Fixture) {
    let (other, waiting, _stopped) = waiting(&fixture, 1).await;
    assert!(other.delete().await.unwrap());
    let answer = fixture.served(waiting, &other).await;
    assert!(
        matches!(answer, Err(Error::NotInitialized { .. })),
        "{answer:?}"
    );
}

pub async fn a_waiter_learns_at_once_that_another_client_made_the_limiter_expire(fixture: Fixture) {
    let (other, waiting, _stopped) = waiting(&fixture, 1).await;
    assert!(other.expire(Duration::ZERO).await.unwrap());
    let answer = fixture.served(waiting, &other).await;
    assert!(
        matches!(answer, Err(Error::NotInitialized { .. })),
        "{answer:?}"
    );
}

pub async fn a_waiter_that_needs_more_than_came_free_waits_for_the_rest(fixture: Fixture) {
    let (other, waiting, _stopped) = waiting(&fixture, 4).await;
    for _ in 0..3 {
        other.release(1).await.unwrap();
        run_until_stalled(&other).await;
        assert!(!waiting.is_finished());
    }
    other.release(7).await.unwrap();
    fixture.served(waiting, &other).await.unwrap();
    assert_eq!(other.available_permits().await.unwrap(), 6);
}
