//! Names, fields and bytes of the five keys.

use redis::AsyncCommands;
use redisson_rate_limiter::{Decision, Granted, PermitsInUse, Rate};

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE, ms};
use crate::keys;

#[tokio::test]
async fn setting_a_rate_makes_one_key_a_hash_of_four_numbers() {
    let mut fixture = Fixture::start().await;
    let rate = Rate::per_client(1 << 53, ms(1_500)).keep_alive(HOUR);
    for rate_first in [true, false] {
        let limiter = fixture.limiter().await;
        if rate_first {
            assert!(limiter.try_set_rate(rate).await.unwrap());
        } else {
            limiter.set_rate(rate).await.unwrap();
        }
        assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
        let mut fields: Vec<(String, String)> = fixture.raw.hgetall(NAME).await.unwrap();
        fields.sort();
        let expected = [
            ("interval", "1500"),
            ("keepAliveTime", "3600000"),
            ("rate", "9007199254740992"),
            ("type", "1"),
        ];
        assert_eq!(fields, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert!(limiter.delete().await.unwrap());
        assert_eq!(keys::names(&mut fixture.raw).await, Vec::<String>::new());
    }
    fixture.with(Rate::overall(5, SECOND)).await;
    let fields: Vec<String> = fixture
        .raw
        .hmget(NAME, &["type", "keepAliveTime"])
        .await
        .unwrap();
    assert_eq!(fields, ["0", "0"]);
}

#[tokio::test]
async fn a_grant_is_a_member_of_a_length_16_random_bytes_and_the_permits() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(1_000, SECOND)).await;
    fixture.at(1_700_000_000_123);
    assert!(limiter.try_acquire(3).await.unwrap());
    assert!(limiter.try_acquire(258).await.unwrap());
    assert_eq!(keys::names(&mut fixture.raw).await, [NAME, PERMITS, VALUE]);
    assert_eq!(fixture.value().await.as_deref(), Some("739"));
    let stored: Vec<(Vec<u8>, i64)> = fixture.raw.zrange_withscores(PERMITS, 0, -1).await.unwrap();
    let mut ends: Vec<&[u8]> = stored.iter().map(|(bytes, _)| &bytes[17..]).collect();
    ends.sort();
    assert_eq!(ends, [&[2, 1, 0, 0][..], &[3, 0, 0, 0]]);
    for (bytes, score) in &stored {
        assert_eq!((bytes.len(), bytes[0], *score), (21, 16, 1_700_000_000_123));
    }
    assert_ne!(stored[0].0[1..17], stored[1].0[1..17]);
    let types: (String, String) = redis::pipe()
        .cmd("TYPE")
        .arg(VALUE)
        .cmd("TYPE")
        .arg(PERMITS)
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    assert_eq!(types, ("string".to_owned(), "zset".to_owned()));
}

#[tokio::test]
async fn each_step_leaves_the_value_and_the_members_that_the_invariant_demands() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    assert_eq!(fixture.value().await, None);
    fixture.at(1_000);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("4"));
    assert_eq!(fixture.grants().await, [(1_000, 1)]);
    fixture.at(1_100);
    assert!(limiter.try_acquire(2).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
    fixture.at(1_200);
    assert!(!limiter.try_acquire(3).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
    assert_eq!(fixture.grants().await, [(1_000, 1), (1_100, 2)]);
    // A denial, too, restores the invariant.
    fixture.at(2_000);
    assert!(!limiter.try_acquire(4).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("3"));
    assert_eq!(fixture.grants().await, [(1_100, 2)]);
    fixture.at(2_100);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("4"));
    assert_eq!(fixture.grants().await, [(2_100, 1)]);
    limiter.release(1).await.unwrap();
    assert_eq!(fixture.value().await.as_deref(), Some("5"));
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn a_partly_released_grant_keeps_its_score_and_its_random_bytes() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    let before = keys::members(&mut fixture.raw, PERMITS).await;
    fixture.at(1_500);
    limiter.release(2).await.unwrap();
    let after = keys::members(&mut fixture.raw, PERMITS).await;
    assert_eq!(after.len(), 1);
    assert_eq!((after[0].score, after[0].permits), (1_000, 3));
    assert_eq!(after[0].random, before[0].random);
    assert_eq!(fixture.value().await.as_deref(), Some("7"));
}

