//! A waiter is decided at the rate in force when its call is made, not when it joined.

use redisson_rate_limiter::{Rate, RedissonClient};
use tokio::time::{Instant, sleep, timeout};

use crate::in_memory::{HOUR, SECOND, let_others_work, limiter, ms};

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_key_gets_the_rate_that_was_raised_meanwhile() {
    let client = RedissonClient::in_memory();
    let rate = Rate::overall(1, HOUR);
    let keyed = client.keyed_rate_limiter("key:", rate).unwrap();
    assert!(keyed.try_acquire("a", 1).await.unwrap());
    let waiter = keyed.clone();
    let waiting = tokio::spawn(async move { waiter.acquire("a", 1).await });
    let_others_work().await;
    keyed.set_rate(Rate::overall(2, HOUR)).unwrap();
    let served = timeout(2 * SECOND, waiting).await;
    served.expect("its permit is there").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_key_does_not_bring_back_the_rate_it_joined_with() {
    let client = RedissonClient::in_memory();
    let keyed = client
        .keyed_rate_limiter("key:", Rate::overall(9, HOUR))
        .unwrap();
    assert!(keyed.try_acquire("a", 9).await.unwrap());
    let waiter = keyed.clone();
    let waiting = tokio::spawn(async move { waiter.acquire("a", 1).await });
    let_others_work().await;
    keyed.set_rate(Rate::overall(2, HOUR)).unwrap();
    assert!(!keyed.check("a", 1).await.unwrap().is_granted());
    sleep(3 * SECOND).await;
    let config = keyed.rate_limiter("a").config().await.unwrap();
    assert_eq!(config, Some(Rate::overall(2, HOUR).keep_alive(HOUR)));
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_at_once_when_its_limiter_is_created_anew() {
    let limiter = limiter(1, HOUR).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let start = Instant::now();
    let waiter = limiter.clone();
    let waiting = tokio::spawn(async move { waiter.try_acquire_timeout(1, ms(100)).await });
    let_others_work().await;
    assert!(limiter.delete().await.unwrap());
    assert!(limiter.try_set_rate(Rate::overall(1, HOUR)).await.unwrap());
    assert!(waiting.await.unwrap().unwrap());
    assert_eq!(start.elapsed(), ms(0));
}
