//! Times to live of the keys in Redis.

use redis::AsyncCommands;
use redisson_rate_limiter::{PermitsInUse, Rate};

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE, ms};
use crate::keys;

/// When each key of the limiter expires: -1 never, -2 there is none.
async fn expiries(fixture: &mut Fixture) -> [i64; 3] {
    let mut all = redis::pipe();
    for key in [NAME, VALUE, PERMITS] {
        all.cmd("PEXPIRETIME").arg(key);
    }
    all.query_async(&mut fixture.raw).await.unwrap()
}

/// Runs a step, and returns the times between which a key expires that got `$time` from it.
macro_rules! with_life {
    ($fixture:ident, $time:expr, $step:expr) => {{
        let before = keys::time(&mut $fixture.raw).await;
        $step;
        let after = keys::time(&mut $fixture.raw).await;
        let time = $time.as_millis() as i64;
        before + time..=after + time
    }};
}

#[tokio::test]
async fn all_three_keys_get_the_keep_alive_at_each_grant_denial_and_release() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.limiter().await;
    let keep_alive = ms(7_000);
    let rate = Rate::overall(5, SECOND).keep_alive(keep_alive);
    let life = with_life!(
        fixture,
        keep_alive,
        limiter.try_set_rate(rate).await.unwrap()
    );
    let [name, value, permits] = expiries(&mut fixture).await;
    assert!(life.contains(&name), "{name} is not in {life:?}");
    assert_eq!((value, permits), (-2, -2));

    for step in ["grant", "denial", "release"] {
        fixture.run(&["PEXPIRE", NAME, "2000"]).await;
        let life = with_life!(
            fixture,
            keep_alive,
            match step {
                "grant" => assert!(limiter.try_acquire(4).await.unwrap()),
                "denial" => assert!(!limiter.try_acquire(4).await.unwrap()),
                _ => limiter.release(1).await.unwrap(),
            }
        );
        for expiry in expiries(&mut fixture).await {
            assert!(
                life.contains(&expiry),
                "{step}: {expiry} is not in {life:?}"
            );
        }
    }

    let before = expiries(&mut fixture).await;
    limiter.available_permits().await.unwrap();
    assert_eq!(expiries(&mut fixture).await, before);
}

#[tokio::test]
async fn a_limiter_whose_keep_alive_has_passed_leaves_no_key() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(5, ms(1_000)).keep_alive(ms(1_000));
    limiter.try_set_rate(rate).await.unwrap();
    assert!(limiter.try_acquire(4).await.unwrap());
    let last = expiries(&mut fixture).await.into_iter().max().unwrap();
    while keys::time(&mut fixture.raw).await <= last {
        tokio::time::sleep(ms(1)).await;
    }
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(expiries(&mut fixture).await, [-2, -2, -2]);
}

#[tokio::test]
async fn without_a_keep_alive_value_and_permits_live_as_long_as_the_hash() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(expiries(&mut fixture).await, [-1, -1, -1]);

    fixture.run(&["PEXPIRE", NAME, "3600000"]).await;
    for step in ["grant", "denial", "release"] {
        fixture.run(&["PERSIST", VALUE]).await;
        fixture.run(&["PERSIST", PERMITS]).await;
        let before = keys::time(&mut fixture.raw).await;
        match step {
            "grant" => assert!(limiter.try_acquire(4).await.unwrap()),
            // From a client that has not audited the limiter: otherwise a denial writes nothing.
            "denial" => {
                let limiter = fixture.limiter().await;
                assert!(!limiter.try_acquire(4).await.unwrap());
            }
            _ => limiter.release(1).await.unwrap(),
        }
        let [name, value, permits] = expiries(&mut fixture).await;
        let longest = name + keys::time(&mut fixture.raw).await - before;
        for sibling in [value, permits] {
            assert!(
                (name..=longest).contains(&sibling),
                "{step}: {sibling} for {name}"
            );
        }
    }
    // Once the hash has no time to live, the other keys keep theirs.
    let [_, value, permits] = expiries(&mut fixture).await;
    fixture.run(&["PERSIST", NAME]).await;
    assert!(!limiter.try_acquire(5).await.unwrap());
    assert_eq!(expiries(&mut fixture).await, [-1, value, permits]);
}

