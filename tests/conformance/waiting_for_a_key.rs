//! Waiting for permits on a limiter that expires soon, or is lost in the meantime.

use redisson_rate_limiter::{Rate, TimeToLive};

use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::stopped_time::{at_once, run_until_stalled, until};

pub async fn waiting_creates_the_limiter_of_a_key_even_if_it_is_lost_meanwhile(fixture: Fixture) {
    let client = fixture.client("client").await;
    let keyed = client
        .keyed_rate_limiter(&format!("{}:", fixture.name()), Rate::overall(2, HOUR))
        .unwrap();
    let other = fixture.client("other").await;
    let of_other = other.rate_limiter(&format!("{}:key", fixture.name()));
    let _stopped = fixture.stop_time();
    at_once(keyed.acquire("key", 1)).await.unwrap();
    let timed = keyed.try_acquire_timeout("key", 1, SECOND);
    assert!(at_once(timed).await.unwrap());
    for is_timed in [false, true] {
        let waiter = tokio::spawn({
            let keyed = keyed.clone();
            async move {
                match is_timed {
                    true => keyed.try_acquire_timeout("key", 1, HOUR).await,
                    false => keyed.acquire("key", 1).await.map(|()| true),
                }
            }
        });
        fixture.until_told(&of_other).await;
        assert!(!waiter.is_finished());
        assert!(of_other.delete().await.unwrap());
        assert!(fixture.served(waiter, &of_other).await.unwrap());
        assert!(keyed.try_acquire("key", 1).await.unwrap());
        assert!(!keyed.try_acquire("key", 1).await.unwrap());
    }
}

pub async fn a_timed_wait_for_a_key_is_false_where_its_permits_come_back_later(fixture: Fixture) {
    let client = fixture.client("client").await;
    let keyed = client
        .keyed_rate_limiter(&format!("{}:", fixture.name()), Rate::overall(2, HOUR))
        .unwrap();
    let _stopped = fixture.stop_time();
    assert!(keyed.try_acquire("key", 2).await.unwrap());
    let waiter = tokio::spawn({
        let keyed = keyed.clone();
        async move { keyed.try_acquire_timeout("key", 1, ms(900)).await }
    });
    run_until_stalled(&keyed.rate_limiter("key")).await;
    tokio::time::advance(ms(899)).await;
    run_until_stalled(&keyed.rate_limiter("key")).await;
    assert!(!waiter.is_finished());
    fixture.let_pass(ms(1)).await;
    assert!(!at_once(waiter).await.unwrap().unwrap());
}

pub async fn a_limiter_whose_keep_alive_is_its_interval_is_kept_by_its_waiters(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let _stopped = fixture.stop_time();
    let rate = Rate::overall(2, SECOND).keep_alive(SECOND);
    limiter.set_rate(rate).await.unwrap();
    assert!(limiter.try_acquire(2).await.unwrap());
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    run_until_stalled(&limiter).await;
    // From here on, its time to live shows whether another call was made.
    assert!(limiter.expire(HOUR).await.unwrap());
    fixture.let_pass(ms(500)).await;
    until("it has its keep alive again", async || {
        match limiter.remain_time_to_live().await.unwrap() {
            TimeToLive::Remaining(left) => left <= SECOND,
            other => panic!("{other:?}"),
        }
    })
    .await;
    fixture.let_pass(ms(503)).await;
    at_once(waiter).await.unwrap().unwrap();
}
