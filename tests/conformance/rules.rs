//! Rules: which requests they apply to, by what they count, and what a request costs.
use std::borrow::Cow;
use std::sync::Arc;

use redisson_rate_limiter::{
    AnyPolicy, Attributes, Chargeable, Decision, DecisionSource, Ending, Error, FixedWindow,
    JointDecision, KeyedRateLimiter, LeakyBucket, Plan, PolicyLimiter, Rate, RedissonClient, Rule,
    Rules, RulesGrant, SlidingWindowCounter, SlidingWindowLog, TokenBucket, Verdict,
};

use crate::every_policy::{every_policy, gives_turns};
use crate::fixture::{Fixture, HOUR, SECOND};
use crate::told::Told;

#[derive(Clone)]
struct Request {
    user: Option<&'static str>,
    address: &'static str,
    plan: &'static str,
    size: u32,
}

impl Attributes for Request {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "user" => self.user.map(Cow::from),
            "address" => Some(self.address.into()),
            "plan" => Some(self.plan.into()),
            "size" => Some(self.size.to_string().into()),
            _ => None,
        }
    }
}

const ALICE: Request = Request {
    user: Some("alice"),
    address: "192.0.2.1",
    plan: "",
    size: 1,
};

const NOBODY: Request = Request {
    user: None,
    ..ALICE
};

/// A limiter of this name, whose keys are in the slot of the fixture's name.
fn limiter(
    fixture: &Fixture,
    client: &RedissonClient,
    name: &str,
    policy: impl Into<AnyPolicy>,
) -> PolicyLimiter<AnyPolicy> {
    let limiter = client.policy_limiter(policy.into()).unwrap();
    let prefix = format!("{{{}}}{name}:", fixture.name());
    limiter.with_prefix(prefix).with_name(name)
}

/// A rule that allows `limit` an hour for each value of an attribute, whose name the rule has too.
fn by(fixture: &Fixture, client: &RedissonClient, name: &'static str, limit: u32) -> Rule {
    Rule::new(limiter(
        fixture,
        client,
        name,
        FixedWindow::new(limit, HOUR),
    ))
    .by([name])
}

/// A rule that allows `limit` an hour for each user.
fn of_users(fixture: &Fixture, client: &RedissonClient, name: &str, limit: u32) -> Rule {
    Rule::new(limiter(
        fixture,
        client,
        name,
        FixedWindow::new(limit, HOUR),
    ))
    .by(["user"])
}

fn limit(limiter: impl Chargeable + 'static) -> Plan {
    Plan::Limit(Arc::new(limiter))
}

/// The decision on a request that is granted.
fn granted(verdict: Verdict) -> JointDecision {
    match verdict {
        Verdict::Granted(granted) => granted.into_decision().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Whether no rule has charged a request.
fn is_free(verdict: Verdict) -> bool {
    verdict == Verdict::Granted(RulesGrant::default())
}

/// The rule that denies a request.
async fn denies(rules: &Rules, request: &impl Attributes) -> Option<String> {
    match rules.check(request).await.unwrap() {
        Verdict::Granted(_) => None,
        Verdict::Denied(by) => Some(by.deciding().0.to_owned()),
    }
}

pub async fn all_rules_that_apply_grant_or_none_is_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = client
        .rules(vec![
            by(&fixture, &client, "user", 2),
            by(&fixture, &client, "address", 3),
        ])
        .unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user")); // the address is not charged
    assert_eq!(denies(&rules, &NOBODY).await, None); // only the address's rule applies
    assert_eq!(denies(&rules, &NOBODY).await.as_deref(), Some("address"));
    let elsewhere = Request {
        address: "192.0.2.2",
        ..ALICE
    };
    assert_eq!(denies(&rules, &elsewhere).await.as_deref(), Some("user"));
}

pub async fn a_request_that_no_rule_applies_to_is_granted(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = client
        .rules(vec![by(&fixture, &client, "user", 1)])
        .unwrap();
    for _ in 0..3 {
        assert!(is_free(rules.check(&NOBODY).await.unwrap()));
    }
}

pub async fn each_combination_of_values_is_a_target_of_its_own(fixture: Fixture) {
    let client = fixture.client("client").await;
    let both = limiter(&fixture, &client, "both", FixedWindow::new(1, HOUR));
    let rules = client
        .rules([Rule::new(both).by(["user", "from"])])
        .unwrap();
    for (user, from) in [("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c"), ("a", "b%3Ac")] {
        let request = [("user", user), ("from", from)];
        assert_eq!(denies(&rules, &request).await, None, "{user} {from}");
        let denied = denies(&rules, &request).await;
        assert_eq!(denied.as_deref(), Some("both"));
    }
}

pub async fn a_request_costs_what_its_rule_says_and_a_denial_has_the_decision(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = TokenBucket::per_second(1).with_capacity(10);
    let rule = Rule::new(limiter(&fixture, &client, "bucket", bucket));
    let rules = client.rules([rule.by(["user"]).cost_from("size")]).unwrap();
    let check = async |size| rules.check(&Request { size, ..ALICE }).await;
    assert!(matches!(check(7).await, Ok(Verdict::Granted(_))));
    let Ok(Verdict::Denied(by)) = check(5).await else {
        panic!("it is granted");
    };
    assert_eq!(by.deciding().1.retry_after(), Some(2 * SECOND));
    assert!(matches!(check(3).await, Ok(Verdict::Granted(_))));
    assert!(matches!(check(11).await, Err(Error::ExceedsLimit { .. })));
    for size in ["many", "-1", "1.5", "4294967296", "99999999999999999999"] {
        let refused = rules.check(&[("user", "bob"), ("size", size)]).await;
        let argument = match refused {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{size}: {other:?}"),
        };
        assert_eq!(argument, "cost");
    }
    assert!(matches!(
        rules.check(&[("user", "bob"), ("size", "")]).await, // costs 1
        Ok(Verdict::Granted(_))
    ));
}

pub async fn a_rule_does_not_apply_to_a_request_that_costs_it_nothing(fixture: Fixture) {
    let client = fixture.client("client").await;
    let user = by(&fixture, &client, "user", 1);
    let address = by(&fixture, &client, "address", 4);
    let rules = client.rules([user.cost_from("size"), address]);
    let rules = rules.unwrap();
    let free = Request { size: 0, ..ALICE };
    for expected in [None, None] {
        assert_eq!(denies(&rules, &free).await.as_deref(), expected);
    }
    for expected in [None, Some("user")] {
        assert_eq!(denies(&rules, &ALICE).await.as_deref(), expected);
    }
    for expected in [None, Some("address")] {
        assert_eq!(denies(&rules, &free).await.as_deref(), expected);
    }
}

pub async fn a_plan_that_blocks_does_so_whatever_a_request_costs(fixture: Fixture) {
    let client = fixture.client("client").await;
    let user = by(&fixture, &client, "user", 1)
        .with_plan("blocked", Plan::Block)
        .key("alice", "blocked")
        .cost_from("size");
    let rules = client.rules([user]).unwrap();
    for size in [0, 1] {
        let request = Request { size, ..ALICE };
        assert_eq!(denies(&rules, &request).await.as_deref(), Some("user"));
    }
}

pub async fn rules_are_replaced_while_requests_come_in(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rule = |limit| vec![by(&fixture, &client, "user", limit)];
    let rules = client.rules(rule(1)).unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    rules.replace(rule(2)).unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None); // what was used counts on
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    rules.replace(vec![]).unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
}