#[tokio::test]
async fn a_denial_that_finds_the_keys_as_they_should_be_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = patient(&fixture.server.url()).await.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(50_000, HOUR)).await.unwrap();
    // There are so many that a client audits them only from time to time.
    fixture.fill(VALUE, PERMITS, 50_000, 0).await;
    fixture.prevent_audits().await;
    assert!(limiter.expire(HOUR).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    fixture.audit_prevented().await;
    fixture.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..10 {
        assert!(!limiter.try_acquire(1).await.unwrap());
    }
    assert_eq!(keys::calls(&mut fixture.raw, "evalsha").await, 10);
    for write in ["pexpire", "set", "decrby", "zadd", "zremrangebyrank"] {
        assert_eq!(keys::calls(&mut fixture.raw, write).await, 0, "{write}");
    }
    limiter.release(1).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(keys::calls(&mut fixture.raw, "pexpire").await, 4);
}

#[tokio::test]
async fn expire_and_clear_expire_are_for_all_keys_there_are() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let life = with_life!(fixture, HOUR, assert!(limiter.expire(HOUR).await.unwrap()));
    for expiry in expiries(&mut fixture).await {
        assert!(life.contains(&expiry), "{expiry} is not in {life:?}");
    }
    assert!(limiter.clear_expire().await.unwrap());
    assert_eq!(expiries(&mut fixture).await, [-1, -1, -1]);

    let time = std::time::UNIX_EPOCH + ms(4_102_444_800_123);
    assert!(limiter.expire_at(time).await.unwrap());
    assert_eq!(expiries(&mut fixture).await, [4_102_444_800_123; 3]);
}

#[tokio::test]
async fn expire_covers_the_keys_of_this_client_too_and_not_those_of_others() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::per_client(5, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.run(&["SET", "{limiter}:value:other", "1"]).await;
    let time = std::time::UNIX_EPOCH + ms(4_102_444_800_123);
    assert!(limiter.expire_at(time).await.unwrap());
    for (key, expiry) in [
        (NAME, 4_102_444_800_123_i64),
        ("{limiter}:value:client", 4_102_444_800_123),
        ("{limiter}:permits:client", 4_102_444_800_123),
        ("{limiter}:value:other", -1),
    ] {
        let stored: i64 = fixture.raw.pexpire_time(key).await.unwrap();
        assert_eq!(stored, expiry, "{key}");
    }
}

#[tokio::test]
async fn each_condition_is_asked_of_each_key_by_itself() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let far = "4102444800123";
    fixture.run(&["PEXPIREAT", VALUE, far]).await;

    let life = with_life!(
        fixture,
        HOUR,
        assert!(limiter.expire_if_set(HOUR).await.unwrap())
    );
    let [name, value, permits] = expiries(&mut fixture).await;
    assert!(life.contains(&value));
    assert_eq!((name, permits), (-1, -1));

    fixture.run(&["PEXPIREAT", VALUE, far]).await;
    let life = with_life!(
        fixture,
        HOUR,
        assert!(limiter.expire_if_not_set(HOUR).await.unwrap())
    );
    let [name, value, permits] = expiries(&mut fixture).await;
    assert!(life.contains(&name) && life.contains(&permits));
    assert_eq!(value.to_string(), far);

    let life = with_life!(
        fixture,
        2 * HOUR,
        assert!(limiter.expire_if_greater(2 * HOUR).await.unwrap())
    );
    let [name, value, permits] = expiries(&mut fixture).await;
    assert!(life.contains(&name) && life.contains(&permits));
    assert_eq!(value.to_string(), far);

    let life = with_life!(
        fixture,
        3 * HOUR,
        assert!(limiter.expire_if_less(3 * HOUR).await.unwrap())
    );
    let after = expiries(&mut fixture).await;
    assert!(life.contains(&after[1]));
    assert_eq!((after[0], after[2]), (name, permits));
}

#[tokio::test]
async fn removing_the_keep_alive_leaves_the_time_to_live_of_the_hash() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .with(Rate::overall(5, SECOND).keep_alive(HOUR))
        .await;
    let [before, ..] = expiries(&mut fixture).await;
    limiter.set_rate(Rate::overall(5, SECOND)).await.unwrap();
    assert_eq!(expiries(&mut fixture).await, [before, -2, -2]);
    assert!(
        limiter
            .update_rate(Rate::overall(6, SECOND), PermitsInUse::Reset)
            .await
            .unwrap()
    );
    assert_eq!(expiries(&mut fixture).await[0], before);
}

#[tokio::test]
async fn kept_state_gets_the_new_keep_alive_with_the_hash() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let rate = Rate::overall(6, SECOND).keep_alive(HOUR);
    let life = with_life!(
        fixture,
        HOUR,
        assert!(limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap())
    );
    for expiry in expiries(&mut fixture).await {
        assert!(life.contains(&expiry), "{expiry} is not in {life:?}");
    }
    assert_eq!(fixture.value().await.as_deref(), Some("4"));
}
