//! Permits that are reserved for later.

use std::time::Duration;

use redisson_rate_limiter::{
    Decision, Error, PermitsInUse, Rate, RateLimiter, RedissonClient, Reservation, Result,
};
use tokio::time::{Instant, advance};

use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::stopped_time::{StoppedTime, at_once, until};

/// A limiter of which four permits were taken at 1,000 ms and six at 1,200. The time is 1,300 ms,
/// and stands still.
async fn used_up(fixture: &Fixture) -> (RateLimiter, StoppedTime) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(10, SECOND);
    limiter.set_rate(rate).await.unwrap();
    let stopped = fixture.stop_time();
    for (at, permits) in [(1_000, 4), (1_200, 6)] {
        fixture.at(at);
        assert!(limiter.try_acquire(permits).await.unwrap());
    }
    fixture.at(1_300);
    (limiter, stopped)
}

async fn reserve(limiter: &RateLimiter, permits: u32, within: Duration) -> Reservation {
    let reserved = limiter.reserve(permits, within).await.unwrap();
    reserved.expect("it is within the time")
}

/// Moves both clocks on by the same time.
async fn pass(fixture: &Fixture, time: Duration) {
    fixture.pass(time);
    advance(time).await;
}

async fn available(limiter: &RateLimiter, fixture: &Fixture, at: &[(i64, u64)]) {
    for &(at, permits) in at {
        fixture.at(at);
        let available = limiter.available_permits().await.unwrap();
        assert_eq!(available, permits, "{at}");
    }
}

async fn gives_back(limiter: &RateLimiter, permits: u64) {
    until("the permits are back", async || {
        limiter.available_permits().await.unwrap() == permits
    })
    .await;
}

/// Waits until the store counts the reserved permits from their use, which was a millisecond later
/// than the clock shows.
async fn is_told(limiter: &RateLimiter, rate: u32) {
    until("the use is told", async || {
        let decision = limiter.peek(rate).await.unwrap();
        matches!(decision, Decision::Denied(denied) if denied.retry_after == ms(1_001))
    })
    .await;
}

/// When it is usable and when it expires, in ms from now.
fn times(reservation: &Reservation) -> (u128, u128) {
    let from_now = |at: Instant| (at - Instant::now()).as_millis();
    (
        from_now(reservation.usable_at()),
        from_now(reservation.expires_at()),
    )
}

pub async fn available_permits_are_usable_at_once_and_for_an_interval(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    let _stopped = fixture.stop_time();
    let reservation = reserve(&limiter, 4, Duration::ZERO).await;
    assert_eq!(reservation.permits(), 4);
    assert_eq!(times(&reservation), (0, 1_000));
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    // The clock shows whole milliseconds: a millisecond more may have passed than it says.
    fixture.pass(ms(899));
    advance(ms(900)).await;
    let grant = at_once(reservation.ready()).await.unwrap();
    assert_eq!(grant.permits(), 4);
    // They count from their use, once the store has heard of it.
    is_told(&limiter, 10).await;
    fixture.at(2_899);
    gives_back(&limiter, 6).await;
    fixture.at(2_900);
    gives_back(&limiter, 10).await;
}

pub async fn a_reservation_is_usable_when_enough_is_back_and_others_wait_for_it(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    assert!(limiter.reserve(5, ms(899)).await.unwrap().is_none());
    let reservation = reserve(&limiter, 5, ms(900)).await;
    assert_eq!(times(&reservation), (900, 1_900));
    let start = Instant::now();
    let ready = tokio::spawn(async move { (reservation.ready().await, start.elapsed()) });
    pass(&fixture, ms(700)).await;
    assert!(!limiter.try_acquire(1).await.unwrap()); // the four that are back are part of it
    pass(&fixture, ms(200)).await;
    available(&limiter, &fixture, &[(2_200, 5)]).await;
    advance(ms(1)).await; // a timer may be late by a millisecond
    let (grant, after) = ready.await.unwrap();
    assert_eq!(grant.unwrap().permits(), 5);
    assert!(after >= ms(900));
    is_told(&limiter, 10).await;
    fixture.at(3_201);
    gives_back(&limiter, 10).await;
}