pub async fn a_verdict_has_the_decision_of_each_limiter_by_its_name(fixture: Fixture) {
    let client = fixture.client("client").await;
    let addresses = limiter(&fixture, &client, "addresses", FixedWindow::new(3, HOUR));
    let rules = client
        .rules(vec![
            of_users(&fixture, &client, "users", 2),
            Rule::new(addresses).by(["address"]),
        ])
        .unwrap();
    let named = |joint: &JointDecision| -> Vec<_> {
        let each = joint.by_limiter();
        each.map(|(name, it)| (name.to_owned(), it.is_granted(), it.remaining()))
            .collect()
    };
    let owned = |name: &str, granted, remaining| (name.to_owned(), granted, remaining);
    let both = granted(rules.check(&ALICE).await.unwrap());
    assert_eq!(
        named(&both),
        [owned("users", true, 1), owned("addresses", true, 2)]
    );
    assert_eq!(both.deciding().0, "users");
    let one = granted(rules.check(&NOBODY).await.unwrap());
    assert_eq!(named(&one), [owned("addresses", true, 1)]);
    assert_eq!(denies(&rules, &NOBODY).await, None);
    let Verdict::Denied(denied) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is not denied by the address");
    };
    assert_eq!(
        named(&denied),
        [owned("users", false, 1), owned("addresses", false, 0)]
    );
    assert_eq!(denied.deciding().0, "addresses");
    let Verdict::Denied(denied) = rules.check(&NOBODY).await.unwrap() else {
        panic!("it is granted");
    };
    assert_eq!(named(&denied), [owned("addresses", false, 0)]);
}

pub async fn an_rratelimiter_is_part_of_a_rule_as_any_other(fixture: Fixture) {
    let client = fixture.client("client").await;
    let shared = client.rate_limiter(fixture.name());
    shared.set_rate(Rate::overall(3, HOUR)).await.unwrap();
    let prefix = format!("{{{}}}user:", fixture.name());
    let keyed = client.keyed_rate_limiter(&prefix, Rate::overall(9, HOUR));
    let rules = client
        .rules(vec![
            Rule::new(shared.clone()),
            Rule::new(keyed.unwrap()).by(["user"]),
        ])
        .unwrap();
    let mut decisions = Vec::new();
    for request in [&ALICE, &ALICE, &NOBODY] {
        let joint = granted(rules.check(request).await.unwrap());
        decisions.push(joint);
    }
    let names: Vec<_> = decisions[0].by_limiter().map(|(name, _)| name).collect();
    assert_eq!(names, [fixture.name(), &prefix]);
    let name = Some(fixture.name());
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), name);
    // Every grant is given back, of one rule and of several.
    for (joint, permits) in decisions.into_iter().zip([2, 2, 1]) {
        assert_eq!(client.refund_all(joint.clone()).await.unwrap(), permits);
        assert_eq!(client.refund_all(joint).await.unwrap(), 0);
    }
    assert_eq!(shared.available_permits().await.unwrap(), 3);
    for expected in [None, None, None, name] {
        assert_eq!(denies(&rules, &ALICE).await.as_deref(), expected);
    }
}

pub async fn rules_that_cannot_decide_together_are_refused_when_made(fixture: Fixture) {
    let client = fixture.client("client").await;
    let other = fixture.client("other").await;
    let rule = |client: &RedissonClient, name, limit| of_users(&fixture, client, name, limit);
    let few = || vec![rule(&client, "one", 1)];
    let rules = client.rules(few()).unwrap();
    let error = |refused: Vec<_>| rules.replace(refused).unwrap_err().to_string();
    assert_eq!(
        error(vec![rule(&other, "one", 1)]),
        "invalid rule `one`: it has a limiter of another client"
    );
    let twins = vec![rule(&client, "seven", 7), rule(&client, "seven", 7)];
    assert_eq!(
        error(twins),
        "invalid rule `seven`: it has the name of another rule"
    );
    let seven = limiter(&fixture, &client, "seven", FixedWindow::new(7, HOUR));
    let of_a_plan = rule(&client, "eight", 8).with_plan("paid", limit(seven));
    assert_eq!(
        error(vec![rule(&client, "seven", 7), of_a_plan]),
        "invalid rule `seven`: it has the name of another rule"
    );
    for (mistake, reason) in [
        (
            Rule::block("a").when("user", []),
            "has a mistake in `when`: `user` has no value",
        ),
        (
            Rule::block("a").when("user", [""]),
            "has a mistake in `when`: a value must not be empty",
        ),
        (
            Rule::block("a").by(["address/129"]),
            "has a mistake in `by`: `address/129`: the bits of a network are 1 to 128",
        ),
        (
            Rule::block("a").by(["user"]).key("x", "paid"),
            "has a mistake in `keys`: a key has the plan `paid`, which is none of its plans",
        ),
        (
            Rule::block("a").key("x", "paid"),
            "has a mistake in `keys`: all requests count together: there are no keys",
        ),
        (
            Rule::block("a").instead_of(["b"]),
            "has a mistake in `instead_of`: `b` is the name of no other rule",
        ),
        (
            Rule::block("a").instead_of(["a"]),
            "has a mistake in `instead_of`: `a` is the name of no other rule",
        ),
    ] {
        let expected = format!("invalid rule `a`: it {reason}");
        assert_eq!(error(vec![mistake]), expected);
    }
    assert!(client.rules(vec![rule(&other, "one", 1)]).is_err());
    // The old ones stay.
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("one"));
}

