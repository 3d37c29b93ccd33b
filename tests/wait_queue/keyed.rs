//! Waiting for the permits of a key, on a limiter that expires soon.

use redisson_rate_limiter::{Rate, RedissonClient};
use tokio::time::Instant;

use crate::in_memory::{SECOND, ms};

#[tokio::test(start_paused = true)]
async fn waiting_creates_the_limiter_and_goes_on_though_it_expires_meanwhile() {
    for interval in [ms(1), ms(200), SECOND] {
        let client = RedissonClient::in_memory();
        let limiter = client
            .keyed_rate_limiter("mail:", Rate::overall(1, interval))
            .unwrap();
        let start = Instant::now();
        for _ in 0..4 {
            limiter.acquire("alice", 1).await.unwrap();
        }
        // The limiter expires an interval after a request: then all permits are back.
        assert!(start.elapsed() >= 3 * interval);
        assert!(start.elapsed() <= 3 * (interval + ms(3)));
        assert!(limiter.try_acquire("bob", 1).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_wait_for_a_key_is_false_where_its_permits_come_back_later() {
    let client = RedissonClient::in_memory();
    let limiter = client
        .keyed_rate_limiter("mail:", Rate::overall(2, SECOND))
        .unwrap();
    assert!(
        limiter
            .try_acquire_timeout("alice", 2, ms(10))
            .await
            .unwrap()
    );
    let start = Instant::now();
    assert!(
        !limiter
            .try_acquire_timeout("alice", 1, ms(900))
            .await
            .unwrap()
    );
    assert_eq!(start.elapsed(), ms(900));
    assert!(
        limiter
            .try_acquire_timeout("alice", 1, SECOND)
            .await
            .unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn a_limiter_whose_keep_alive_is_its_interval_lives_while_someone_waits() {
    for interval in [ms(200), SECOND, 5 * SECOND] {
        let limiter = RedissonClient::in_memory().rate_limiter("limiter");
        let rate = Rate::overall(1, interval).keep_alive(interval);
        limiter.set_rate(rate).await.unwrap();
        for _ in 0..3 {
            limiter.acquire(1).await.unwrap();
        }
    }
}