pub async fn reservations_are_usable_in_the_order_in_which_they_were_made(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let (a, b) = (
        reserve(&limiter, 4, HOUR).await,
        reserve(&limiter, 6, HOUR).await,
    );
    let c = reserve(&limiter, 1, HOUR).await;
    assert_eq!(times(&a), (700, 1_700));
    assert_eq!(times(&b), (900, 1_900));
    assert_eq!(times(&c), (2_700, 3_700)); // as the others may be used as late as they can
    assert_eq!(a.cancel().await.unwrap(), 4);
    // Later reservations get what it leaves.
    assert_eq!(times(&reserve(&limiter, 3, HOUR).await), (900, 1_900));
}

pub async fn a_reservation_that_is_not_used_counts_for_an_interval_after_its_end(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    std::mem::forget(reserve(&limiter, 5, HOUR).await); // as if the process were killed
    available(
        &limiter,
        &fixture,
        &[(2_199, 0), (2_200, 5), (4_199, 5), (4_200, 10)],
    )
    .await;
}

pub async fn a_reservation_shrunk_cancelled_or_dropped_gives_its_permits_back(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let mut reservation = reserve(&limiter, 9, HOUR).await;
    assert_eq!(reservation.shrink(9).await.unwrap(), 0);
    assert_eq!(reservation.shrink(7).await.unwrap(), 2);
    assert_eq!(reservation.shrink(8).await.unwrap(), 0);
    assert_eq!(reservation.permits(), 7);
    available(&limiter, &fixture, &[(2_200, 3)]).await;
    assert_eq!(reservation.cancel().await.unwrap(), 7);
    available(&limiter, &fixture, &[(2_200, 10)]).await;
    drop(reserve(&limiter, 6, HOUR).await);
    gives_back(&limiter, 10).await;
    let mut reservation = reserve(&limiter, 6, HOUR).await;
    assert_eq!(reservation.shrink(0).await.unwrap(), 6);
    drop(reservation);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn a_reservation_goes_back_when_its_caller_stops_waiting(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let reservation = reserve(&limiter, 5, HOUR).await;
    let waiting = tokio::spawn(reservation.ready());
    tokio::task::yield_now().await;
    waiting.abort();
    fixture.at(2_200);
    gives_back(&limiter, 10).await;
    // A request that is dropped under way reserves nothing.
    for polls in 1..4 {
        let mut request = Box::pin(limiter.reserve(5, HOUR));
        for _ in 0..polls {
            let polled = poll_once(&mut request).await;
            if let Some(Ok(Some(reservation))) = polled {
                drop(reservation);
                break;
            }
        }
        drop(request);
        gives_back(&limiter, 10).await;
    }
}

/// Polls once.
async fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|context| {
        use std::task::Poll;
        Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    })
    .await
}

pub async fn a_reservation_that_is_used_too_late_fails_and_gives_its_permits_back(
    fixture: Fixture,
) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let reservation = reserve(&limiter, 5, HOUR).await;
    pass(&fixture, ms(1_901)).await;
    let late = reservation.ready().await;
    assert!(matches!(late, Err(Error::ReservationExpired { .. })));
    gives_back(&limiter, 10).await;
}

pub async fn a_reservation_counts_from_its_use_though_the_machine_was_suspended(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    let _stopped = fixture.stop_time();
    let reservation = reserve(&limiter, 4, Duration::ZERO).await;
    fixture.at(1_700); // the monotonic clock has stood
    advance(ms(1)).await; // a timer may be late by a millisecond
    assert_eq!(at_once(reservation.ready()).await.unwrap().permits(), 4);
    is_told(&limiter, 10).await;
    let late = reserve(&limiter, 6, Duration::ZERO).await;
    fixture.at(2_700);
    advance(ms(1)).await;
    let late = late.ready().await;
    assert!(matches!(late, Err(Error::ReservationExpired { .. })));
}

pub async fn a_reservation_ends_when_the_clock_is_set_back(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    let _stopped = fixture.stop_time();
    let reservation = reserve(&limiter, 10, Duration::ZERO).await;
    fixture.at(999);
    advance(ms(1)).await;
    let ended = reservation.ready().await;
    assert!(matches!(ended, Err(Error::ReservationExpired { .. })));
    gives_back(&limiter, 10).await;
}