pub async fn a_rule_in_shadow_mode_is_charged_and_reported_and_not_enforced(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let user = by(&fixture, &client, "user", 3);
    let address = by(&fixture, &client, "address", 2);
    let address = address.cost_from("size").in_shadow();
    let rules = client.rules(vec![address, user]).unwrap();
    let decision = granted(rules.check(&ALICE).await.unwrap());
    let names: Vec<_> = decision.by_limiter().map(|(name, _)| name).collect();
    assert_eq!(names, ["user"]);
    for (size, expected) in [(2, None), (5, None), (1, Some("user"))] {
        assert_eq!(
            denies(&rules, &Request { size, ..ALICE }).await.as_deref(),
            expected
        );
    }
    assert_eq!(
        told.take_requests(),
        [
            "*user 1 granted: granted by store",
            "shadow *address 1 granted: granted by store",
            "*user 1 granted: granted by store",
            "shadow *address 2 denied: denied by store",
            "*user 1 granted: granted by store",
            "shadow *address 5: exceeds_limit",
            "*user 1 denied: denied by store", // the rule in shadow mode is not asked
        ]
    );
}

pub async fn rules_are_set_in_shadow_mode_while_requests_come_in(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let user = by(&fixture, &client, "user", 1);
    let address = by(&fixture, &client, "address", 3);
    let address = address.with_plan("blocked", Plan::Block);
    let rules = client.rules(vec![user, address]).unwrap();
    rules.set_shadow(true);
    let blocked = Request {
        plan: "blocked",
        ..ALICE
    };
    for request in [&ALICE, &ALICE, &blocked] {
        assert_eq!(rules.check(request).await.unwrap().decision(), None);
    }
    rules.set_shadow(false);
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    assert_eq!(denies(&rules, &blocked).await.as_deref(), Some("address"));
    for expected in [None, None, Some("address")] {
        assert_eq!(
            denies(&rules, &NOBODY).await.as_deref(),
            expected,
            "one was charged"
        );
    }
    assert_eq!(
        told.take_requests()[..5],
        [
            "shadow *user 1 granted, *address 1 granted: granted by store",
            "shadow *user 1 denied, address 1 denied: denied by store",
            "shadow *address 1 denied: denied by rule",
            "*user 1 denied, address 1 denied: denied by store",
            "*address 1 denied: denied by rule",
        ]
    );
}

pub async fn a_plan_has_a_limiter_of_its_own_or_allows_or_blocks(fixture: Fixture) {
    let client = fixture.client("client").await;
    let paid = limiter(&fixture, &client, "paid", TokenBucket::per_second(2));
    let all = Rule::new(limiter(&fixture, &client, "all", FixedWindow::new(9, HOUR)));
    let user = by(&fixture, &client, "user", 1)
        .with_plan("paid", limit(paid))
        .with_plan("allowed", Plan::Allow)
        .with_plan("blocked", Plan::Block);
    let rules = client.rules(vec![all, user]).unwrap();
    let on = |plan| Request { plan, ..ALICE };
    for (plan, expected) in [
        ("free", None),
        ("free", Some("user")),
        ("paid", None),
        ("paid", None),
        ("paid", Some("paid")),
        ("allowed", None),
        ("allowed", None),
        ("blocked", Some("user")),
    ] {
        let denied = denies(&rules, &on(plan)).await;
        assert_eq!(denied.as_deref(), expected, "{plan}");
    }
    let all = granted(rules.check(&on("allowed")).await.unwrap());
    // Five of nine were granted, and this one; what was denied was charged to nobody.
    assert_eq!(
        (all.by_limiter().count(), all.deciding().1.remaining()),
        (1, 3)
    );
    let Verdict::Denied(blocked) = rules.check(&on("blocked")).await.unwrap() else {
        panic!("it is granted");
    };
    assert_eq!(blocked.deciding().1.source(), DecisionSource::Rule);
}

/// A rule for users with this limiter.
fn user_rules(limiter: impl Chargeable + 'static) -> Vec<Rule> {
    vec![Rule::new(limiter).by(["user"])]
}

pub async fn a_rule_with_another_algorithm_starts_anew_and_says_so(fixture: Fixture) {
    let client = fixture.client("client").await;
    let stopped = fixture.stop_time();
    let tag = format!("{{{}}}", fixture.name());
    let limiter = |policy: AnyPolicy, prefix| {
        let limiter = client.policy_limiter(policy).unwrap();
        let prefix = format!("{tag}{prefix}");
        user_rules(limiter.with_prefix(prefix).with_name("user"))
    };
    let fixed = |prefix, limit| limiter(FixedWindow::new(limit, HOUR).into(), prefix);
    let bucket = |prefix| limiter(TokenBucket::per_second(1).into(), prefix);
    let rules = client.rules(fixed("fixed:", 2)).unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(denies(&rules, &ALICE).await, None);
    let change = rules.replace(bucket("bucket:")).unwrap();
    assert_eq!(change.started_anew, ["user"]);
    let one = granted(rules.check(&ALICE).await.unwrap());
    assert_eq!(one.by_limiter().count(), 1); // the one before does not decide
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    let change = rules.replace(fixed("fixed:", 3)).unwrap();
    assert_eq!(change.started_anew, ["user"]);
    assert_eq!(denies(&rules, &ALICE).await, None); // what its keys still hold counts
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    let change = rules.replace(fixed("fixed:", 4)).unwrap();
    assert_eq!((change.changed.len(), change.started_anew.len()), (1, 0));
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    assert!(rules.replace(fixed("fixed:", 4)).unwrap().is_empty());
    drop(stopped);
}

