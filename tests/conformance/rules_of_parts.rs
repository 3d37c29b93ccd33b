//! Rules that decide a request of several parts, such as the descriptors of Envoy's protocol.

use std::time::Duration;

use redisson_rate_limiter::{
    Chargeable, Decision, Error, FixedWindow, JointDecision, LeakyBucket, Plan, Rate,
    RedissonClient, Rule, Rules, Verdict,
};

use crate::fixture::{Fixture, HOUR, SECOND, ms};

/// What a part counts for, and how much.
type Part = (&'static str, u32);

fn rule(
    limiter: impl Chargeable + 'static,
    fixture: &Fixture,
    kind: &'static str,
) -> Rule<Part, &'static str> {
    let tag = fixture.name().to_owned();
    let target = move |part: &Part| {
        let of_kind = part.0.starts_with(kind);
        of_kind.then(|| format!("{{{tag}}}{}", part.0))
    };
    Rule::new(limiter, target, |part, _| part.0).cost(|part| part.1)
}

fn window(client: &RedissonClient, limit: u32, name: &str) -> impl Chargeable + use<> {
    let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
    limiter.unwrap().with_name(name)
}

/// Two for each user, three for each path.
async fn rules(fixture: &Fixture) -> Rules<Part, &'static str> {
    let client = fixture.client("client").await;
    let users = rule(window(&client, 2, "users"), fixture, "user");
    let paths = rule(window(&client, 3, "paths"), fixture, "path")
        .with_plan("blocked", Plan::Block)
        .plan_of(|part, _| (part.0 == "path-closed").then(|| "blocked".to_owned()));
    client.rules([users, paths]).unwrap()
}

