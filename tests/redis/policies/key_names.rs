//! The names of targets in Redis: ordinary keys are unchanged, others are escaped so that no two
//! collide.

use redisson_rate_limiter::{FixedWindow, Rate};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR};
use crate::keys;

#[tokio::test]
async fn ordinary_keys_are_unchanged_and_ambiguous_ones_are_escaped() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let plain = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let tagged = plain.clone().with_prefix("{shop}:");
    for (limiter, key, name) in [
        (&plain, "rate:limit:123:/a%20b", "rate:limit:123:/a%20b"),
        (&plain, "{shop}:alice", "{shop}:alice"),
        (&plain, "u:value", "u:value"),
        (&plain, "u{1", "u%7B1"),
        (&plain, "u%7B1", "u%257B1"),
        (&plain, "user:{shop}:alice", "user:%7Bshop%7D:alice"),
        (&tagged, "bob", "{shop}:bob"),
        (&tagged, "user-123", "{shop}:user-123"),
        (&tagged, "u:value", "{shop}:u:value%"),
        (&tagged, "{x}", "{shop}:%7Bx%7D"),
    ] {
        fixture.run(&["FLUSHALL"]).await;
        assert!(limiter.check(key, 1).await.unwrap().is_granted());
        assert_eq!(keys::names(&mut fixture.raw).await, [name]);
    }
}

/// If the keys of a new policy end in another way, the ending belongs into `ENDS` of `src/keys.rs`.
#[tokio::test]
async fn no_target_writes_a_key_that_another_one_writes() {
    const PREFIX: &str = "{shop}:";
    let mut fixture = Fixture::start().await;
    fixture.at(1_700_000_000_000);
    let client = fixture.client().await;
    for (policy, unit) in every_policy(2) {
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_prefix(PREFIX).with_penalty(HOUR).unwrap();
        let mut of_key = async |key: &str| {
            fixture.run(&["FLUSHALL"]).await;
            for is_granted in [true, false] {
                let decision = limiter.check_without_waiting(key, 2 * unit).await;
                assert_eq!(decision.unwrap().is_granted(), is_granted);
            }
            keys::names(&mut fixture.raw).await
        };
        let written = of_key("u").await;
        for key in written.iter().filter_map(|name| name.strip_prefix(PREFIX)) {
            let shared: Vec<_> = { of_key(key).await.into_iter() }
                .filter(|name| key != "u" && written.contains(name))
                .collect();
            assert_eq!(shared, Vec::<String>::new(), "{key}");
        }
    }
}

#[tokio::test]
async fn a_keyed_limiters_keys_are_redissons_of_prefix_and_key() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    for (prefix, key, names) in [
        (
            "limit:",
            "testLock997",
            [
                "limit:testLock997",
                "{limit:testLock997}:permits",
                "{limit:testLock997}:value",
            ],
        ),
        (
            "{shop}:",
            "alice",
            ["{shop}:alice", "{shop}:alice:permits", "{shop}:alice:value"],
        ),
        (
            "limit:",
            "{alice",
            [
                "limit:%7Balice",
                "{limit:%7Balice}:permits",
                "{limit:%7Balice}:value",
            ],
        ),
    ] {
        fixture.run(&["FLUSHALL"]).await;
        let keyed = client.keyed_rate_limiter(prefix, Rate::overall(1, HOUR));
        assert!(keyed.unwrap().check(key, 1).await.unwrap().is_granted());
        let mut found = keys::names(&mut fixture.raw).await;
        found.sort_unstable();
        let mut names = names.map(str::to_owned);
        names.sort_unstable();
        assert_eq!(found, names);
    }
}

#[tokio::test]
async fn ambiguous_names_are_escaped_too_if_a_mapper_makes_a_hash_tag() {
    let fixture = Fixture::start().await;
    let builder = fixture
        .builder()
        .name_mapper(|name| format!("{{app}}:{name}"));
    let client = builder.connect(&fixture.server.url()).await.unwrap();
    let keyed = client
        .keyed_rate_limiter("", Rate::overall(1, HOUR))
        .unwrap();
    for key in ["u", "u:value", "u:permits", "u:value:client"] {
        assert!(keyed.check(key, 1).await.unwrap().is_granted(), "{key}");
        assert!(
            !keyed.rate_limiter(key).try_acquire(1).await.unwrap(),
            "{key}"
        );
    }
}