pub async fn limiters_that_may_have_keys_of_another_algorithm_are_refused(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let bucket = |prefix: &str, name: &str| {
        let limiter = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
        let limiter = limiter.with_prefix(format!("{tag}{prefix}"));
        user_rules(limiter.with_name(name))
    };
    let fixed = |prefix: &str, name: &str| {
        let limiter = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
        let limiter = limiter.with_prefix(format!("{tag}{prefix}"));
        user_rules(limiter.with_name(name))
    };
    let shared = || user_rules(client.rate_limiter(&format!("{tag}a:orders")));
    let together = |mut one: Vec<_>, other: Vec<_>| {
        one.extend(other);
        client.rules(one).map(|_| ())
    };
    for refused in [
        together(fixed("a:", "a"), bucket("a:", "b")),
        together(fixed("a:", "a"), bucket("a:b:", "b")),
        together(fixed("a:b:", "a"), bucket("a:", "b")),
        together(fixed("a:", "a"), shared()),
        together(shared(), bucket("a:", "b")),
    ] {
        assert!(matches!(refused, Err(Error::InvalidRule { .. })));
    }
    together(fixed("a:", "a"), fixed("a:b:", "b")).unwrap();
    together(fixed("a:orders:", "a"), shared()).unwrap();
    let limiter = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
    let plan = limit(limiter.with_prefix(format!("{tag}a:")).with_name("a"));
    let with_plan = fixed("a:", "a").remove(0).with_plan("paid", plan);
    assert!(client.rules([with_plan]).is_err());

    // Also those that rules had before, whatever their names are.
    let rules = client.rules(fixed("a:", "user")).unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
    let refuse = |refused: Vec<_>| {
        let error = rules.replace(refused).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid rule `b`: it may have the keys of another algorithm, of another rule or of one before: \
             give its limiter a prefix of its own"
        );
    };
    refuse(bucket("a:", "b"));
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
    rules.replace([]).unwrap();
    refuse(bucket("a:", "b"));
    for is_shadow in [true, false] {
        rules.set_shadow(is_shadow);
        refuse(bucket("a:", "b"));
    }
    assert_eq!(denies(&rules, &ALICE).await, None);
    rules.replace(fixed("a:", "user")).unwrap();
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
}

pub async fn rules_that_swap_their_prefixes_go_on_deciding(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let rule = |name, prefix, limit| {
        let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
        let limiter = limiter.unwrap().with_prefix(format!("{tag}{prefix}"));
        Rule::new(limiter.with_name(name)).by(["user"])
    };
    let rules = client.rules([rule("one", "a:", 9), rule("other", "b:", 9)]);
    let rules: Rules = rules.unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
    let change = rules.replace([rule("one", "b:", 9), rule("other", "a:", 2)]);
    assert_eq!(change.unwrap().started_anew, ["one", "other"]);
    assert_eq!(denies(&rules, &ALICE).await, None); // the second request on the targets of both
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("other"));
}

/// A limiter of an earlier rule is not asked any more. If it were, a request would soon ask more
/// limiters than one call may.
pub async fn rules_may_be_replaced_as_often_as_one_likes(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let with_prefixes = |of: usize| {
        let rule = |place| {
            let counter = SlidingWindowCounter::new(9, HOUR).with_period(HOUR / 500);
            let limiter = client.policy_limiter(counter).unwrap();
            let limiter = limiter.with_prefix(format!("{tag}{of}-{place}:"));
            Rule::new(limiter.with_name(format!("{place}"))).by(["user"])
        };
        (0..3).map(rule).collect::<Vec<_>>()
    };
    let rules = client.rules(with_prefixes(0)).unwrap();
    for of in 1..=40 {
        assert_eq!(denies(&rules, &ALICE).await, None);
        let change = rules.replace(with_prefixes(of)).unwrap();
        assert_eq!(change.started_anew.len(), 3);
    }
    let joint = granted(rules.check(&ALICE).await.unwrap());
    let left: Vec<_> = joint.decisions().iter().map(Decision::remaining).collect();
    assert_eq!(left, [8, 8, 8]);
}

pub async fn replaced_rules_stay_in_shadow_mode(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rule = || by(&fixture, &client, "user", 1);
    let rules = client.rules([rule()]).unwrap();
    rules.set_shadow(true);
    rules.replace([rule()]).unwrap();
    for _ in 0..2 {
        assert_eq!(denies(&rules, &ALICE).await, None);
    }
    rules.set_shadow(false);
    rules.replace([rule()]).unwrap();
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("user"));
}

pub async fn what_rules_have_charged_is_settled_or_given_back_once(fixture: Fixture) {
    let client = fixture.client("client").await;
    let stopped = fixture.stop_time();
    let tag = format!("{{{}}}", fixture.name());
    let tokens = |prefix: &str| {
        let limiter = client.keyed_rate_limiter(&format!("{tag}{prefix}"), Rate::overall(20, HOUR));
        limiter.unwrap().with_name("tokens")
    };
    let rules_with = |prefix: &str| {
        let calls = client.policy_limiter(FixedWindow::new(20, HOUR)).unwrap();
        let calls = calls.with_prefix(format!("{tag}calls:"));
        vec![
            Rule::new(calls.with_name("calls")).by(["user"]),
            Rule::new(tokens(prefix)).by(["user"]).cost(5),
        ]
    };
    let rules = client.rules(rules_with("before:")).unwrap();
    let charged = async || match rules.check(&ALICE).await.unwrap() {
        Verdict::Granted(granted) => granted,
        other => panic!("{other:?}"),
    };
    let left = async |prefix: &str| {
        let available = tokens(prefix).rate_limiter("alice");
        available.available_permits().await.unwrap_or(20) // nobody has asked for it
    };
    for (cost, expected) in [(5, 15), (2, 13), (9, 4)] {
        let decision = charged().await;
        for cost in [cost, 8] {
            let cost_of = |rule: &str, _| (rule == "tokens").then_some(cost);
            rules.settle(decision.clone(), cost_of).await.unwrap();
        }
        assert_eq!(rules.refund(decision).await.unwrap(), 1); // of the calls, which were not settled
        assert_eq!(left("before:").await, expected, "{cost}");
    }
    assert_eq!(denies(&rules, &ALICE).await.as_deref(), Some("tokens"));
    tokens("before:").reset("alice").await.unwrap();

    // Also after the rules were replaced.
    let decision = charged().await;
    rules.replace(rules_with("now:")).unwrap();
    rules.settle(decision, |_, _| Some(1)).await.unwrap();
    assert_eq!((left("before:").await, left("now:").await), (19, 20));
    let decision = charged().await;
    assert_eq!(rules.refund(decision).await.unwrap(), 6);
    assert_eq!((left("before:").await, left("now:").await), (19, 20));
    drop(stopped);
}