/// The decision on a request that is granted.
fn granted(verdict: Verdict<&'static str>) -> JointDecision {
    match verdict {
        Verdict::Granted(granted) => granted.into_decision().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn rejects(rules: &Rules<Part, &'static str>, parts: &[Part]) -> Option<&'static str> {
    match rules.check_all(parts).await.unwrap() {
        Verdict::Granted(_) => None,
        Verdict::Rejected(why, _) => Some(why),
    }
}

pub async fn all_parts_of_a_request_are_granted_or_none_is_charged(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [("user-alice", 1), ("user-bob", 2), ("path-a", 1)];
    assert_eq!(rejects(&rules, &parts).await, None);
    assert_eq!(rejects(&rules, &parts).await, Some("user-bob"));
    assert_eq!(rejects(&rules, &parts[..1]).await, None); // alice was charged once
    assert_eq!(rejects(&rules, &[("path-a", 2)]).await, None);
    assert_eq!(rejects(&rules, &[("path-a", 1)]).await, Some("path-a"));
    assert_eq!(rejects(&rules, &[("other", 9)]).await, None);
    assert_eq!(rejects(&rules, &[]).await, None);
}

fn of_part(joint: &JointDecision, part: usize) -> Vec<(String, u64, bool)> {
    let decisions = joint.of_part(part);
    decisions
        .map(|(name, it)| (name.to_owned(), it.remaining(), it.is_granted()))
        .collect()
}

pub async fn limiters_say_which_part_of_a_request_they_decided_on(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [("other", 1), ("path-a", 1), ("user-alice", 2)];
    let joint = granted(rules.check_all(&parts).await.unwrap());
    assert_eq!(of_part(&joint, 0), []);
    assert_eq!(of_part(&joint, 1), [("paths".to_owned(), 2, true)]);
    assert_eq!(of_part(&joint, 2), [("users".to_owned(), 0, true)]);
    // Also where there is one only.
    let one = [("other", 1), ("path-a", 1)];
    let joint = granted(rules.check_all(&one).await.unwrap());
    assert_eq!(of_part(&joint, 0), []);
    assert_eq!(of_part(&joint, 1), [("paths".to_owned(), 1, true)]);
}

pub async fn a_part_that_is_blocked_charges_no_other(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [("user-alice", 2), ("path-closed", 1)];
    for verdict in [rules.peek_all(&parts).await, rules.check_all(&parts).await] {
        let Verdict::Rejected("path-closed", joint) = verdict.unwrap() else {
            panic!("it is not blocked");
        };
        assert_eq!(of_part(&joint, 0), []);
        assert_eq!(of_part(&joint, 1), [("paths".to_owned(), 0, false)]);
    }
    assert_eq!(rejects(&rules, &parts[..1]).await, None);
}

pub async fn parts_are_peeked_and_nothing_is_charged(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [("path-a", 1), ("user-alice", 2)];
    for _ in 0..2 {
        let joint = granted(rules.peek_all(&parts).await.unwrap());
        assert_eq!(of_part(&joint, 1), [("users".to_owned(), 0, true)]);
    }
    assert_eq!(rejects(&rules, &parts).await, None);
    let denied = rules.peek_all(&parts).await.unwrap();
    assert!(matches!(denied, Verdict::Rejected("user-alice", _)));
    let nobody = rules.peek_all(&[("other", 1)]).await.unwrap();
    assert_eq!(nobody.decision(), None);
}

pub async fn each_part_of_a_request_is_settled_by_its_own_cost(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tokens = client.keyed_rate_limiter("", Rate::overall(10, HOUR));
    let tokens = tokens.unwrap();
    let rules = client.rules([rule(tokens.clone(), &fixture, "user")]);
    let rules = rules.unwrap();
    let parts = [("user-alice", 2), ("user-bob", 2)];
    let joint = granted(rules.check_all(&parts).await.unwrap());
    let settled = rules.settle(joint, |_, part| [Some(1), Some(5)][part]);
    settled.await.unwrap();
    for (user, left) in [("user-alice", 9), ("user-bob", 5)] {
        let user = tokens.rate_limiter(&format!("{{{}}}{user}", fixture.name()));
        assert_eq!(user.available_permits().await.unwrap(), left);
    }
}

pub async fn parts_that_count_for_one_target_are_charged_together(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [("path-a", 1), ("user-a", 1), ("path-a", 1)];
    for verdict in [rules.peek_all(&parts).await, rules.check_all(&parts).await] {
        let joint = granted(verdict.unwrap());
        for place in [0, 2] {
            assert_eq!(of_part(&joint, place), [("paths".to_owned(), 1, true)]);
        }
        assert_eq!(of_part(&joint, 1), [("users".to_owned(), 1, true)]);
        assert_eq!(joint.decisions().len(), 2);
    }
    assert_eq!(rejects(&rules, &parts).await, Some("path-a"));
    assert_eq!(rejects(&rules, &parts[1..]).await, None);
    // Alone too, and never for less than they cost.
    assert_eq!(rejects(&rules, &[("user-b", 1), ("user-b", 1)]).await, None);
    assert_eq!(rejects(&rules, &[("user-b", 1)]).await, Some("user-b"));
    let most = [("user-c", u32::MAX), ("user-c", 1)];
    for refused in [rules.check_all(&most).await, rules.peek_all(&most).await] {
        let Err(Error::InvalidArgument { argument, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(argument, "cost");
    }
    assert_eq!(rejects(&rules, &[("user-c", 2)]).await, None);
}

pub async fn a_request_whose_turn_would_be_too_late_is_not_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let paced = LeakyBucket::new(1, SECOND).with_capacity(9);
    let paced = client.policy_limiter(paced).unwrap();
    let waiting = |longest: Duration| {
        let rule = rule(paced.clone(), &fixture, "user");
        client.rules([rule.longest_turn(move |_| longest)]).unwrap()
    };
    let (short, long) = (waiting(ms(999)), waiting(SECOND));
    assert_eq!(rejects(&short, &[("user", 1)]).await, None); // the first one waits for nothing
    for _ in 0..3 {
        assert_eq!(rejects(&short, &[("user", 1)]).await, Some("user"));
        let peeked = short.peek_all(&[("user", 1)]).await.unwrap();
        let Verdict::Rejected("user", joint) = peeked else {
            panic!("{peeked:?}");
        };
        assert_eq!(joint.deciding().1.retry_after(), Some(SECOND));
        // It would be the next one: none of those before has a place.
        let peeked = long.peek_all(&[("user", 1)]).await.unwrap();
        let decision = granted(peeked).into_decision();
        assert!(
            matches!(&decision, Decision::Granted(it) if it.delay == SECOND),
            "{decision:?}"
        );
    }
    let late = short.check_all(&[("user", 2)]).await;
    assert!(
        matches!(late, Err(Error::ExceedsLimit { limit: 1, .. })),
        "{late:?}"
    );
}

/// No rule is to blame for that.
pub async fn more_parts_than_are_decided_together_are_refused(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let users = (0..33).map(|it| (&*format!("user-{it}").leak(), 1));
    let users: Vec<_> = users.collect();
    let many = rules.check_all(&users).await;
    let Err(Error::InvalidArgument { argument, .. }) = many else {
        panic!("{many:?}");
    };
    assert_eq!(argument, "charges");
    assert_eq!(rejects(&rules, &users[..32]).await, None);
}

pub async fn there_may_be_more_rules_than_decide_a_request(fixture: Fixture) {
    let client = fixture.client("client").await;
    let kinds = (0..40).map(|it| &*format!("{it:02}").leak());
    let many = kinds.map(|kind: &'static str| rule(window(&client, 1, kind), &fixture, kind));
    let rules = client.rules(many.collect::<Vec<_>>()).unwrap();
    for expected in [None, Some("39")] {
        assert_eq!(rejects(&rules, &[("39", 1)]).await, expected);
    }
}

pub async fn a_release_gives_back_to_each_rratelimiter_that_applies(fixture: Fixture) {
    let client = fixture.client("client").await;
    let shared = client.keyed_rate_limiter("shared:", Rate::overall(3, HOUR));
    let users = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let users = rule(users.with_prefix("users:"), &fixture, "user");
    let rules = client
        .rules([rule(shared.unwrap(), &fixture, "user"), users])
        .unwrap();
    let alice = ("user-alice", 3);
    assert_eq!(rejects(&rules, &[alice]).await, None);
    assert_eq!(rejects(&rules, &[alice]).await, Some("user-alice"));
    assert_eq!(rules.release(&("user-alice", 2)).await.unwrap(), 1);
    assert_eq!(rejects(&rules, &[("user-alice", 2)]).await, None);
    assert_eq!(
        rejects(&rules, &[("user-alice", 1)]).await,
        Some("user-alice")
    );
    assert_eq!(rules.release(&("other", 1)).await.unwrap(), 0);
    // Nobody has asked for that one, so nothing of it is in use.
    assert_eq!(rules.release(&("user-bob", 1)).await.unwrap(), 0);
}

/// One of the limiters has a key of another kind; the others, before and after it, take their
/// permits back.
pub async fn a_release_that_one_limiter_refuses_reaches_the_others(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = |name: &str| client.rate_limiter(&format!("{{{}}}{name}", fixture.name()));
    for name in ["first", "last"] {
        let rate = Rate::overall(5, HOUR);
        limiter(name).set_rate(rate).await.unwrap();
        assert!(limiter(name).try_acquire(5).await.unwrap());
    }
    let other = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let other = other.check(limiter("spoilt").name(), 1).await;
    assert!(other.unwrap().is_granted());
    let all = ["first", "spoilt", "last"].map(|name| rule(limiter(name), &fixture, "user"));
    let rules = client.rules(all).unwrap();
    let refused = rules.release(&("user-alice", 2)).await;
    assert!(
        matches!(refused, Err(Error::BadState { .. })),
        "{refused:?}"
    );
    for name in ["first", "last"] {
        assert_eq!(limiter(name).available_permits().await.unwrap(), 2);
    }
}
