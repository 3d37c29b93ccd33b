//! Rules that decide a request of several parts, such as the descriptors of Envoy's protocol.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{
    Attributes, Chargeable, Decision, Error, FixedWindow, JointDecision, LeakyBucket, Plan, Rate,
    RedissonClient, Rule, Rules, Verdict,
};

use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::told::Told;

/// What a part counts for, and how much.
#[derive(Debug, Clone, Copy)]
struct Part(&'static str, u32);

impl Attributes for Part {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "cost" => Some(self.1.to_string().into()),
            _ => self.0.starts_with(name).then(|| self.0.into()),
        }
    }
}

/// A part with a bound on its turn.
struct Waits(Part, Duration);

impl Attributes for Waits {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.attribute(name)
    }

    fn longest_turn(&self) -> Option<Duration> {
        Some(self.1)
    }
}

fn rule(limiter: impl Chargeable + 'static, kind: &'static str) -> Rule {
    Rule::new(limiter).by([kind])
}

fn window(
    fixture: &Fixture,
    client: &RedissonClient,
    limit: u32,
    name: &str,
) -> impl Chargeable + use<> {
    let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
    let prefix = format!("{{{}}}{name}:", fixture.name());
    limiter.unwrap().with_prefix(prefix).with_name(name)
}

/// Two for each user, three for each path.
async fn rules(fixture: &Fixture) -> Rules {
    let client = fixture.client("client").await;
    let users = rule(window(fixture, &client, 2, "users"), "user");
    let paths = rule(window(fixture, &client, 3, "paths"), "path")
        .with_plan("blocked", Plan::Block)
        .key("path-closed", "blocked");
    client.rules([users, paths]).unwrap()
}