/// With an enforced rule and without, and if the rule in shadow mode would deny.
pub async fn shadow_rules_are_charged_settled_and_given_back_as_others(fixture: Fixture) {
    let client = fixture.client("client").await;
    let stopped = fixture.stop_time();
    let tag = format!("{{{}}}", fixture.name());
    let tokens = |name: &str| {
        let limiter = client.keyed_rate_limiter(&format!("{tag}{name}:"), Rate::overall(20, HOUR));
        limiter.unwrap().with_name(name)
    };
    let rule = |name| Rule::new(tokens(name)).by(["user"]).cost(5);
    let left = async || {
        let mut left = Vec::new();
        for name in ["enforced", "shadow"] {
            let limiter = tokens(name).rate_limiter("alice");
            left.push(limiter.available_permits().await.unwrap_or(20));
        }
        left
    };
    let both = || vec![rule("shadow").in_shadow(), rule("enforced")];
    let alone = || vec![rule("shadow").in_shadow()];
    for (made, enforced) in [(both(), true), (alone(), false)] {
        let used = |permits: u64| if enforced { 20 - permits } else { 20 };
        let rules = client.rules(made).unwrap();
        let charged = async || match rules.check(&ALICE).await.unwrap() {
            Verdict::Granted(granted) => granted,
            other => panic!("{other:?}"),
        };
        // The charges of a request can be settled while rules in shadow mode are asked, and
        // afterwards.
        let first = charged().await;
        assert_eq!(first.decision().is_some(), enforced);
        let names = first.rules().collect::<Vec<_>>();
        assert!(names.contains(&"shadow"));
        assert_eq!(left().await, [used(5), 15]);
        rules.settle(first.clone(), |_, _| Some(2)).await.unwrap();
        assert_eq!(left().await, [used(2), 18]);
        rules.settle(first.clone(), |_, _| Some(9)).await.unwrap(); // once
        assert_eq!(rules.refund(first).await.unwrap(), 0);
        let second = charged().await;
        let settled = rules.settle(second, |rule, _| (rule == "shadow").then_some(8));
        settled.await.unwrap();
        assert_eq!(left().await, [used(7), 10]);
        let third = charged().await;
        let given_back = if enforced { 10 } else { 5 };
        assert_eq!(rules.refund(third).await.unwrap(), given_back);
        assert_eq!(left().await, [used(7), 10]);
        for name in ["enforced", "shadow"] {
            let _ = tokens(name).reset("alice").await;
        }
    }
    let rules = client.rules(both()).unwrap();
    tokens("shadow")
        .check("alice", 18)
        .await
        .unwrap()
        .into_grant()
        .unwrap();
    let denied = rules.check(&ALICE).await.unwrap();
    let Verdict::Granted(granted) = denied else {
        panic!("it is enforced");
    };
    assert_eq!(granted.rules().collect::<Vec<_>>(), ["enforced"]);
    assert_eq!(left().await, [15, 2]);
    assert_eq!(rules.refund(granted).await.unwrap(), 5);
    assert_eq!(left().await, [20, 2]);
    rules.set_shadow(true);
    tokens("shadow").reset("alice").await.unwrap();
    let Verdict::Granted(granted) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is enforced");
    };
    assert_eq!(granted.decision(), None);
    assert_eq!(left().await, [15, 15]);
    assert_eq!(rules.refund(granted).await.unwrap(), 10);
    drop(stopped);
}

pub async fn events_name_the_rules_that_refuse_a_request(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let tag = format!("{{{}}}", fixture.name());
    let rule = |name: String| {
        let limiter = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
        let limiter = limiter.with_prefix(format!("{tag}{name}:"));
        let rule = Rule::new(limiter.with_name(name));
        rule.by(["user"]).cost_from("size")
    };
    let names = (0..33).map(|place| format!("rule {place:02}"));
    let rules = client.rules(names.clone().map(rule).collect::<Vec<_>>());
    let rules: Rules = rules.unwrap();
    let too_many = rules.check(&ALICE).await.unwrap_err();
    assert_eq!(
        too_many.to_string(),
        "invalid rule `rule 32`: it is one too many for a request that it applies to: at most 32 rules decide \
         together, and touch at most 2,000 members of logs and counters"
    );
    let all: Vec<_> = names.map(|name| format!("*{name} 1")).collect();
    let expected = format!("{}: invalid_rule", all.join(", "));
    assert_eq!(told.take_requests(), [&*expected]);
    rules.set_shadow(true);
    assert_eq!(denies(&rules, &ALICE).await, None);
    assert_eq!(told.take_requests(), [format!("shadow {expected}")]);

    let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let limiter = limiter.with_prefix(format!("{tag}wide:")).with_name("wide");
    let wide = Rule::new(limiter).by(["user"]);
    let rules: Rules = client.rules([wide, rule("narrow".to_owned())]).unwrap();
    let request = Request { size: 3, ..ALICE };
    let error = rules.check(&request).await.unwrap_err();
    assert!(matches!(error, Error::ExceedsLimit { limit: 2, .. }));
    assert_eq!(told.take_requests(), ["*narrow 3: exceeds_limit"]);

    // Counters that touch too many members together, whatever a request costs.
    let counter = |place: u32| {
        let counter = SlidingWindowCounter::new(9, HOUR).with_period(HOUR / 500);
        let limiter = client.policy_limiter(counter).unwrap();
        let limiter = limiter.with_prefix(format!("{tag}counter{place}:"));
        Rule::new(limiter.with_name(format!("{place}"))).by(["user"])
    };
    let rules = client
        .rules((0..4).map(counter).collect::<Vec<_>>())
        .unwrap();
    assert_eq!(denies(&rules, &ALICE).await, None);
    let rules = client
        .rules((0..5).map(counter).collect::<Vec<_>>())
        .unwrap();
    let too_many = rules.check(&ALICE).await.unwrap_err();
    assert!(matches!(too_many, Error::InvalidRule { rule, .. } if rule == "4"));
}

