//! A limiter that knows its rate, and creates itself where it is missing.

use redisson_rate_limiter::{
    Decision, Error, Granted, Rate, RateLimiter, RedissonClient, TimeToLive,
};

use crate::fixture::{Fixture, HOUR, SECOND};
use crate::stopped_time::at_once;

async fn with_rate(fixture: &Fixture, rate: Rate) -> RateLimiter {
    fixture.limiter().await.with_rate(rate).unwrap()
}

/// Asks for a permit in one of the forms of a request.
async fn is_granted(client: &RedissonClient, limiter: &RateLimiter, form: u32) -> bool {
    match form {
        0 => limiter.try_acquire(1).await.unwrap(),
        1 => limiter.check(1).await.unwrap().is_granted(),
        2 => limiter.try_acquire_timeout(1, SECOND).await.unwrap(),
        3 => limiter.acquire(1).await.is_ok(),
        _ => {
            let charges = [limiter.charge(1).unwrap()];
            client.check_all(charges).await.unwrap().is_granted()
        }
    }
}

pub async fn every_form_of_request_creates_a_missing_limiter_that_does_not_expire(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    let rate = Rate::overall(3, HOUR);
    let limiter = client.rate_limiter(fixture.name()).with_rate(rate).unwrap();
    for form in 0..5 {
        assert!(is_granted(&client, &limiter, form).await, "{form}");
        assert_eq!(limiter.config().await.unwrap(), Some(rate), "{form}");
        assert_eq!(limiter.available_permits().await.unwrap(), 2, "{form}");
        let left = limiter.remain_time_to_live().await.unwrap();
        assert_eq!(left, TimeToLive::Unlimited, "{form}");
        assert!(limiter.delete().await.unwrap());
    }
}

pub async fn every_form_of_request_sets_the_rate_and_leaves_what_is_in_use(fixture: Fixture) {
    let client = fixture.client("client").await;
    let other = fixture.client("other").await.rate_limiter(fixture.name());
    let rate = Rate::overall(5, HOUR);
    let limiter = client.rate_limiter(fixture.name()).with_rate(rate).unwrap();
    for form in 0..5 {
        let other_rate = Rate::overall(2, 2 * HOUR);
        other.set_rate(other_rate).await.unwrap();
        assert!(other.try_acquire(2).await.unwrap());
        assert!(is_granted(&client, &limiter, form).await, "{form}");
        assert_eq!(limiter.config().await.unwrap(), Some(rate), "{form}");
        assert_eq!(limiter.available_permits().await.unwrap(), 2, "{form}");
    }
}

pub async fn a_keep_alive_that_the_rate_does_not_set_stays_as_the_limiter_has_it(fixture: Fixture) {
    let plain = fixture.limiter().await;
    let rate = Rate::overall(5, SECOND);
    plain.set_rate(rate.keep_alive(HOUR)).await.unwrap();
    let limiter = with_rate(&fixture, Rate::overall(6, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let kept = Rate::overall(6, SECOND).keep_alive(HOUR);
    assert_eq!(limiter.config().await.unwrap(), Some(kept));

    let longer = rate.keep_alive(2 * HOUR);
    let limiter = with_rate(&fixture, longer).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(longer));
}

pub async fn in_a_missing_limiter_nothing_is_in_use_and_only_requests_create_it(fixture: Fixture) {
    let limiter = with_rate(&fixture, Rate::overall(5, HOUR)).await;
    let Decision::Granted(Granted { grant, .. }) = limiter.check(2).await.unwrap() else {
        panic!("it was denied");
    };
    let other = limiter.check(1).await.unwrap().into_grant().unwrap();
    assert!(limiter.delete().await.unwrap());
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert_eq!(limiter.refund(grant).await.unwrap(), 0);
    limiter.release(1).await.unwrap();
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), None);

    let plain = fixture.limiter().await;
    assert_eq!(plain.refund(other).await.unwrap(), 0);
    let missing = plain.available_permits().await;
    assert!(matches!(missing, Err(Error::NotInitialized { .. })));
}

pub async fn a_rate_that_was_set_holds_until_a_handle_with_its_own_asks(fixture: Fixture) {
    let (own, set) = (Rate::overall(5, HOUR), Rate::overall(9, HOUR));
    let limiter = with_rate(&fixture, own).await;
    assert!(limiter.try_set_rate(set).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(set));
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(own));
    limiter.set_rate(set).await.unwrap();
    assert!(fixture.limiter().await.try_acquire(6).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(own));
}

pub async fn a_rate_that_cannot_be_set_is_refused_with_the_handle(fixture: Fixture) {
    let too_short = Rate::overall(1, HOUR).keep_alive(SECOND);
    for rate in [Rate::overall(0, HOUR), too_short] {
        let refused = fixture.limiter().await.with_rate(rate);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    }
}

pub async fn waiters_create_a_limiter_that_was_lost_in_the_meantime(fixture: Fixture) {
    let limiter = with_rate(&fixture, Rate::overall(2, HOUR)).await;
    let other = fixture.limiter_of("other").await;
    let _stopped = fixture.stop_time();
    assert!(at_once(limiter.try_acquire(2)).await.unwrap());
    for is_timed in [false, true] {
        let waiter = tokio::spawn({
            let limiter = limiter.clone();
            async move {
                match is_timed {
                    true => limiter.try_acquire_timeout(1, HOUR).await,
                    false => limiter.acquire(1).await.map(|()| true),
                }
            }
        });
        fixture.until_told(&other).await;
        assert!(!waiter.is_finished());
        assert!(other.delete().await.unwrap());
        assert!(fixture.served(waiter, &other).await.unwrap());
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(!limiter.try_acquire(1).await.unwrap());
    }
}