pub async fn a_closed_client_ends_the_wait_for_a_reservation(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let client: RedissonClient = fixture.client("closed").await;
    let of_closed = client.rate_limiter(fixture.name());
    let waiting = tokio::spawn(reserve(&of_closed, 3, HOUR).await.ready());
    let later = reserve(&of_closed, 2, HOUR).await;
    tokio::task::yield_now().await;
    assert!(client.close(60 * SECOND).await);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(later.ready().await, Err(Error::Closed)));
    let refused = of_closed.reserve(1, HOUR).await;
    assert!(matches!(refused, Err(Error::Closed)));
    fixture.at(2_200);
    gives_back(&limiter, 10).await;
}

pub async fn bad_arguments_and_a_limiter_that_expires_too_soon_are_errors(fixture: Fixture) {
    fn argument<T>(result: Result<T>) -> &'static str {
        match result {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            _ => panic!("it is no error"),
        }
    }
    let limiter = fixture.limiter().await;
    let missing = limiter.reserve(1, SECOND).await;
    assert!(matches!(missing, Err(Error::NotInitialized { .. })));
    let rate = Rate::overall(10, SECOND);
    limiter.set_rate(rate.keep_alive(ms(1_999))).await.unwrap();
    assert_eq!(argument(limiter.reserve(0, SECOND).await), "permits");
    for within in [Duration::from_micros(1), Duration::MAX] {
        assert_eq!(argument(limiter.reserve(1, within).await), "within");
    }
    let above = limiter.reserve(11, SECOND).await;
    assert!(matches!(above, Err(Error::ExceedsLimit { limit: 10, .. })));
    let soon = limiter.reserve(1, SECOND).await;
    assert!(matches!(soon, Err(Error::ExpiresTooSoon { .. })));
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    limiter.set_rate(rate.keep_alive(2 * SECOND)).await.unwrap();
    drop(reserve(&limiter, 1, SECOND).await);
    // A time to live that was set counts like a keep alive.
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.expire(HOUR).await.unwrap());
    let soon = limiter.reserve(1, SECOND).await;
    assert!(matches!(soon, Err(Error::ExpiresTooSoon { .. })));
}

pub async fn a_handle_with_a_rate_creates_the_limiter_for_a_reservation(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let limiter = limiter.with_rate(Rate::overall(3, SECOND)).unwrap();
    let reservation = reserve(&limiter, 2, Duration::ZERO).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
    // The permits of a reservation do not outlive the limiter.
    assert!(limiter.delete().await.unwrap());
    assert_eq!(reservation.cancel().await.unwrap(), 0);
    assert!(!limiter.exists().await.unwrap());
}

pub async fn a_reservation_outlives_a_change_of_the_rate(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let reservation = reserve(&limiter, 5, HOUR).await;
    let rate = Rate::overall(6, SECOND);
    limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap();
    for at in [1_750, 2_200] {
        pass(&fixture, ms(450)).await;
        available(&limiter, &fixture, &[(at, u64::from(at == 2_200))]).await;
    }
    advance(ms(1)).await; // a timer may be late by a millisecond
    assert_eq!(at_once(reservation.ready()).await.unwrap().permits(), 5);
    gives_back(&limiter, 1).await;
    is_told(&limiter, 6).await;
    fixture.at(3_201);
    gives_back(&limiter, 6).await;
}

pub async fn a_waiter_waits_for_what_a_reservation_leaves(fixture: Fixture) {
    let (limiter, _stopped) = used_up(&fixture).await;
    let reservation = reserve(&limiter, 7, HOUR).await;
    let waiting = limiter.clone();
    let waiting = tokio::spawn(async move { waiting.acquire(4).await });
    until("it waits", async || limiter.waiters() == 1).await;
    for _ in 0..9 {
        fixture.let_pass(ms(100)).await;
        let _ = limiter.available_permits().await.unwrap();
    }
    assert!(!waiting.is_finished()); // three are available
    assert_eq!(reservation.cancel().await.unwrap(), 7);
    at_once(waiting).await.unwrap().unwrap();
}