pub async fn the_plan_of_a_key_takes_precedence_over_that_of_a_request(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rule = by(&fixture, &client, "user", 1)
        .with_plan("free", Plan::Allow)
        .with_plan("blocked", Plan::Block)
        .key("alice", "free");
    let rules = client.rules([rule]).unwrap();
    let on = |user, plan| [("user", user), ("plan", plan)];
    for _ in 0..2 {
        assert_eq!(denies(&rules, &on("alice", "blocked")).await, None);
    }
    let denied = denies(&rules, &on("bob", "blocked")).await;
    assert_eq!(denied.as_deref(), Some("user"));
    // If the rule does not have the plan, its own limiter decides.
    for expected in [None, Some("user")] {
        let denied = denies(&rules, &on("bob", "no such")).await;
        assert_eq!(denied.as_deref(), expected);
    }
}

pub async fn a_rule_applies_where_all_of_its_conditions_match(fixture: Fixture) {
    let client = fixture.client("client").await;
    let logins = limiter(&fixture, &client, "logins", FixedWindow::new(1, HOUR));
    let logins = Rule::new(logins)
        .when("method", ["POST"])
        .when("path", ["/login*", "/signup"])
        .by(["address"]);
    let rules = client.rules([logins]).unwrap();
    let request =
        |method, path, address| [("method", method), ("path", path), ("address", address)];
    for (method, path, address, expected) in [
        ("POST", "/login", "2001:db8::1", None),
        ("GET", "/login", "2001:db8::1", None),
        ("POST", "/orders", "2001:db8::1", None),
        ("POST", "/login?next=/", "2001:db8::2", Some("logins")), // of one network
        ("POST", "/login/now", "2001:db8::3", Some("logins")),
        ("POST", "/signup", "2001:db8:0:1::1", None),
        ("POST", "/signup", "192.0.2.1", None),
        ("POST", "/signup", "::ffff:192.0.2.1", Some("logins")),
    ] {
        let denied = denies(&rules, &request(method, path, address)).await;
        assert_eq!(denied.as_deref(), expected, "{method} {path} {address}");
    }
    assert!(is_free(rules.check(&[("path", "/login")]).await.unwrap()));
}

pub async fn if_a_rule_applies_instead_of_another_the_other_does_not(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let rules = |shadow: bool| {
        let user = by(&fixture, &client, "user", 1);
        let office = Rule::allow("office").when("address", ["192.0.2.0/24"]);
        let banned = Rule::block("banned").when("user", ["mallory"]);
        let office = office.instead_of(["user"]);
        let office = if shadow { office.in_shadow() } else { office };
        [user, office, banned.instead_of(["user", "office"])]
    };
    let at = |user, address| Request {
        user: Some(user),
        address,
        ..ALICE
    };
    let made = client.rules(rules(false)).unwrap();
    for (user, address, expected) in [
        ("alice", "192.0.2.7", None),
        ("alice", "192.0.2.7", None),
        ("alice", "198.51.100.1", None),
        ("alice", "198.51.100.1", Some("user")),
        ("mallory", "192.0.2.7", Some("banned")),
    ] {
        let denied = denies(&made, &at(user, address)).await;
        assert_eq!(denied.as_deref(), expected, "{user} {address}");
    }
    assert_eq!(
        told.take_requests(),
        [
            "*office 1: granted by rule",
            "*office 1: granted by rule",
            "*user 1 granted: granted by store",
            "*user 1 denied: denied by store",
            "*banned 1 denied: denied by rule",
        ]
    );
    // A rule in shadow mode replaces no enforced one.
    made.replace(rules(true)).unwrap();
    let denied = denies(&made, &at("alice", "192.0.2.7")).await;
    assert_eq!(denied.as_deref(), Some("user"));
    // But it replaces one that is also in shadow mode.
    let [user, office, _] = rules(true);
    made.replace([user.in_shadow(), office]).unwrap();
    told.take_requests();
    assert_eq!(denies(&made, &at("alice", "192.0.2.7")).await, None);
    assert_eq!(told.take_requests(), ["shadow *office 1: granted by rule"]);
    // A rule replaces another one even if it is replaced itself, in whatever order.
    let mut all = [
        by(&fixture, &client, "user", 1),
        by(&fixture, &client, "address", 9).instead_of(["user"]),
        Rule::allow("all").instead_of(["address"]),
    ];
    for _ in 0..2 {
        made.replace(all.clone()).unwrap();
        assert!(is_free(made.check(&ALICE).await.unwrap()));
        all.reverse();
    }
}

pub async fn a_rule_that_does_not_count_a_request_replaces_no_other(fixture: Fixture) {
    let client = fixture.client("client").await;
    let general = by(&fixture, &client, "address", 1);
    let special = by(&fixture, &client, "user", 9).instead_of(["address"]);
    let rules = client.rules([general, special]).unwrap();
    let anonymous = [("address", "192.0.2.1")];
    assert_eq!(denies(&rules, &anonymous).await, None);
    assert_eq!(denies(&rules, &anonymous).await.as_deref(), Some("address"));
    assert_eq!(
        denies(&rules, &[("user", "alice"), anonymous[0]]).await,
        None
    );
}

/// On a cluster the limits are in two slots, and are asked one after the other.
pub async fn requests_that_one_limit_denies_are_not_charged_to_another(fixture: Fixture) {
    let client = Arc::new(fixture.client("client").await);
    let stopped = fixture.stop_time();
    let policies = |limit| -> [AnyPolicy; 4] {
        [
            FixedWindow::new(limit, HOUR).into(),
            TokenBucket::per_second(1).with_capacity(limit).into(),
            SlidingWindowLog::new(limit, HOUR).into(),
            Rate::overall(u64::from(limit), HOUR).into(),
        ]
    };
    for (all, one) in policies(97).into_iter().zip(policies(3)) {
        let limiter = |name: &str, policy: AnyPolicy| {
            let prefix = format!("{}-{name}-{}:", fixture.name(), policy.algorithm());
            client.policy_limiter(policy).unwrap().with_prefix(prefix)
        };
        let (all, one) = (limiter("all", all), limiter("one", one));
        // The broad one first, as rules or descriptors may name them.
        let asked = (0..100).map(|_| {
            let charges = [
                all.charge("all", 1).unwrap(),
                one.charge("alice", 1).unwrap(),
            ];
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.check_all(charges).await.unwrap().is_granted() })
        });
        let mut granted = 0;
        for asked in asked.collect::<Vec<_>>() {
            granted += u32::from(asked.await.unwrap());
        }
        assert_eq!(granted, 3);
        let left = all.peek("all", 1).await.unwrap().remaining();
        assert_eq!(left, 97 - 3 - 1);
    }
    drop(stopped);
}

