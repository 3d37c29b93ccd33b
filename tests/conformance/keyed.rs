//! A limiter for each key, created by its first request.

use redisson_rate_limiter::{
    AnyPolicy, Decision, Denied, Error, Granted, KeyedRateLimiter, PermitsInUse, Rate, RateType,
    TimeToLive,
};

use crate::fixture::{Fixture, HOUR, SECOND, fields, ms};

async fn keyed(fixture: &Fixture, rate: Rate) -> KeyedRateLimiter {
    let client = fixture.client("client").await;
    let prefix = format!("{}:limit:", fixture.name());
    client.keyed_rate_limiter(&prefix, rate).unwrap()
}

async fn granted(limiter: &KeyedRateLimiter, key: &str, cost: u32) -> bool {
    limiter.check(key, cost).await.unwrap().is_granted()
}

pub async fn three_in_ten_seconds_are_granted_and_the_fourth_only_after_them(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, 10 * SECOND).keep_alive(HOUR)).await;
    for expected in [true, true, true, false] {
        assert_eq!(granted(&limiter, "testLock997", 1).await, expected);
        fixture.pass(ms(1));
    }
    fixture.at(1_000 + 9_999);
    assert!(!granted(&limiter, "testLock997", 1).await);
    fixture.at(1_000 + 10_000);
    assert!(granted(&limiter, "testLock997", 1).await);
}

pub async fn each_key_has_the_whole_rate_for_itself(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(1, HOUR)).await;
    for key in ["a", "b", "c"] {
        assert!(granted(&limiter, key, 1).await);
        assert!(!granted(&limiter, key, 1).await);
    }
}

pub async fn a_decision_states_limit_remaining_retry_after_and_reset(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(5, SECOND).keep_alive(HOUR)).await;
    let first = limiter.check("k", 3).await.unwrap();
    assert!(matches!(first, Decision::Granted(Granted { limit: 5, .. })));
    assert_eq!(fields(&first), (true, 2, None, 1_000));
    fixture.pass(ms(200));
    let second = limiter.check("k", 3).await.unwrap();
    assert_eq!(fields(&second), (false, 2, Some(800), 800));
}

pub async fn the_limiter_of_a_key_is_an_rratelimiter_that_all_can_use(fixture: Fixture) {
    let rate = Rate::overall(3, 10 * SECOND).keep_alive(HOUR);
    let limiter = keyed(&fixture, rate).await;
    assert!(granted(&limiter, "k", 2).await);
    let own = limiter.rate_limiter("k");
    assert_eq!(own.config().await.unwrap(), Some(rate));
    assert_eq!(own.available_permits().await.unwrap(), 1);
    assert!(own.try_acquire(1).await.unwrap());
    assert!(!granted(&limiter, "k", 1).await);

    let other = fixture.client("other").await;
    let name = format!("{}:limit:k", fixture.name());
    assert_eq!(
        other.rate_limiter(&name).available_permits().await.unwrap(),
        0
    );
}

pub async fn a_grant_can_be_refunded_at_the_limiter_of_its_key(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    let Decision::Granted(Granted { grant, .. }) = limiter.check("k", 2).await.unwrap() else {
        panic!("it was denied");
    };
    let own = limiter.rate_limiter("k");
    assert_eq!(own.refund(grant).await.unwrap(), 2);
    assert_eq!(own.available_permits().await.unwrap(), 3);
}

pub async fn creating_a_limiter_clears_what_an_earlier_one_left(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    assert!(granted(&limiter, "k", 3).await);
    assert!(limiter.rate_limiter("k").delete().await.unwrap());
    assert!(granted(&limiter, "k", 3).await);
}