/// The decision on a request that is granted.
fn granted(verdict: Verdict) -> JointDecision {
    match verdict {
        Verdict::Granted(granted) => granted.into_decision().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// What the denied part counts for.
async fn denies(rules: &Rules, parts: &[Part]) -> Option<&'static str> {
    let Verdict::Denied(joint) = rules.check_all(parts).await.unwrap() else {
        return None;
    };
    let deciding = joint.deciding();
    let mut places = 0..parts.len();
    let place = places.find(|it| joint.of_part(*it).any(|it| std::ptr::eq(it.1, deciding.1)));
    Some(parts[place.unwrap()].0)
}

pub async fn all_parts_of_a_request_are_granted_or_none_is_charged(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [
        Part("user-alice", 1),
        Part("user-bob", 2),
        Part("path-a", 1),
    ];
    assert_eq!(denies(&rules, &parts).await, None);
    assert_eq!(denies(&rules, &parts).await, Some("user-bob"));
    assert_eq!(denies(&rules, &parts[..1]).await, None); // alice was charged once
    assert_eq!(denies(&rules, &[Part("path-a", 2)]).await, None);
    assert_eq!(denies(&rules, &[Part("path-a", 1)]).await, Some("path-a"));
    assert_eq!(denies(&rules, &[Part("other", 9)]).await, None);
    assert_eq!(denies(&rules, &[]).await, None);
}

fn of_part(joint: &JointDecision, part: usize) -> Vec<(String, u64, bool)> {
    let decisions = joint.of_part(part);
    decisions
        .map(|(name, it)| (name.to_owned(), it.remaining(), it.is_granted()))
        .collect()
}

pub async fn limiters_say_which_part_of_a_request_they_decided_on(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [Part("other", 1), Part("path-a", 1), Part("user-alice", 2)];
    let joint = granted(rules.check_all(&parts).await.unwrap());
    assert_eq!(of_part(&joint, 0), []);
    assert_eq!(of_part(&joint, 1), [("paths".to_owned(), 2, true)]);
    assert_eq!(of_part(&joint, 2), [("users".to_owned(), 0, true)]);
    // Also if there is only one part.
    let one = [Part("other", 1), Part("path-a", 1)];
    let joint = granted(rules.check_all(&one).await.unwrap());
    assert_eq!(of_part(&joint, 0), []);
    assert_eq!(of_part(&joint, 1), [("paths".to_owned(), 1, true)]);
}

pub async fn a_part_that_is_blocked_charges_no_other(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [Part("user-alice", 2), Part("path-closed", 1)];
    for verdict in [rules.peek_all(&parts).await, rules.check_all(&parts).await] {
        let Verdict::Denied(joint) = verdict.unwrap() else {
            panic!("it is not blocked");
        };
        assert_eq!(of_part(&joint, 0), []);
        assert_eq!(of_part(&joint, 1), [("paths".to_owned(), 0, false)]);
    }
    assert_eq!(denies(&rules, &parts[..1]).await, None);
}

pub async fn parts_are_peeked_and_nothing_is_charged(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [Part("path-a", 1), Part("user-alice", 2)];
    for _ in 0..2 {
        let joint = granted(rules.peek_all(&parts).await.unwrap());
        assert_eq!(of_part(&joint, 1), [("users".to_owned(), 0, true)]);
    }
    assert_eq!(denies(&rules, &parts).await, None);
    let denied = rules.peek_all(&parts).await.unwrap();
    let Verdict::Denied(joint) = denied else {
        panic!("it is granted");
    };
    assert_eq!(joint.deciding().0, "users");
    let nobody = rules.peek_all(&[Part("other", 1)]).await.unwrap();
    assert_eq!(nobody.decision(), None);
}

pub async fn each_part_of_a_request_is_settled_by_its_own_cost(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tokens =
        client.keyed_rate_limiter(&format!("{{{}}}", fixture.name()), Rate::overall(10, HOUR));
    let tokens = tokens.unwrap();
    let rules = client.rules([rule(tokens.clone(), "user")]);
    let rules = rules.unwrap();
    let parts = [Part("user-alice", 2), Part("user-bob", 2)];
    let joint = granted(rules.check_all(&parts).await.unwrap());
    let settled = rules.settle(joint, |_, part| [Some(1), Some(5)][part]);
    settled.await.unwrap();
    for Part(user, left) in [Part("user-alice", 9), Part("user-bob", 5)] {
        let user = tokens.rate_limiter(user);
        assert_eq!(user.available_permits().await.unwrap(), u64::from(left));
    }
}

pub async fn parts_that_were_charged_together_are_settled_by_the_sum_of_their_costs(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    let prefix = format!("{{{}}}", fixture.name());
    let tokens = client.keyed_rate_limiter(&prefix, Rate::overall(20, HOUR));
    let tokens = tokens.unwrap();
    let rules = client.rules([rule(tokens.clone(), "user")]).unwrap();
    let alice = tokens.rate_limiter("user-alice");
    let three = [
        Part("user-alice", 2),
        Part("user-alice", 3),
        Part("user-alice", 4),
    ];
    for (costs, together) in [
        ([Some(1), Some(2), Some(3)], 6),
        ([Some(9), None, None], 16),
        ([None, None, None], 9),
        ([Some(0), Some(0), Some(0)], 0),
    ] {
        let granted = granted(rules.check_all(&three).await.unwrap());
        let settled = rules.settle(granted, |_, part| costs[part]);
        settled.await.unwrap();
        let left = alice.available_permits().await.unwrap();
        assert_eq!(left, 20 - together, "{costs:?}");
        alice.set_rate(Rate::overall(20, HOUR)).await.unwrap();
    }
}

pub async fn parts_that_count_for_one_target_are_charged_together(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let parts = [Part("path-a", 1), Part("user-a", 1), Part("path-a", 1)];
    for verdict in [rules.peek_all(&parts).await, rules.check_all(&parts).await] {
        let joint = granted(verdict.unwrap());
        for place in [0, 2] {
            assert_eq!(of_part(&joint, place), [("paths".to_owned(), 1, true)]);
        }
        assert_eq!(of_part(&joint, 1), [("users".to_owned(), 1, true)]);
        assert_eq!(joint.decisions().len(), 2);
    }
    assert_eq!(denies(&rules, &parts).await, Some("path-a"));
    assert_eq!(denies(&rules, &parts[1..]).await, None);
    // They are charged together also if they are alone, and never for less than they cost.
    assert_eq!(
        denies(&rules, &[Part("user-b", 1), Part("user-b", 1)]).await,
        None
    );
    assert_eq!(denies(&rules, &[Part("user-b", 1)]).await, Some("user-b"));
    let most = [Part("user-c", u32::MAX), Part("user-c", 1)];
    for refused in [rules.check_all(&most).await, rules.peek_all(&most).await] {
        let Err(Error::InvalidArgument { argument, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(argument, "cost");
    }
    assert_eq!(denies(&rules, &[Part("user-c", 2)]).await, None);
}

pub async fn parts_of_several_plans_are_charged_to_the_limiters_of_these(fixture: Fixture) {
    let client = fixture.client("client").await;
    let large = Plan::Limit(Arc::new(window(&fixture, &client, 5, "large")));
    let small = rule(window(&fixture, &client, 2, "small"), "user");
    let rules = client.rules([small.with_plan("large", large)]).unwrap();
    let parts = ["none", "large", "none", "large"].map(|plan| [("user", "alice"), ("plan", plan)]);
    let joint = granted(rules.check_all(&parts).await.unwrap());
    for (part, name, remaining) in [(0, "small", 0), (1, "large", 3)] {
        for part in [part, part + 2] {
            assert_eq!(of_part(&joint, part), [(name.to_owned(), remaining, true)]);
        }
    }
}

pub async fn a_rule_without_a_limit_reports_a_request_once(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let users = rule(window(&fixture, &client, 1, "users"), "user");
    let users = users
        .with_plan("free", Plan::Allow)
        .key("user-free", "free");
    let rules = client.rules([Rule::allow("all"), users]).unwrap();
    let parts = [Part("user-free", 1), Part("user-free", 1)];
    assert_eq!(denies(&rules, &parts).await, None);
    assert_eq!(told.take_requests(), ["*all 1: granted by rule"]);
    // Of two rules in shadow mode that block the same user, the first one reports its own cost.
    let blocks = ["one", "other"].map(|name| Rule::block(name).by(["user"]).in_shadow());
    rules.replace(blocks).unwrap();
    assert_eq!(denies(&rules, &parts[..1]).await, None);
    assert_eq!(
        told.take_requests(),
        ["shadow *one 1 denied: denied by rule"]
    );
}

pub async fn a_request_whose_turn_would_be_too_late_is_not_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let paced = LeakyBucket::new(1, SECOND).with_capacity(9);
    let paced = client.policy_limiter(paced).unwrap();
    let rules = client.rules([rule(paced, "user")]).unwrap();
    let asked = |cost, longest| [Waits(Part("user", cost), longest)];
    let (short, long) = (asked(1, ms(999)), asked(1, SECOND));
    let _ = granted(rules.check_all(&short).await.unwrap()); // the first one waits for nothing
    for _ in 0..3 {
        let checked = rules.check_all(&short).await.unwrap();
        assert!(matches!(checked, Verdict::Denied(_)));
        let peeked = rules.peek_all(&short).await.unwrap();
        let Verdict::Denied(joint) = peeked else {
            panic!("{peeked:?}");
        };
        assert_eq!(joint.deciding().1.retry_after(), Some(SECOND));
        // It would have the next turn, because the denied requests took none.
        let peeked = rules.peek_all(&long).await.unwrap();
        let decision = granted(peeked).into_decision();
        assert!(
            matches!(&decision, Decision::Granted(it) if it.delay == SECOND),
            "{decision:?}"
        );
    }
    let late = rules.check_all(&asked(2, ms(999))).await;
    assert!(
        matches!(late, Err(Error::ExceedsLimit { limit: 1, .. })),
        "{late:?}"
    );
}

/// The error names no rule.
pub async fn more_parts_than_are_decided_together_are_refused(fixture: Fixture) {
    let rules = rules(&fixture).await;
    let users = (0..33).map(|it| Part(&*format!("user-{it}").leak(), 1));
    let users: Vec<_> = users.collect();
    let many = rules.check_all(&users).await;
    let Err(Error::InvalidArgument { argument, .. }) = many else {
        panic!("{many:?}");
    };
    assert_eq!(argument, "charges");
    // However many parts count for the same targets.
    assert_eq!(denies(&rules, &users[..32].repeat(2)).await, None);
    assert_eq!(denies(&rules, &users[31..32]).await, Some("user-31"));
}

pub async fn there_may_be_more_rules_than_decide_a_request(fixture: Fixture) {
    let client = fixture.client("client").await;
    let kinds = (0..40).map(|it| &*format!("{it:02}").leak());
    let many = kinds.map(|kind: &'static str| rule(window(&fixture, &client, 1, kind), kind));
    let rules = client.rules(many.collect::<Vec<_>>()).unwrap();
    for expected in [None, Some("39")] {
        assert_eq!(denies(&rules, &[Part("39", 1)]).await, expected);
    }
}

pub async fn a_release_gives_back_to_each_rratelimiter_that_applies(fixture: Fixture) {
    let client = fixture.client("client").await;
    let shared = client.keyed_rate_limiter("shared:", Rate::overall(3, HOUR));
    let users = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let users = rule(users.with_prefix("users:"), "user");
    let rules = client
        .rules([rule(shared.unwrap(), "user"), users])
        .unwrap();
    let alice = Part("user-alice", 3);
    assert_eq!(denies(&rules, &[alice]).await, None);
    assert_eq!(denies(&rules, &[alice]).await, Some("user-alice"));
    assert_eq!(rules.release(&Part("user-alice", 2)).await.unwrap(), 1);
    assert_eq!(denies(&rules, &[Part("user-alice", 2)]).await, None);
    assert_eq!(
        denies(&rules, &[Part("user-alice", 1)]).await,
        Some("user-alice")
    );
    assert_eq!(rules.release(&Part("other", 1)).await.unwrap(), 0);
    // Nobody has asked for that one, so nothing of it is in use.
    assert_eq!(rules.release(&Part("user-bob", 1)).await.unwrap(), 0);
}

/// One of the limiters has a key of another kind, and one was never asked; the others, before and
/// after them, take their permits back.
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
    let all = ["first", "missing", "spoilt", "last"];
    let all = all.map(|name| rule(limiter(name), "user"));
    let rules = client.rules(all).unwrap();
    let refused = rules.release(&Part("user-alice", 2)).await;
    assert!(
        matches!(refused, Err(Error::BadState { .. })),
        "{refused:?}"
    );
    for name in ["first", "last"] {
        assert_eq!(limiter(name).available_permits().await.unwrap(), 2);
    }
}

/// The number of items, which one rule charges, is not a number.
pub async fn a_release_with_a_wrong_cost_of_one_rule_reaches_the_others(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = |name: &str| client.rate_limiter(&format!("{{{}}}{name}", fixture.name()));
    let all = ["first", "of items", "last"];
    for name in all {
        let rate = Rate::overall(5, HOUR);
        limiter(name).set_rate(rate).await.unwrap();
        assert!(limiter(name).try_acquire(5).await.unwrap());
    }
    let [first, of_items, last] = all.map(|name| Rule::new(limiter(name)));
    let rules = [first, of_items.cost_from("items"), last];
    let rules = client.rules(rules).unwrap();
    let refused = rules.release(&[("items", "many"), ("cost", "2")]).await;
    assert!(
        matches!(
            refused,
            Err(Error::InvalidArgument {
                argument: "cost",
                ..
            })
        ),
        "{refused:?}"
    );
    for (name, available) in all.into_iter().zip([2, 0, 2]) {
        let permits = limiter(name).available_permits().await.unwrap();
        assert_eq!(permits, available, "{name}");
    }
}

/// The key of one of two limiters is of another kind by then.
pub async fn a_settle_that_one_limiter_refuses_is_an_error_and_reaches_the_other(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (spoilt, other, is_in_shadow) in [
        ("first", "last", false),
        ("last", "first", false),
        ("first", "last", true),
        ("last", "first", true),
    ] {
        let name = |name: &str| format!("{{{}}}{spoilt}:{is_in_shadow}:{name}", fixture.name());
        let limiter = |of: &str| client.rate_limiter(&name(of));
        for name in ["first", "last"] {
            let rate = Rate::overall(5, HOUR);
            limiter(name).set_rate(rate).await.unwrap();
        }
        let [first, mut last] = ["first", "last"].map(|name| rule(limiter(name), "user"));
        if is_in_shadow {
            last = last.in_shadow();
        }
        let rules = client.rules([first, last]).unwrap();
        let checked = rules.check(&Part("user-alice", 3)).await.unwrap();
        let Verdict::Granted(charged) = checked else {
            panic!("{checked:?}");
        };
        assert!(limiter(spoilt).delete().await.unwrap());
        let window = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
        let window = window.check(&name(spoilt), 1).await;
        assert!(window.unwrap().is_granted());
        let refused = rules.settle(charged, |_, _| Some(1)).await;
        assert!(
            matches!(refused, Err(Error::BadState { .. })),
            "{refused:?}"
        );
        assert_eq!(limiter(other).available_permits().await.unwrap(), 4);
    }
}

pub async fn a_cost_that_is_no_number_refuses_all_parts_of_one_target(fixture: Fixture) {
    let client = fixture.client("client").await;
    let users = rule(window(&fixture, &client, 9, "users"), "user").cost_from("size");
    let rules = client.rules([users]).unwrap();
    let parts = |sizes: [&'static str; 2]| sizes.map(|size| [("user", "alice"), ("size", size)]);
    for sizes in [["2", "x"], ["x", "2"]] {
        let refused = rules.check_all(&parts(sizes)).await;
        let Err(Error::InvalidArgument { argument, .. }) = refused else {
            panic!("{sizes:?}: {refused:?}");
        };
        assert_eq!(argument, "cost");
    }
    let joint = granted(rules.check_all(&parts(["2", "3"])).await.unwrap());
    assert_eq!(joint.deciding().1.remaining(), 4);
}
