//! Keys from users: each has its own limiter, whatever it contains.

use std::time::Duration;

use redisson_rate_limiter::{
    Decision, Error, FixedWindow, Limiter, Rate, RedissonClient, TokenBucket,
};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, passed};

/// Keys that would name each other's state if they were not escaped.
const KEYS: [&str; 36] = [
    "u{1",
    "u{1:value",
    "u{1:permits",
    "u{1:value:client",
    "u{1:permits:client",
    "u{1-st",
    "u{1-lock",
    "u{1-window",
    "u{1-periods",
    "u{1-3600999",
    "{u}",
    "{u}:value",
    "{u}:permits:client",
    "{u}-st",
    "{u}-lock",
    "{u}-window",
    "{u}-periods",
    "{u}%",
    "{u}:value%",
    "u",
    "u:value",
    "u:permits",
    "u:permits:client",
    "u-lock",
    "u-st",
    "u%7B1",
    "u%257B1",
    "u}1",
    "{",
    "}",
    "{}",
    "%",
    ":value",
    ":value:client",
    "ü{ñ",
    "ü{ñ:value",
];

/// A limiter of each kind, the cost that uses up one of its targets at once, and a cost that is
/// denied then.
fn by_kind(
    client: &RedissonClient,
    prefix: &str,
) -> Vec<(&'static str, [u32; 2], Box<dyn Limiter>)> {
    let keyed = client.keyed_rate_limiter(prefix, Rate::per_client(1, HOUR));
    let mut kinds: Vec<(_, _, Box<dyn Limiter>)> =
        vec![("keyed", [1, 1], Box::new(keyed.unwrap()))];
    for (policy, unit) in every_policy(2) {
        let name = policy.algorithm();
        let limiter = client.policy_limiter(policy).unwrap().with_prefix(prefix);
        let limiter = limiter.with_penalty(Duration::from_secs(60)).unwrap();
        kinds.push((name, [2 * unit, unit], Box::new(limiter)));
    }
    kinds
}

pub async fn no_two_keys_share_state_whatever_they_hold(fixture: Fixture) {
    let client = fixture.client("client").await;
    let kinds: Vec<_> = by_kind(&client, "").iter().map(|kind| kind.0).collect();
    for (place, kind) in kinds.into_iter().enumerate() {
        let own = format!("{}-{kind}", fixture.name());
        for prefix in [
            format!("{own}:"),
            format!("{{{own}}}:"),
            format!("{{{own}}}"),
        ] {
            let (_, [all, more], limiter) = by_kind(&client, &prefix).swap_remove(place);
            for key in KEYS {
                let decision = limiter.check(key, all).await;
                let is_granted = decision.as_ref().is_ok_and(Decision::is_granted);
                assert!(is_granted, "{prefix} {key}: {decision:?}");
            }
            for key in KEYS {
                let decision = limiter.check(key, more).await;
                let is_denied = decision.as_ref().is_ok_and(|it| !it.is_granted());
                assert!(is_denied, "{prefix} {key}: {decision:?}");
            }
        }
    }
}

pub async fn a_key_without_a_prefix_may_begin_with_a_hash_tag_and_with_nothing_else(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let one = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let other = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
    let charges = [
        one.charge(&format!("{tag}:one"), 1).unwrap(),
        other.charge(&format!("{tag}:other{{1"), 1).unwrap(),
    ];
    assert!(client.check_all(charges).await.unwrap().is_granted());
    for key in [format!("{tag}:one{{1"), format!("{tag}:one{{1:value"), tag] {
        assert!(passed(&one, &key, 1).await, "{key}");
        assert!(!passed(&one, &key, 1).await, "{key}");
    }
}

pub async fn a_key_is_on_one_line_of_an_errors_message_whatever_it_holds(fixture: Fixture) {
    let client = fixture.client("client").await;
    let prefix = format!("{}:", fixture.name());
    let key = "a\nWARN b\u{1b}[2J\r\u{202e}";
    let shown = r"a\nWARN b\u{1b}[2J\r\u{202e}";
    let keyed = client
        .keyed_rate_limiter(&prefix, Rate::overall(3, HOUR))
        .unwrap();
    let window = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    let window = window.with_prefix(&*prefix);
    let limiter = client.rate_limiter(&format!("{prefix}{key}"));
    let errors = [
        limiter.try_acquire(1).await.unwrap_err(),
        keyed.check(key, 4).await.unwrap_err(),
        window.check(key, 4).await.unwrap_err(),
    ];
    for error in errors {
        let message = error.to_string();
        assert!(message.contains(&format!("`{prefix}{shown}`")), "{message}");
    }
}

pub async fn a_keys_limiter_is_the_one_that_decided(fixture: Fixture) {
    let client = fixture.client("client").await;
    for prefix in [
        format!("{}:", fixture.name()),
        format!("{{{}}}:", fixture.name()),
    ] {
        let keyed = client
            .keyed_rate_limiter(&prefix, Rate::overall(3, HOUR))
            .unwrap();
        for key in KEYS {
            assert!(passed(&keyed, key, 1).await);
            assert_eq!(
                keyed.rate_limiter(key).available_permits().await.unwrap(),
                2,
                "{key}"
            );
        }
    }
}

pub async fn an_empty_key_is_refused_unless_it_is_accepted(fixture: Fixture) {
    let client = fixture.client("client").await;
    let prefix = format!("{}:", fixture.name());
    let rate = Rate::overall(5, HOUR);
    let keyed = client.keyed_rate_limiter(&prefix, rate).unwrap();
    let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let window = window.with_prefix(format!("{prefix}window:"));
    let refusals = [
        keyed.check("", 1).await.map(drop),
        keyed.check_with_rate("", 1, rate).await.map(drop),
        keyed.charge("", 1).map(drop),
        keyed.charge_with_rate("", 1, rate).map(drop),
        keyed.peek("", 1).await.map(drop),
        keyed.reset("").await.map(drop),
        keyed.acquire("", 1).await,
        keyed.try_acquire("", 1).await.map(drop),
        keyed.try_acquire_timeout("", 1, HOUR).await.map(drop),
        keyed.rate_limiter("").check(1).await.map(drop),
        window.check("", 1).await.map(drop),
        window.check_without_waiting("", 1).await.map(drop),
        window.charge("", 1).map(drop),
        window.peek("", 1).await.map(drop),
        window.reset("").await.map(drop),
    ];
    for (place, refused) in refusals.into_iter().enumerate() {
        assert!(matches!(refused, Err(Error::InvalidName { .. })), "{place}");
    }
    let keyed = keyed.accept_empty_key();
    assert!(keyed.check("", 2).await.unwrap().is_granted());
    assert_eq!(keyed.rate_limiter("").name(), prefix);
    assert_eq!(keyed.peek("", 1).await.unwrap().remaining(), 2);
    let window = window.accept_empty_key();
    assert_eq!(window.check("", 2).await.unwrap().remaining(), 3);
}
