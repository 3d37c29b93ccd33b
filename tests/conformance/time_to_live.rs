//! Whether a limiter exists, and for how long.

use std::time::{Instant, SystemTime};

use redisson_rate_limiter::{Error, Rate, RateLimiter, TimeToLive};

use crate::fixture::{Fixture, HOUR, SECOND, assert_lives_for, ms};

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

async fn life(limiter: &RateLimiter) -> TimeToLive {
    limiter.remain_time_to_live().await.unwrap()
}

pub async fn nothing_is_there_to_delete_before_the_rate_is_set_and_after_deleting(
    fixture: Fixture,
) {
    let limiter = fixture.limiter().await;
    assert!(!limiter.delete().await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert!(
        limiter
            .try_set_rate(Rate::overall(10, SECOND))
            .await
            .unwrap()
    );
    assert!(limiter.exists().await.unwrap());
    assert!(limiter.try_acquire(3).await.unwrap());
    assert!(limiter.delete().await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert!(!limiter.delete().await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), None);
    assert!(
        limiter
            .try_set_rate(Rate::overall(10, SECOND))
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn a_missing_limiter_has_no_time_to_live_to_set(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    assert_eq!(life(&limiter).await, TimeToLive::Missing);
    assert!(!limiter.expire(HOUR).await.unwrap());
    assert!(!limiter.expire_at(SystemTime::now() + HOUR).await.unwrap());
    assert!(!limiter.expire_if_set(HOUR).await.unwrap());
    assert!(!limiter.expire_if_not_set(HOUR).await.unwrap());
    assert!(!limiter.expire_if_greater(HOUR).await.unwrap());
    assert!(!limiter.expire_if_less(HOUR).await.unwrap());
    assert!(!limiter.clear_expire().await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Missing);
}

pub async fn a_limiter_lives_for_ever_until_expire_and_again_after_clear_expire(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Unlimited);
    assert!(!limiter.clear_expire().await.unwrap());
    let since = Instant::now();
    assert!(limiter.expire(HOUR).await.unwrap());
    assert_lives_for(&limiter, HOUR, since).await;
    assert!(limiter.clear_expire().await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Unlimited);
    assert!(!limiter.clear_expire().await.unwrap());
}

pub async fn a_limiter_that_expires_at_a_time_that_has_passed_is_gone_at_once(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let past = SystemTime::UNIX_EPOCH + SECOND;
    assert!(limiter.expire_at(past).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Missing);
    assert!(!limiter.delete().await.unwrap());
}

pub async fn a_time_to_live_of_zero_deletes_the_limiter(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(limiter.expire(ms(0)).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert!(!limiter.delete().await.unwrap());
    assert!(!limiter.expire(ms(0)).await.unwrap());
    let limiter = ten(&fixture).await;
    assert!(limiter.expire_at(SystemTime::UNIX_EPOCH).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
}

pub async fn a_time_to_live_of_zero_deletes_the_limiter_only_if_its_condition_holds(
    fixture: Fixture,
) {
    let limiter = ten(&fixture).await;
    assert!(!limiter.expire_if_set(ms(0)).await.unwrap());
    assert!(!limiter.expire_if_greater(ms(0)).await.unwrap());
    assert!(limiter.exists().await.unwrap());
    assert!(limiter.expire_if_less(ms(0)).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    let limiter = ten(&fixture).await;
    assert!(limiter.expire(HOUR).await.unwrap());
    assert!(!limiter.expire_if_not_set(ms(0)).await.unwrap());
    assert!(!limiter.expire_if_greater(ms(0)).await.unwrap());
    assert!(limiter.exists().await.unwrap());
    assert!(limiter.expire_if_set(ms(0)).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
}

pub async fn times_before_1970_or_below_one_ms_are_errors_and_change_nothing(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let short = std::time::Duration::from_micros(1_500);
    let errors = [
        limiter.expire_at(SystemTime::UNIX_EPOCH - SECOND).await,
        limiter.expire(short).await,
        limiter.expire_if_set(short).await,
        limiter.expire_if_not_set(short).await,
        limiter.expire_if_greater(short).await,
        limiter.expire_if_less(std::time::Duration::MAX).await,
    ];
    for (place, error) in errors.iter().enumerate() {
        assert!(
            matches!(error, Err(Error::InvalidArgument { .. })),
            "{place}: {error:?}"
        );
    }
    assert_eq!(life(&limiter).await, TimeToLive::Unlimited);
}

pub async fn expire_if_set_and_if_not_set_ask_whether_there_is_a_time_to_live(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(!limiter.expire_if_set(HOUR).await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Unlimited);
    let since = Instant::now();
    assert!(limiter.expire_if_not_set(HOUR).await.unwrap());
    assert_lives_for(&limiter, HOUR, since).await;
    assert!(!limiter.expire_if_not_set(2 * HOUR).await.unwrap());
    assert_lives_for(&limiter, HOUR, since).await;
    let since = Instant::now();
    assert!(limiter.expire_if_set(2 * HOUR).await.unwrap());
    assert_lives_for(&limiter, 2 * HOUR, since).await;
}

pub async fn expire_if_greater_and_if_less_compare_with_the_time_to_live(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert!(!limiter.expire_if_greater(2 * HOUR).await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Unlimited);
    let since = Instant::now();
    assert!(limiter.expire_if_less(2 * HOUR).await.unwrap());
    assert_lives_for(&limiter, 2 * HOUR, since).await;
    assert!(!limiter.expire_if_greater(HOUR).await.unwrap());
    assert!(!limiter.expire_if_less(3 * HOUR).await.unwrap());
    assert_lives_for(&limiter, 2 * HOUR, since).await;
    let since = Instant::now();
    assert!(limiter.expire_if_less(HOUR).await.unwrap());
    assert_lives_for(&limiter, HOUR, since).await;
    let since = Instant::now();
    assert!(limiter.expire_if_greater(3 * HOUR).await.unwrap());
    assert_lives_for(&limiter, 3 * HOUR, since).await;
}

pub async fn a_keep_alive_is_the_life_of_a_limiter_from_the_start(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let since = Instant::now();
    let rate = Rate::overall(10, SECOND).keep_alive(HOUR);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    assert_lives_for(&limiter, HOUR, since).await;
    let since = Instant::now();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_lives_for(&limiter, HOUR, since).await;
    let since = Instant::now();
    limiter
        .set_rate(Rate::overall(10, SECOND).keep_alive(2 * HOUR))
        .await
        .unwrap();
    assert_lives_for(&limiter, 2 * HOUR, since).await;
    // As in Redisson: removing the keep alive keeps the existing time to live.
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    assert_lives_for(&limiter, 2 * HOUR, since).await;
}

pub async fn a_second_try_set_rate_does_not_renew_the_life(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(10, SECOND).keep_alive(HOUR);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    assert!(limiter.expire(2 * HOUR).await.unwrap());
    let since = Instant::now();
    assert!(!limiter.try_set_rate(rate).await.unwrap());
    let TimeToLive::Remaining(left) = life(&limiter).await else {
        panic!("it has no time to live");
    };
    assert!(left > HOUR && left + since.elapsed() <= 2 * HOUR + since.elapsed());
}

pub async fn a_limiter_that_expires_during_a_request_leaves_nothing_to_the_next(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let name = fixture.name();
    let keys = [
        name,
        &format!("{{{name}}}:value"),
        &format!("{{{name}}}:permits"),
    ];
    for round in 0..30 {
        limiter.set_rate(Rate::overall(5, ms(1))).await.unwrap();
        assert!(limiter.expire(ms(4)).await.unwrap());
        for time in 1_000.. {
            fixture.at(time); // each call finds what the one before took over
            let answer = match round % 3 {
                0 => limiter.try_acquire(1).await.map(drop),
                1 => limiter.try_acquire(5).await.map(drop),
                _ => limiter.release(1).await,
            };
            if answer.is_err() {
                break;
            }
            if fixture.is_in_memory() {
                tokio::time::advance(ms(1)).await;
            }
        }
        if !fixture.is_in_memory() {
            let mut peer = fixture.peer().await;
            for key in keys {
                let life: i64 = peer.ask(&["PTTL", key]).await;
                assert_ne!(life, -1, "round {round}: {key} stays");
            }
        }
        assert_eq!(life(&limiter).await, TimeToLive::Missing);
        let next = Rate::overall(10, HOUR);
        assert!(limiter.try_set_rate(next).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 10);
        assert!(limiter.try_acquire(10).await.unwrap());
        assert_eq!(life(&limiter).await, TimeToLive::Unlimited);
    }
}