/// On a cluster their keys are in several slots.
pub async fn rules_per_user_and_per_address_need_no_common_hash_tag(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limited = |name: &'static str, limit| {
        let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
        let prefix = format!("{}-{name}:", fixture.name());
        let limiter = limiter.unwrap().with_prefix(prefix);
        Rule::new(limiter.with_name(name)).by([name])
    };
    let (user, address) = (limited("user", 2), limited("address", 3));
    let rules = client.rules(vec![user, address]).unwrap();
    let bob = Request {
        user: Some("bob"),
        ..ALICE
    };
    for (request, expected) in [
        (&ALICE, None),
        (&ALICE, None),
        (&ALICE, Some("user")), // the address is not charged
        (&bob, None),
        (&bob, Some("address")), // nor is bob
    ] {
        assert_eq!(denies(&rules, request).await.as_deref(), expected);
    }
    let elsewhere = Request {
        address: "192.0.2.2",
        ..bob
    };
    assert_eq!(denies(&rules, &elsewhere).await, None);
    assert_eq!(denies(&rules, &elsewhere).await.as_deref(), Some("user"));
}

/// A rule of two units for each user that counts only requests with this ending.
fn counting_only(
    fixture: &Fixture,
    client: &RedissonClient,
    ending: Ending,
) -> Vec<(Rules, PolicyLimiter<AnyPolicy>)> {
    let each = every_policy(2).filter(|(policy, _)| !gives_turns(policy));
    let each = each.map(|(policy, unit)| {
        let name = format!("{}-{ending:?}", policy.algorithm());
        let limiter = limiter(fixture, client, &name, policy);
        let rule = Rule::new(limiter.clone()).by(["user"]).cost(unit);
        let rules = client.rules([rule.count_only(ending)]).unwrap();
        (rules, limiter)
    });
    each.collect()
}

pub async fn a_rule_counts_only_requests_that_end_as_it_says(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (counted, other) in [
        (Ending::Failure, Ending::Success),
        (Ending::Success, Ending::Failure),
    ] {
        for (rules, limiter) in counting_only(&fixture, &client, counted) {
            let mut granted = 0;
            for ending in [other, other, other, counted, other, counted, other] {
                let Verdict::Granted(charged) = rules.check(&ALICE).await.unwrap() else {
                    continue;
                };
                granted += 1;
                assert!(charged.depends_on_ending());
                assert_eq!(charged.counts(limiter.name(), ending), ending == counted);
                let clone = charged.clone();
                rules.end(charged, ending).await.unwrap();
                // A charge is given back only once.
                rules.end(clone, ending).await.unwrap();
            }
            assert_eq!(granted, 6, "{limiter:?}");
        }
    }
}

pub async fn an_rratelimiter_and_a_rule_in_shadow_mode_count_only_some_too(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rate = Rate::overall(2, HOUR);
    let name = |name: &str| format!("{{{}}}{name}", fixture.name());
    let shared = client
        .rate_limiter(&name("shared"))
        .with_rate(rate)
        .unwrap();
    let shadow = limiter(&fixture, &client, "shadow", FixedWindow::new(2, HOUR));
    let rules = client.rules([
        Rule::new(shared.clone()).count_only(Ending::Failure),
        Rule::new(shadow.clone())
            .count_only(Ending::Failure)
            .in_shadow(),
        of_users(&fixture, &client, "all", 9),
    ]);
    let rules = rules.unwrap();
    for (ending, left) in [
        (Ending::Success, 2),
        (Ending::Failure, 1),
        (Ending::Success, 1),
    ] {
        let Verdict::Granted(granted) = rules.check(&ALICE).await.unwrap() else {
            panic!("it is granted");
        };
        rules.end(granted, ending).await.unwrap();
        assert_eq!(shared.available_permits().await.unwrap(), left);
        assert_eq!(shadow.peek("all", 1).await.unwrap().remaining(), left - 1);
    }
    let denied = denies(&rules, &ALICE).await;
    assert_eq!(denied, None);
    assert_eq!(
        denies(&rules, &ALICE).await.as_deref(),
        Some(&*name("shared"))
    );
}

pub async fn a_rule_that_gives_nothing_back_counts_all(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = limiter(
        &fixture,
        &client,
        "turns",
        LeakyBucket::new(1, SECOND).with_capacity(2),
    );
    let of_a_plan = by(&fixture, &client, "user", 2).with_plan("paid", limit(limiter.clone()));
    for rule in [Rule::new(limiter), of_a_plan] {
        let refused = client.rules([rule.count_only(Ending::Failure)]);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("a `leaky_bucket` gives nothing back"),
            "{refused}"
        );
    }
}

/// An RRateLimiter of this many permits an hour for each key.
fn keyed(fixture: &Fixture, client: &RedissonClient, name: &str, rate: u64) -> KeyedRateLimiter {
    let prefix = format!("{{{}}}{name}:", fixture.name());
    let limiter = client.keyed_rate_limiter(&prefix, Rate::overall(rate, HOUR));
    limiter.unwrap().with_name(name)
}

/// The limiter of a plan too, and one in shadow mode.
pub async fn each_limiter_of_a_rule_counts_only_what_the_rule_does(fixture: Fixture) {
    let client = fixture.client("client").await;
    let [own, paid] = ["own", "paid"].map(|name| keyed(&fixture, &client, name, 9));
    let rule = Rule::new(own.clone()).with_plan("paid", limit(paid.clone()));
    let rule = rule.by(["user"]).count_only(Ending::Failure);
    let rules = client.rules([rule]).unwrap();
    for (used, is_shadow) in [(1, false), (2, true)] {
        rules.set_shadow(is_shadow);
        for (plan, limiter) in [("", &own), ("paid", &paid)] {
            for ending in [Ending::Success, Ending::Failure] {
                let Verdict::Granted(granted) =
                    rules.check(&Request { plan, ..ALICE }).await.unwrap()
                else {
                    panic!("it is granted");
                };
                assert!(granted.depends_on_ending());
                assert_eq!(
                    granted.counts(limiter.name(), ending),
                    ending == Ending::Failure
                );
                rules.end(granted, ending).await.unwrap();
            }
            let left = limiter.rate_limiter("alice").available_permits().await;
            assert_eq!(left.unwrap(), 9 - used, "{plan}");
        }
    }
}