#[tokio::test]
async fn the_value_is_below_zero_while_more_than_a_lowered_rate_is_in_use() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, SECOND)).await;
    let Decision::Granted(Granted { grant, .. }) = limiter.check(8).await.unwrap() else {
        panic!("it was denied");
    };
    let lower = Rate::overall(5, SECOND);
    limiter
        .set_rate_with(lower, PermitsInUse::Keep)
        .await
        .unwrap();
    assert_eq!(fixture.value().await.as_deref(), Some("-3"));
    assert_eq!(limiter.refund(grant).await.unwrap(), 8);
    assert_eq!(fixture.value().await.as_deref(), Some("5"));
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn per_client_the_id_stands_at_the_end_and_each_client_has_its_own_pair() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::per_client(5, SECOND)).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let other = fixture
        .builder()
        .client_id("other")
        .connect(&fixture.server.url())
        .await
        .unwrap();
    assert!(other.rate_limiter(NAME).try_acquire(3).await.unwrap());
    let expected = [
        NAME,
        "{limiter}:permits:client",
        "{limiter}:permits:other",
        "{limiter}:value:client",
        "{limiter}:value:other",
    ];
    assert_eq!(keys::names(&mut fixture.raw).await, expected);
    // Deleting does not affect the keys of other clients.
    assert!(limiter.delete().await.unwrap());
    let expected = ["{limiter}:permits:other", "{limiter}:value:other"];
    assert_eq!(keys::names(&mut fixture.raw).await, expected);
}

#[tokio::test]
async fn a_name_with_a_brace_stays_bare_and_any_other_is_put_in_braces() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    for (name, value) in [
        ("a{b", "a{b:value"),
        ("{}", "{}:value"),
        ("a}b", "{a}b}:value"),
        ("a{t}b", "a{t}b:value"),
        (" a:b\n", "{ a:b\n}:value"),
        ("grün", "{grün}:value"),
    ] {
        let limiter = client.rate_limiter(name);
        limiter
            .try_set_rate(Rate::overall(5, SECOND))
            .await
            .unwrap();
        assert!(limiter.try_acquire(2).await.unwrap());
        let stored: Option<String> = fixture.raw.get(value).await.unwrap();
        assert_eq!(stored.as_deref(), Some("3"), "{name}");
        assert!(limiter.delete().await.unwrap());
        assert_eq!(keys::names(&mut fixture.raw).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_change_of_the_type_leaves_no_key_of_the_old_one() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    for (rate, state) in [
        (Rate::per_client(5, SECOND), PermitsInUse::Keep),
        (Rate::overall(5, SECOND), PermitsInUse::Reset),
    ] {
        assert!(limiter.try_acquire(2).await.unwrap());
        assert!(limiter.update_rate(rate, state).await.unwrap());
        assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
    }
}

#[tokio::test]
async fn a_release_on_an_untouched_limiter_writes_the_whole_rate() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(5, SECOND)).await;
    limiter.release(4).await.unwrap();
    assert_eq!(fixture.value().await.as_deref(), Some("5"));
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn try_set_rate_adds_the_keep_alive_that_an_older_redisson_did_not_know() {
    let mut fixture = Fixture::start().await;
    fixture
        .run(&["HSET", NAME, "rate", "5", "interval", "1000", "type", "0"])
        .await;
    let limiter = fixture.limiter().await;
    assert_eq!(
        limiter.config().await.unwrap(),
        Some(Rate::overall(5, SECOND))
    );
    assert!(limiter.try_acquire(2).await.unwrap());
    assert!(
        !limiter
            .try_set_rate(Rate::overall(7, SECOND))
            .await
            .unwrap()
    );
    let fields: (String, String) = fixture
        .raw
        .hmget(NAME, &["rate", "keepAliveTime"])
        .await
        .unwrap();
    assert_eq!(fields, ("5".to_owned(), "0".to_owned()));
    assert_eq!(fixture.value().await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_client_without_settings_has_a_uuid_for_an_id() {
    let mut fixture = Fixture::start().await;
    let client = patient(&fixture.server.url()).await;
    let limiter = client.rate_limiter(NAME);
    limiter
        .try_set_rate(Rate::per_client(5, SECOND))
        .await
        .unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    uuid::Uuid::parse_str(client.id()).unwrap();
    let value: i64 = fixture
        .raw
        .get(format!("{VALUE}:{}", client.id()))
        .await
        .unwrap();
    assert_eq!(value, 4);
}