pub async fn each_key_has_a_changed_rate_from_its_next_request_and_keeps_its_use(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    assert!(granted(&limiter, "k", 3).await);
    limiter.set_rate(Rate::overall(5, HOUR)).unwrap();
    let decision = limiter.check("k", 1).await.unwrap();
    assert!(matches!(
        decision,
        Decision::Granted(Granted {
            limit: 5,
            remaining: 1,
            ..
        })
    ));
    limiter.set_rate(Rate::overall(4, 2 * HOUR)).unwrap();
    let decision = limiter.check("k", 1).await.unwrap();
    assert!(matches!(
        decision,
        Decision::Denied(Denied {
            limit: 4,
            remaining: 0,
            ..
        })
    ));
    let config = limiter.rate_limiter("k").config().await.unwrap().unwrap();
    assert_eq!((config.permits(), config.interval()), (4, 2 * HOUR));
}

pub async fn a_shorter_interval_gives_back_what_has_expired_by_it(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    assert!(granted(&limiter, "k", 3).await);
    fixture.pass(SECOND);
    let second = Rate::overall(3, SECOND).keep_alive(HOUR);
    limiter.set_rate(second).unwrap();
    assert!(granted(&limiter, "k", 3).await);
}

pub async fn a_change_of_the_type_forgets_what_is_in_use(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    assert!(granted(&limiter, "k", 3).await);
    limiter.set_rate(Rate::per_client(3, HOUR)).unwrap();
    assert!(granted(&limiter, "k", 2).await);
    let config = limiter.rate_limiter("k").config().await.unwrap().unwrap();
    assert_eq!(config.rate_type(), RateType::PerClient);
    let other = fixture.client("other").await;
    let prefix = format!("{}:limit:", fixture.name());
    let other = other.keyed_rate_limiter(&prefix, Rate::per_client(3, HOUR));
    assert!(granted(&other.unwrap(), "k", 3).await);
}

pub async fn an_invalid_rate_is_refused_and_the_old_one_stays(fixture: Fixture) {
    let rate = Rate::overall(3, HOUR);
    let limiter = keyed(&fixture, rate).await;
    let refused = limiter.set_rate(Rate::overall(0, HOUR));
    assert!(matches!(
        refused,
        Err(Error::InvalidArgument {
            argument: "permits",
            ..
        })
    ));
    assert_eq!(limiter.rate(), Some(rate));
    let refused = limiter
        .check_with_rate("k", 1, Rate::overall(1, ms(0)))
        .await;
    assert!(matches!(
        refused,
        Err(Error::InvalidArgument {
            argument: "interval",
            ..
        })
    ));
    let client = fixture.client("client").await;
    assert!(
        client
            .keyed_rate_limiter("p:", Rate::overall(0, HOUR))
            .is_err()
    );
}

pub async fn a_key_may_have_a_rate_of_its_own(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(1, HOUR)).await;
    let plan = Rate::overall(100, HOUR);
    let decision = limiter.check_with_rate("large", 60, plan).await.unwrap();
    assert!(matches!(
        decision,
        Decision::Granted(Granted {
            limit: 100,
            remaining: 40,
            ..
        })
    ));
    assert!(granted(&limiter, "small", 1).await);
    assert!(!granted(&limiter, "small", 1).await);
}

pub async fn a_cost_of_0_or_above_the_rate_is_an_error_and_creates_nothing(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    let refused = limiter.check("k", 0).await;
    assert!(matches!(
        refused,
        Err(Error::InvalidArgument {
            argument: "cost",
            ..
        })
    ));
    let refused = limiter.check("k", 4).await;
    assert!(matches!(
        refused,
        Err(Error::ExceedsLimit {
            requested: 4,
            limit: 3,
            ..
        })
    ));
    assert!(!limiter.rate_limiter("k").exists().await.unwrap());
}

pub async fn a_limiter_lives_an_interval_after_its_last_request_by_default(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    assert!(granted(&limiter, "k", 1).await);
    let own = limiter.rate_limiter("k");
    let config = own.config().await.unwrap().unwrap();
    assert_eq!(config.keep_alive_time(), Some(HOUR));
    let TimeToLive::Remaining(left) = own.remain_time_to_live().await.unwrap() else {
        panic!("it stays");
    };
    assert!(left <= HOUR);
}