pub async fn what_a_request_was_charged_in_shadow_mode_goes_back_later_too(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = |client: &RedissonClient| {
        let rule = |name| Rule::new(keyed(&fixture, client, name, 1)).by([name]);
        client
            .rules([rule("user"), rule("address").in_shadow()])
            .unwrap()
    };
    let made = rules(&client);
    let Verdict::Granted(granted) = made.check(&ALICE).await.unwrap() else {
        panic!("it is granted");
    };
    assert_eq!(granted.rules().collect::<Vec<_>>(), ["user", "address"]);
    made.refund_in_background(granted);
    assert!(client.close(60 * SECOND).await);
    let Verdict::Granted(granted) = rules(&fixture.client("other").await)
        .check(&ALICE)
        .await
        .unwrap()
    else {
        panic!("it is granted");
    };
    assert_eq!(granted.rules().collect::<Vec<_>>(), ["user", "address"]);
}

pub async fn a_replacement_names_each_rule_that_has_changed(fixture: Fixture) {
    let client = fixture.client("client").await;
    let own = |user: u32| limiter(&fixture, &client, "user", FixedWindow::new(user, HOUR));
    let paid = |name: &str, paid| {
        let limiter = limiter(&fixture, &client, name, FixedWindow::new(paid, HOUR));
        limit(limiter.with_name("paid"))
    };
    let rule = || {
        Rule::new(own(1))
            .with_plan("paid", paid("paid", 2))
            .by(["user"])
    };
    let other = || by(&fixture, &client, "address", 1);
    let rules = client.rules([rule(), other()]).unwrap();
    for (changed, starts_anew) in [
        (rule().when("user", ["a*"]), false),
        (rule().key("alice", "paid"), false),
        (rule().cost(2), false),
        (rule().count_only(Ending::Failure), false),
        (rule().instead_of(["address"]), false),
        (rule().in_shadow(), false),
        (rule().with_plan("free", Plan::Allow), false),
        (rule().with_plan("paid", paid("paid", 3)), false),
        (rule().with_plan("paid", paid("elsewhere", 2)), true),
        (Rule::new(own(1)).by(["user"]), true), // those of the plan count with all others
        (rule().by(["address"]), true),
    ] {
        let debug = format!("{changed:?}");
        for rule in [changed, rule()] {
            let change = rules.replace([rule, other()]).unwrap();
            assert_eq!(change.changed, ["user"], "{debug}");
            assert_eq!(!change.started_anew.is_empty(), starts_anew, "{debug}");
        }
        assert!(rules.replace([rule(), other()]).unwrap().is_empty());
    }
}

pub async fn an_empty_cost_is_1_and_one_that_is_no_number_is_refused(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = client.rules([by(&fixture, &client, "user", 3).cost_from("size")]);
    let rules = rules.unwrap();
    let of = |size| [("user", "alice"), ("size", size)];
    for size in ["99999999999999999999", "4294967296", "-1", "+1", "1.0", "x"] {
        let refused = rules.check(&of(size)).await;
        let Err(Error::InvalidArgument { argument, .. }) = refused else {
            panic!("{size}: {refused:?}");
        };
        assert_eq!(argument, "cost");
    }
    for (size, left) in [("", 2), ("2", 0)] {
        let joint = granted(rules.check(&of(size)).await.unwrap());
        assert_eq!(joint.deciding().1.remaining(), left, "{size}");
    }
}

pub async fn an_error_of_a_cost_above_a_limit_names_the_rule(fixture: Fixture) {
    let client = fixture.client("client").await;
    let api = client.rate_limiter(&format!("{{{}}}:api", fixture.name()));
    api.try_set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let user = || by(&fixture, &client, "user", 3).cost_from("size");
    let address = || by(&fixture, &client, "address", 9).cost_from("size");
    let shared = || Rule::new(api.clone()).cost_from("size");
    for (rules, cost, refusing) in [
        (vec![user()], 4, "user"),
        (vec![address(), user()], 4, "user"),
        (vec![shared()], 6, api.name()),
        (vec![address(), shared()], 6, api.name()),
        (vec![address(), shared()], 10, "address"),
    ] {
        let rules = client.rules(rules).unwrap();
        let request = Request {
            size: cost,
            ..ALICE
        };
        let peeked = rules.peek_all(std::slice::from_ref(&request)).await;
        for refused in [rules.check(&request).await, peeked] {
            let Err(Error::ExceedsLimit {
                name, requested, ..
            }) = refused
            else {
                panic!("{refusing}: {refused:?}");
            };
            assert_eq!((&*name, requested), (refusing, cost));
        }
    }
}

pub async fn a_plan_by_the_month_keeps_what_was_used_when_it_changes_in_its_middle(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    // 2024-02-29 15:00:00 UTC.
    fixture.at(1_709_218_800_000);
    let plan = |permits| {
        let limiter = limiter(
            &fixture,
            &client,
            "month",
            FixedWindow::calendar_month(permits),
        );
        [Rule::new(limiter).by(["user"])]
    };
    let rules = client.rules([]).unwrap();
    let left = async |is_granted: bool| {
        let verdict = rules.check(&ALICE).await.unwrap();
        let joint = verdict.decision().unwrap();
        assert_eq!(joint.is_granted(), is_granted);
        let decision = joint.deciding().1;
        (decision.window(), decision.remaining())
    };
    let day = 24 * HOUR;
    rules.replace(plan(3)).unwrap();
    assert_eq!(left(true).await, (29 * day, 2));
    assert_eq!(left(true).await, (29 * day, 1));
    let change = rules.replace(plan(10)).unwrap();
    assert_eq!(change.started_anew, [""; 0]);
    assert_eq!(left(true).await, (29 * day, 7));
    rules.replace(plan(2)).unwrap();
    assert_eq!(left(false).await, (29 * day, 0));
}
