//! Requests that create their limiter where it is missing, and leave one that exists as it is.

use std::time::Instant;

use redisson_rate_limiter::{
    AnyPolicy, Decision, Error, Granted, PermitsInUse, Rate, RateLimiter, RedissonClient,
    TimeToLive,
};

use crate::fixture::{Fixture, HOUR, SECOND, assert_lives_for};
use crate::stopped_time::at_once;
use crate::told::Told;

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

pub async fn no_form_of_request_changes_a_limiter_that_exists(fixture: Fixture) {
    let client = fixture.client("client").await;
    let other = fixture.client("other").await.rate_limiter(fixture.name());
    let limiter = client.rate_limiter(fixture.name());
    let limiter = limiter.with_rate(Rate::overall(50, SECOND)).unwrap();
    for rate in [
        Rate::overall(2, 2 * HOUR),
        Rate::per_client(2, HOUR),
        Rate::overall(2, HOUR).keep_alive(2 * HOUR),
    ] {
        for form in 0..5 {
            limiter.delete().await.unwrap();
            other.set_rate(rate).await.unwrap();
            let has_keep_alive = rate.keep_alive_time().is_some();
            for _ in 0..2 {
                assert!(is_granted(&client, &limiter, form).await, "{rate}, {form}");
            }
            assert!(!limiter.try_acquire(1).await.unwrap(), "{rate}, {form}");
            assert_eq!(limiter.config().await.unwrap(), Some(rate), "{form}");
            assert_eq!(limiter.available_permits().await.unwrap(), 0, "{form}");
            let left = limiter.remain_time_to_live().await.unwrap();
            assert_eq!(
                left != TimeToLive::Unlimited,
                has_keep_alive,
                "{rate}, {form}"
            );
        }
    }
}

pub async fn a_shared_rate_leaves_a_limiter_that_exists_and_creates_a_missing_one(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    let named = Rate::overall(50, SECOND);
    let shared = client.policy_limiter(AnyPolicy::from(named)).unwrap();
    let (name, limiter) = (fixture.name(), fixture.limiter_of("other").await);
    let joint = async || {
        let charges = [shared.charge(name, 1).unwrap()];
        client.check_all(charges).await.unwrap().is_granted()
    };
    for is_joint in [false, true] {
        let ask = async || match is_joint {
            true => joint().await,
            false => shared.check(name, 1).await.unwrap().is_granted(),
        };
        let set = Rate::overall(3, HOUR);
        limiter.set_rate(set).await.unwrap();
        let mut granted = 0;
        for _ in 0..5 {
            granted += u32::from(ask().await);
        }
        assert_eq!(granted, 3, "{is_joint}");
        assert_eq!(limiter.config().await.unwrap(), Some(set), "{is_joint}");
        assert!(limiter.delete().await.unwrap());

        assert!(ask().await);
        assert_eq!(limiter.config().await.unwrap(), Some(named), "{is_joint}");
        let left = limiter.remain_time_to_live().await.unwrap();
        assert_eq!(left, TimeToLive::Unlimited, "{is_joint}");
        // It is asked for more than it is created with.
        limiter.set_rate(Rate::overall(60, HOUR)).await.unwrap();
        assert!(shared.check(name, 55).await.unwrap().is_granted());
    }
}

pub async fn a_keep_alive_is_that_of_a_limiter_that_the_request_creates(fixture: Fixture) {
    let rate = Rate::overall(6, SECOND).keep_alive(HOUR);
    let limiter = with_rate(&fixture, rate).await;
    let start = Instant::now();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(rate));
    assert_lives_for(&limiter, HOUR, start).await;
}

pub async fn a_limiter_that_is_created_forgets_what_an_earlier_one_left(fixture: Fixture) {
    let earlier = fixture.limiter().await;
    for rate in [Rate::overall(5, HOUR), Rate::per_client(5, HOUR)] {
        let limiter = with_rate(&fixture, rate).await;
        earlier.set_rate(rate).await.unwrap();
        assert!(earlier.try_acquire(5).await.unwrap());
        if !fixture.is_in_memory() {
            let [name, ..] = earlier.keys();
            fixture.peer().await.tell(&["DEL", name]).await;
        } else {
            assert!(earlier.delete().await.unwrap());
        }
        assert!(limiter.try_acquire(4).await.unwrap(), "{rate}");
        assert_eq!(limiter.available_permits().await.unwrap(), 1, "{rate}");
        assert!(limiter.delete().await.unwrap());
    }
}

pub async fn two_handles_with_different_rates_share_the_limiter_of_the_first(fixture: Fixture) {
    let (first, second) = (Rate::overall(3, HOUR), Rate::per_client(9, SECOND));
    let (told, other_told) = (Told::default(), Told::default());
    let builder = RedissonClient::builder().client_id("first");
    let one = fixture.build(told.by(builder)).await;
    let builder = RedissonClient::builder().client_id("second");
    let other = fixture.build(other_told.by(builder)).await;
    let one = one.rate_limiter(fixture.name()).with_rate(first).unwrap();
    let client = other;
    let other = client
        .rate_limiter(fixture.name())
        .with_rate(second)
        .unwrap();
    assert!(one.try_acquire(1).await.unwrap());
    for form in 0..2 {
        assert!(is_granted(&client, &other, form * 4).await);
    }
    for limiter in [&one, &other] {
        assert!(!limiter.try_acquire(1).await.unwrap());
        assert_eq!(limiter.config().await.unwrap(), Some(first));
    }
    assert_eq!(told.take_rates(), []);
    assert_eq!(other_told.take_rates(), [(second, first)]);
    // Each further change is reported once.
    let changed = Rate::overall(4, HOUR);
    one.update_rate(changed, PermitsInUse::Keep).await.unwrap();
    assert!(other.try_acquire(1).await.unwrap());
    for form in [0, 1, 4] {
        assert!(!is_granted(&client, &other, form).await);
    }
    assert_eq!(other_told.take_rates(), [(second, changed)]);
    assert_eq!(told.take_rates(), []);
}

pub async fn a_joint_decision_alone_reports_the_rate_that_it_found(fixture: Fixture) {
    let told = Told::default();
    let client = fixture.build(told.by(RedissonClient::builder())).await;
    let found = Rate::per_client(3, HOUR).keep_alive(2 * HOUR);
    fixture.limiter().await.set_rate(found).await.unwrap();
    let named = Rate::overall(50, SECOND);
    let limiter = client
        .rate_limiter(fixture.name())
        .with_rate(named)
        .unwrap();
    for _ in 0..2 {
        assert!(is_granted(&client, &limiter, 4).await);
    }
    assert_eq!(told.take_rates(), [(named, found)]);
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

pub async fn a_rate_that_was_set_holds_for_a_handle_with_its_own(fixture: Fixture) {
    let (own, set) = (Rate::overall(5, HOUR), Rate::overall(9, HOUR));
    let limiter = with_rate(&fixture, own).await;
    assert!(limiter.try_set_rate(set).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(set));
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    assert!(limiter.try_acquire(9).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(set));
    assert!(!limiter.try_acquire(1).await.unwrap());
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