pub async fn a_keep_alive_that_the_rate_does_not_name_is_left_as_it_is(fixture: Fixture) {
    let limiter = keyed(&fixture, Rate::overall(3, HOUR)).await;
    let own = limiter.rate_limiter("k");
    own.try_set_rate(Rate::overall(3, HOUR)).await.unwrap();
    assert!(granted(&limiter, "k", 1).await);
    assert_eq!(
        own.remain_time_to_live().await.unwrap(),
        TimeToLive::Unlimited
    );
    own.update_rate(
        Rate::overall(3, HOUR).keep_alive(2 * HOUR),
        PermitsInUse::Keep,
    )
    .await
    .unwrap();
    limiter.set_rate(Rate::overall(5, HOUR)).unwrap();
    assert!(granted(&limiter, "k", 1).await);
    let config = own.config().await.unwrap().unwrap();
    assert_eq!(config.keep_alive_time(), Some(2 * HOUR));
    assert_eq!(own.available_permits().await.unwrap(), 3);
}

pub async fn a_rate_as_a_policy_decides_by_the_limiter_with_the_keys_name(fixture: Fixture) {
    let client = fixture.client("client").await;
    let prefix = format!("{{{}}}:", fixture.name());
    let rate = AnyPolicy::from(Rate::overall(3, HOUR));
    let limiter = client.policy_limiter(rate).unwrap().with_prefix(&*prefix);
    assert_eq!(limiter.check("alice", 2).await.unwrap().remaining(), 1);
    let alice = client.rate_limiter(&format!("{prefix}alice"));
    assert_eq!(alice.available_permits().await.unwrap(), 1);
    // Others share the limiter, so a new rate applies only to a missing one.
    limiter.set_policy(Rate::overall(5, HOUR).into()).unwrap();
    let decision = limiter.check("alice", 1).await.unwrap();
    assert_eq!(decision.remaining(), 0);
    let grant = decision.into_grant().unwrap();
    assert_eq!(alice.refund(grant).await.unwrap(), 1);
    let both = [limiter.charge("alice", 1), limiter.charge("bob", 5)].map(Result::unwrap);
    assert!(client.check_all(both).await.unwrap().is_granted());
    assert_eq!(alice.available_permits().await.unwrap(), 0);
    assert!(!limiter.check("alice", 1).await.unwrap().is_granted());
    let too_much = limiter.check("alice", 4).await;
    assert!(matches!(
        too_much,
        Err(Error::ExceedsLimit { limit: 3, .. })
    ));
    let with_penalty = limiter.with_penalty(SECOND);
    let Err(Error::InvalidArgument { argument, .. }) = with_penalty else {
        panic!("{with_penalty:?}");
    };
    assert_eq!(argument, "time");
}

pub async fn a_part_of_a_joint_decision_has_a_rate_of_its_own(fixture: Fixture) {
    let client = fixture.client("client").await;
    let prefix = format!("{{{}}}:", fixture.name());
    let keyed = client
        .keyed_rate_limiter(&prefix, Rate::overall(2, HOUR))
        .unwrap();
    let large = Rate::overall(10, HOUR);
    let charges = || {
        let own = keyed.charge_with_rate("a", 7, large).unwrap();
        [own, keyed.charge("b", 1).unwrap()]
    };
    let peeked = client.peek_all(charges()).await.unwrap();
    assert!(peeked.is_granted());
    for (expected, remaining) in [(true, [3, 1]), (false, [3, 1])] {
        let decision = client.check_all(charges()).await.unwrap();
        assert_eq!(decision.is_granted(), expected);
        let left: Vec<_> = decision
            .decisions()
            .iter()
            .map(Decision::remaining)
            .collect();
        assert_eq!(left, remaining);
    }
    let decision = keyed.check_with_rate("a", 3, large).await.unwrap();
    assert_eq!((decision.limit(), decision.remaining()), (10, 0));
    let too_many = keyed.charge_with_rate("a", 11, large);
    assert!(matches!(
        too_many,
        Err(Error::ExceedsLimit { limit: 10, .. })
    ));
    let invalid = keyed.charge_with_rate("a", 1, Rate::overall(0, HOUR));
    assert!(matches!(invalid, Err(Error::InvalidArgument { .. })));
}
