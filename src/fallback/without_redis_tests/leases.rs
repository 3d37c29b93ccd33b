//! Leases over a store whose answers are late or lost, and of clients that are closed.

use super::*;

/// A limiter of 1,000 permits an hour, each call of which takes 100 ms, and a handle on it whose
/// calls take no time.
async fn far_away(remote: &Remote) -> (RedissonClient, RateLimiter) {
    remote.set_round_trip(SECOND / 10);
    let at_once = remote.at_once().rate_limiter("limiter");
    at_once.set_rate(Rate::overall(1_000, HOUR)).await.unwrap();
    (remote.client(FailurePolicy::Error), at_once)
}

/// The limiter of `far_away` with leases: the call for the first one is under way, and loses its
/// answer, as all calls do from now on.
async fn losing_a_lease(remote: &Remote) -> (RateLimiter, RateLimiter) {
    let (client, at_once) = far_away(remote).await;
    let limiter = client.rate_limiter("limiter");
    let limiter = limiter.leased(Lease::up_to(60 * SECOND));
    for _ in 0..2 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    remote.set_loss(Loss::OfAnswers);
    (limiter, at_once)
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_answer_is_lost_goes_back() {
    let remote = Remote::new();
    let (limiter, at_once) = losing_a_lease(&remote).await;
    sleep(SECOND).await;
    assert!(at_once.available_permits().await.unwrap() < 998);
    sleep(2 * RESPONSE_TIMEOUT).await;
    remote.set_loss(Loss::None);
    sleep(10 * SECOND).await;
    drop(limiter);
    sleep(10 * SECOND).await;
    assert_eq!(at_once.available_permits().await.unwrap(), 998);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_leased_once_the_client_is_closed() {
    for is_closed in [false, true] {
        let remote = Remote::new();
        let (client, at_once) = far_away(&remote).await;
        let limiter = client.rate_limiter("limiter");
        assert!(limiter.try_acquire(1).await.unwrap());
        let leasing = async {
            sleep(SECOND / 20).await; // the first call is under way
            if is_closed {
                client.close(Duration::ZERO).await;
            }
            let lease = Lease::up_to(60 * SECOND);
            limiter.clone().leased(lease)
        };
        let asking = async { tokio::join!(limiter.try_acquire(1), limiter.try_acquire(1)) };
        let ((first, second), _leased) = tokio::join!(asking, leasing);
        assert!(first.unwrap() && second.unwrap());
        sleep(SECOND).await;
        let left = at_once.available_permits().await.unwrap();
        assert_eq!(left == 997, is_closed, "{left}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_call_for_a_lease_that_failed_there_is_another() {
    let remote = Remote::new();
    let (limiter, at_once) = losing_a_lease(&remote).await;
    sleep(3 * RESPONSE_TIMEOUT).await;
    remote.set_loss(Loss::None);
    sleep(60 * SECOND).await;
    assert_eq!(at_once.available_permits().await.unwrap(), 998);
    for _ in 0..4 {
        assert!(limiter.try_acquire(1).await.unwrap());
        sleep(SECOND).await;
    }
    let left = at_once.available_permits().await.unwrap();
    assert!(left < 994, "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_goes_back_after_its_time_and_before_its_permits_would() {
    let remote = Remote::new();
    let at_once = remote.at_once().rate_limiter("limiter");
    let rate = Rate::overall(10, 60 * SECOND);
    at_once.set_rate(rate).await.unwrap();
    let limiter = remote.client(FailurePolicy::Error).rate_limiter("limiter");
    let reservation = limiter.reserve(5, Duration::ZERO).await.unwrap();
    remote.set_loss(Loss::OfCalls);
    drop(reservation);
    sleep(80 * SECOND).await; // its time is over after 60 s, and its permits are back after 120 s
    assert_eq!(at_once.available_permits().await.unwrap(), 5);
    remote.set_loss(Loss::None);
    sleep(20 * SECOND).await;
    assert_eq!(at_once.available_permits().await.unwrap(), 10);
}
