//! Keys with another content than a limiter's state are an error, and stay unchanged.

use redisson_rate_limiter::{Error, PermitsInUse, Rate, RateLimiter, Result};

use crate::bad_state::{self, assert_all_that_count_are_refused};
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, VALUE};
use crate::keys::member;

fn assert_bad_state<T: std::fmt::Debug>(method: &str, result: Result<T>) {
    bad_state::assert_bad_state(NAME, method, result);
}

/// A limiter in good order, of which 4 of 10 are in use.
async fn in_use(fixture: &mut Fixture) -> RateLimiter {
    let limiter = fixture.with(Rate::overall(10, HOUR)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    limiter
}

#[tokio::test]
async fn a_field_of_the_hash_must_be_its_kind_of_number() {
    for (field, bad) in [
        ("rate", "many"),
        ("rate", ""),
        ("rate", "-1"),
        ("rate", "1.5"),
        ("rate", "1e17"),
        ("rate", "nan"),
        ("rate", "inf"),
        ("interval", "soon"),
        ("interval", "-1000"),
        ("interval", "0.5"),
        ("type", "OVERALL"),
        ("type", "2"),
        ("type", ""),
        ("keepAliveTime", "never"),
        ("keepAliveTime", "0.5"),
    ] {
        let mut fixture = Fixture::start().await;
        let limiter = in_use(&mut fixture).await;
        fixture.run(&["HSET", NAME, field, bad]).await;
        let before = fixture.everything().await;
        assert_all_that_count_are_refused(&limiter).await;
        assert_bad_state("config", limiter.config().await);
        assert_eq!(fixture.everything().await, before, "{field} {bad}");
    }
}

#[tokio::test]
async fn a_rate_above_2_to_the_53_is_bad_state() {
    for bad in [
        "9007199254740993",
        "9007199254740994",
        "9223372036854775807",
    ] {
        let mut fixture = Fixture::start().await;
        let limiter = in_use(&mut fixture).await;
        fixture.run(&["HSET", NAME, "rate", bad]).await;
        let before = fixture.everything().await;
        assert_bad_state("config", limiter.config().await);
        assert_all_that_count_are_refused(&limiter).await;
        assert_eq!(fixture.everything().await, before, "{bad}");
    }
}

#[tokio::test]
async fn a_refund_finds_a_field_that_is_no_number_bad() {
    let mut fixture = Fixture::start().await;
    let limiter = in_use(&mut fixture).await;
    let redisson_rate_limiter::Decision::Granted(redisson_rate_limiter::Granted { grant, .. }) =
        limiter.check(1).await.unwrap()
    else {
        panic!("it was denied");
    };
    fixture.run(&["HSET", NAME, "interval", "soon"]).await;
    let before = fixture.everything().await;
    assert_bad_state("refund", limiter.refund(grant).await);
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_value_must_be_a_whole_number() {
    for bad in ["many", "", "1.5", "1e17", "99999999999999999999", "nan"] {
        let mut fixture = Fixture::start().await;
        let limiter = in_use(&mut fixture).await;
        fixture.run(&["SET", VALUE, bad]).await;
        let before = fixture.everything().await;
        assert_all_that_count_are_refused(&limiter).await;
        assert_eq!(fixture.everything().await, before, "{bad}");
    }
}

#[tokio::test]
async fn a_grant_scored_before_all_times_is_over() {
    for score in ["-inf", "-1e300"] {
        let mut fixture = Fixture::start().await;
        let limiter = fixture.with(Rate::overall(10, HOUR)).await;
        let grant = member(&[7; 16], 10);
        fixture
            .run_bytes(&[b"ZADD", PERMITS.as_bytes(), score.as_bytes(), &grant])
            .await;
        fixture.run(&["SET", VALUE, "0"]).await;
        assert!(limiter.try_acquire(10).await.unwrap(), "{score}");
        assert_eq!(fixture.grants().await, [(1_000, 10)], "{score}");
    }
}

#[tokio::test]
async fn a_value_key_must_be_a_string() {
    let mut fixture = Fixture::start().await;
    let limiter = in_use(&mut fixture).await;
    fixture.run(&["DEL", VALUE]).await;
    fixture.run(&["RPUSH", VALUE, "6"]).await;
    let before = fixture.everything().await;
    assert_all_that_count_are_refused(&limiter).await;
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_permits_key_must_be_a_zset() {
    let mut fixture = Fixture::start().await;
    let limiter = in_use(&mut fixture).await;
    fixture.run(&["DEL", PERMITS]).await;
    fixture.run(&["SET", PERMITS, "6"]).await;
    let before = fixture.everything().await;
    assert_all_that_count_are_refused(&limiter).await;
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_permits_key_that_is_no_zset_is_refused_when_the_rate_changes() {
    let mut fixture = Fixture::start().await;
    let limiter = in_use(&mut fixture).await;
    fixture.run(&["DEL", PERMITS]).await;
    fixture.run(&["SET", PERMITS, "6"]).await;
    let before = fixture.everything().await;
    let rate = Rate::overall(20, HOUR);
    assert_bad_state(
        "update_rate",
        limiter.update_rate(rate, PermitsInUse::Keep).await,
    );
    assert_bad_state(
        "set_rate_with",
        limiter.set_rate_with(rate, PermitsInUse::Keep).await,
    );
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_limiters_name_must_be_a_hash() {
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", NAME, "6"]).await;
    fixture.run(&["SET", VALUE, "6"]).await;
    fixture.add(1_000, &member(&[7; 16], 4)).await;
    let limiter = fixture.limiter().await;
    let before = fixture.everything().await;
    let rate = Rate::overall(5, HOUR);
    assert_all_that_count_are_refused(&limiter).await;
    assert_bad_state("config", limiter.config().await);
    assert_bad_state("try_set_rate", limiter.try_set_rate(rate).await);
    assert_bad_state("set_rate", limiter.set_rate(rate).await);
    for state in [PermitsInUse::Keep, PermitsInUse::Reset] {
        assert_bad_state("set_rate_with", limiter.set_rate_with(rate, state).await);
        assert_bad_state("update_rate", limiter.update_rate(rate, state).await);
    }
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_hash_that_lacks_a_field_is_a_limiter_that_is_not_set_up() {
    for field in ["rate", "interval", "type"] {
        let mut fixture = Fixture::start().await;
        let limiter = in_use(&mut fixture).await;
        fixture.run(&["HDEL", NAME, field]).await;
        let before = fixture.everything().await;
        let error = limiter.try_acquire(1).await;
        assert!(
            matches!(error, Err(Error::NotInitialized { .. })),
            "{field}: {error:?}"
        );
        assert_eq!(limiter.config().await.unwrap(), None, "{field}");
        assert_eq!(fixture.everything().await, before, "{field}");
    }
}
