//! Rules: which target a request counts for, what it costs, and what a denied request gets.
use std::sync::Arc;

use redisson_rate_limiter::{
    AnyPolicy, Chargeable, Decision, DecisionSource, Denied, Error, FixedWindow, JointDecision,
    Plan, Rate, RedissonClient, Rule, TokenBucket, Verdict,
};

use crate::fixture::{Fixture, HOUR, SECOND};
use crate::told::Told;

#[derive(Clone)]
struct Request {
    user: Option<&'static str>,
    address: &'static str,
    size: u32,
}

type Rules = redisson_rate_limiter::Rules<Request, &'static str>;

const ALICE: Request = Request {
    user: Some("alice"),
    address: "::1",
    size: 1,
};

fn window(client: &RedissonClient, limit: u32) -> impl Chargeable + use<> {
    let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
    limiter.unwrap().with_name(format!("{limit} an hour"))
}

fn limit(limiter: impl Chargeable + 'static) -> Plan {
    Plan::Limit(Arc::new(limiter))
}

/// Whom a request counts for by its user, in the slot of the fixture's name.
fn by_user(fixture: &Fixture) -> impl Fn(&Request) -> Option<String> + use<> {
    let tag = fixture.name().to_owned();
    move |request| request.user.map(|user| format!("{{{tag}}}user-{user}"))
}

fn by_address(fixture: &Fixture) -> impl Fn(&Request) -> Option<String> + use<> {
    let tag = fixture.name().to_owned();
    move |request| Some(format!("{{{tag}}}address-{}", request.address))
}

async fn says(rules: &Rules, request: &Request) -> Option<&'static str> {
    match rules.check(request).await.unwrap() {
        Verdict::Granted(_) => None,
        Verdict::Rejected(why, _) => Some(why),
    }
}

pub async fn all_rules_that_apply_grant_or_none_is_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = client
        .rules(vec![
            Rule::new(window(&client, 2), by_user(&fixture), |_, _| "user"),
            Rule::new(window(&client, 3), by_address(&fixture), |_, _| "address"),
        ])
        .unwrap();
    let nobody = Request {
        user: None,
        ..ALICE
    };
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, Some("user")); // the address is not charged
    assert_eq!(says(&rules, &nobody).await, None); // only the address's rule applies
    assert_eq!(says(&rules, &nobody).await, Some("address"));
    let elsewhere = Request {
        address: "::2",
        ..ALICE
    };
    assert_eq!(says(&rules, &elsewhere).await, Some("user"));
}

pub async fn a_request_that_no_rule_applies_to_is_granted(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = client
        .rules(vec![Rule::new(
            window(&client, 1),
            by_user(&fixture),
            |_, _| "user",
        )])
        .unwrap();
    let nobody = Request {
        user: None,
        ..ALICE
    };
    for _ in 0..3 {
        assert_eq!(rules.check(&nobody).await.unwrap(), Verdict::Granted(None));
    }
}

pub async fn targets_together_are_one_target_and_no_two_of_them_meet(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = fixture.name().to_owned();
    let rule = Rule::new(
        window(&client, 1),
        move |request: &Request| Some(format!("{{{tag}}}{}", request.user?)),
        |_, _| "both",
    );
    let rules = client
        .rules(vec![
            rule.and_by(|request| Some(request.address.to_owned())),
        ])
        .unwrap();
    let request = |user, address| Request {
        user: Some(user),
        address,
        size: 1,
    };
    for (user, address) in [("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c"), ("a", "b%3Ac")] {
        assert_eq!(
            says(&rules, &request(user, address)).await,
            None,
            "{user} {address}"
        );
        assert_eq!(says(&rules, &request(user, address)).await, Some("both"));
    }
}

pub async fn a_request_costs_what_its_rule_says_and_a_rejection_has_the_decision(fixture: Fixture) {
    let client = fixture.client("client").await;
    let bucket = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let rule = Rule::new(
        bucket,
        by_user(&fixture),
        |request: &Request, decision: &Decision| match decision {
            Decision::Denied(Denied { retry_after, .. })
                if *retry_after == 2 * SECOND && request.size == 5 =>
            {
                "in 2 s"
            }
            _ => "else",
        },
    );
    let rules = client
        .rules(vec![rule.cost(|request| request.size)])
        .unwrap();
    assert_eq!(says(&rules, &Request { size: 7, ..ALICE }).await, None);
    assert_eq!(
        says(&rules, &Request { size: 5, ..ALICE }).await,
        Some("in 2 s")
    );
    assert_eq!(says(&rules, &Request { size: 3, ..ALICE }).await, None);
    let refused = rules.check(&Request { size: 11, ..ALICE }).await;
    assert!(matches!(refused, Err(Error::ExceedsLimit { .. })));
}

pub async fn a_rule_does_not_apply_to_a_request_that_costs_it_nothing(fixture: Fixture) {
    let client = fixture.client("client").await;
    let user = Rule::new(window(&client, 1), by_user(&fixture), |_, _| "user");
    let address = Rule::new(window(&client, 4), by_address(&fixture), |_, _| "address");
    let rules = client.rules([user.cost(|request| request.size), address]);
    let rules = rules.unwrap();
    let free = Request { size: 0, ..ALICE };
    for expected in [None, None] {
        assert_eq!(says(&rules, &free).await, expected);
    }
    for expected in [None, Some("user")] {
        assert_eq!(says(&rules, &ALICE).await, expected);
    }
    for expected in [None, Some("address")] {
        assert_eq!(says(&rules, &free).await, expected);
    }
}

pub async fn a_plan_that_blocks_does_so_whatever_a_request_costs(fixture: Fixture) {
    let client = fixture.client("client").await;
    let user = Rule::new(window(&client, 1), by_user(&fixture), |_, _| "user")
        .with_plan("blocked", Plan::Block)
        .plan_of(|_, _| Some("blocked".to_owned()))
        .cost(|request| request.size);
    let rules = client.rules([user]).unwrap();
    for size in [0, 1] {
        let request = Request { size, ..ALICE };
        assert_eq!(says(&rules, &request).await, Some("user"));
    }
}

pub async fn rules_are_replaced_while_requests_come_in(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rule = |limit, why| {
        vec![Rule::new(
            window(&client, limit),
            by_user(&fixture),
            move |_, _| why,
        )]
    };
    let rules = client.rules(rule(1, "one")).unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, Some("one"));
    rules.replace(rule(2, "two")).unwrap();
    assert_eq!(says(&rules, &ALICE).await, None); // what was used counts on
    assert_eq!(says(&rules, &ALICE).await, Some("two"));
    rules.replace(vec![]).unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
}

pub async fn a_verdict_has_the_decision_of_each_limiter_by_its_name(fixture: Fixture) {
    let client = fixture.client("client").await;
    let users = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let addresses = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    let rules = client
        .rules(vec![
            Rule::new(users.with_name("users"), by_user(&fixture), |_, _| "user"),
            Rule::new(
                addresses.with_name("addresses"),
                by_address(&fixture),
                |_, _| "address",
            ),
        ])
        .unwrap();
    let named = |joint: &JointDecision| -> Vec<_> {
        let each = joint.by_limiter();
        each.map(|(name, it)| (name.to_owned(), it.is_granted(), it.remaining()))
            .collect()
    };
    let owned = |name: &str, granted, remaining| (name.to_owned(), granted, remaining);
    let Verdict::Granted(Some(both)) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is denied");
    };
    assert_eq!(
        named(&both),
        [owned("users", true, 1), owned("addresses", true, 2)]
    );
    assert_eq!(both.deciding().0, "users");
    let nobody = Request {
        user: None,
        ..ALICE
    };
    let Verdict::Granted(Some(one)) = rules.check(&nobody).await.unwrap() else {
        panic!("it is denied");
    };
    assert_eq!(named(&one), [owned("addresses", true, 1)]);
    assert_eq!(says(&rules, &nobody).await, None);
    let Verdict::Rejected("address", denied) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is not denied by the address");
    };
    assert_eq!(
        named(&denied),
        [owned("users", false, 1), owned("addresses", false, 0)]
    );
    assert_eq!(denied.deciding().0, "addresses");
    let Verdict::Rejected(_, denied) = rules.check(&nobody).await.unwrap() else {
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
            Rule::new(
                shared.clone(),
                |_: &Request| Some(String::new()),
                |_, _| "all",
            ),
            Rule::new(
                keyed.unwrap(),
                |request: &Request| request.user.map(str::to_owned),
                |_, _| "user",
            ),
        ])
        .unwrap();
    let nobody = Request {
        user: None,
        ..ALICE
    };
    let mut decisions = Vec::new();
    for request in [&ALICE, &ALICE, &nobody] {
        let Verdict::Granted(Some(joint)) = rules.check(request).await.unwrap() else {
            panic!("it is denied");
        };
        decisions.push(joint);
    }
    let names: Vec<_> = decisions[0].by_limiter().map(|(name, _)| name).collect();
    assert_eq!(names, [fixture.name(), &prefix]);
    assert_eq!(says(&rules, &ALICE).await, Some("all"));
    // Every grant is given back, of one rule and of several.
    for (joint, permits) in decisions.into_iter().zip([2, 2, 1]) {
        assert_eq!(client.refund_all(joint.clone()).await.unwrap(), permits);
        assert_eq!(client.refund_all(joint).await.unwrap(), 0);
    }
    assert_eq!(shared.available_permits().await.unwrap(), 3);
    for expected in [None, None, None, Some("all")] {
        assert_eq!(says(&rules, &ALICE).await, expected);
    }
}

pub async fn rules_that_cannot_decide_together_are_refused_when_made(fixture: Fixture) {
    let client = fixture.client("client").await;
    let other = fixture.client("other").await;
    let rule = |limiter| Rule::new(limiter, by_user(&fixture), |_, _| "denied");
    let few = || vec![rule(window(&client, 1))];
    let rules = client.rules(few()).unwrap();
    let error = |refused: Vec<_>| rules.replace(refused).unwrap_err().to_string();
    assert_eq!(
        error(vec![rule(window(&other, 1))]),
        "invalid rule `1 an hour`: it has a limiter of another client"
    );
    let twins = vec![rule(window(&client, 7)), rule(window(&client, 7))];
    assert_eq!(
        error(twins),
        "invalid rule `7 an hour`: it has the name of another rule"
    );
    let of_a_plan = rule(window(&client, 8)).with_plan("paid", limit(window(&client, 7)));
    assert_eq!(
        error(vec![rule(window(&client, 7)), of_a_plan]),
        "invalid rule `7 an hour`: it has the name of another rule"
    );
    assert!(client.rules(vec![rule(window(&other, 1))]).is_err());
    // The old ones stay.
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, Some("denied"));
}

pub async fn a_rule_in_shadow_mode_is_charged_and_told_and_not_enforced(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let user = Rule::new(window(&client, 3), by_user(&fixture), |_, _| "user");
    let address = Rule::new(window(&client, 2), by_address(&fixture), |_, _| "address");
    let address = address.cost(|request| request.size).in_shadow();
    let rules = client.rules(vec![address, user]).unwrap();
    let Verdict::Granted(Some(decision)) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is denied");
    };
    let names: Vec<_> = decision.by_limiter().map(|(name, _)| name).collect();
    assert_eq!(names, ["3 an hour"]);
    for (size, expected) in [(2, None), (5, None), (1, Some("user"))] {
        assert_eq!(says(&rules, &Request { size, ..ALICE }).await, expected);
    }
    assert_eq!(
        told.take_requests(),
        [
            "*3 an hour 1 granted: granted by store",
            "shadow *2 an hour 1 granted: granted by store",
            "*3 an hour 1 granted: granted by store",
            "shadow *2 an hour 2 denied: denied by store",
            "*3 an hour 1 granted: granted by store",
            "shadow : exceeds_limit",
            "*3 an hour 1 denied: denied by store", // the rule in shadow mode is not asked
        ]
    );
}

pub async fn rules_are_set_in_shadow_mode_while_requests_come_in(fixture: Fixture) {
    let told = Told::default();
    let builder = RedissonClient::builder().response_timeout(60 * SECOND);
    let client = fixture.build(told.by(builder)).await;
    let user = Rule::new(window(&client, 1), by_user(&fixture), |_, _| "user");
    let address = Rule::new(window(&client, 3), by_address(&fixture), |_, _| "address");
    let address = address
        .with_plan("blocked", Plan::Block)
        .plan_of(|request, _| (request.size == 9).then(|| "blocked".to_owned()));
    let rules = client.rules(vec![user, address]).unwrap();
    rules.set_shadow(true);
    let blocked = Request { size: 9, ..ALICE };
    for request in [&ALICE, &ALICE, &blocked] {
        assert_eq!(rules.check(request).await.unwrap(), Verdict::Granted(None));
    }
    rules.set_shadow(false);
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    assert_eq!(says(&rules, &blocked).await, Some("address"));
    let nobody = Request {
        user: None,
        ..ALICE
    };
    for expected in [None, None, Some("address")] {
        assert_eq!(says(&rules, &nobody).await, expected, "one was charged");
    }
    assert_eq!(
        told.take_requests()[..5],
        [
            "shadow *1 an hour 1 granted, *3 an hour 1 granted: granted by store",
            "shadow *1 an hour 1 denied, 3 an hour 1 denied: denied by store",
            "shadow *3 an hour 1 denied: denied by rule",
            "*1 an hour 1 denied, 3 an hour 1 denied: denied by store",
            "*3 an hour 1 denied: denied by rule",
        ]
    );
}

pub async fn a_plan_has_a_limiter_of_its_own_or_allows_or_blocks(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let paid = client.policy_limiter(TokenBucket::per_second(2)).unwrap();
    let paid = paid.with_prefix(format!("{tag}paid:"));
    let all = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    let all = all.with_prefix(tag).with_name("all");
    let user = Rule::new(
        window(&client, 1),
        by_user(&fixture),
        |_, denied: &Decision| match denied.source() {
            DecisionSource::Rule => "blocked",
            _ => "user",
        },
    );
    let user = user
        .with_plan("paid", limit(paid))
        .with_plan("allowed", Plan::Allow)
        .with_plan("blocked", Plan::Block)
        .plan_of(|request, _| Some(request.address.to_owned()));
    let all = Rule::new(all, |_| Some("all".to_owned()), |_, _| "all");
    let rules = client.rules(vec![all, user]).unwrap();
    let on = |address| Request { address, ..ALICE };
    for (plan, expected) in [
        ("free", None),
        ("free", Some("user")),
        ("paid", None),
        ("paid", None),
        ("paid", Some("user")),
        ("allowed", None),
        ("allowed", None),
        ("blocked", Some("blocked")),
    ] {
        assert_eq!(says(&rules, &on(plan)).await, expected, "{plan}");
    }
    let Verdict::Granted(Some(all)) = rules.check(&on("allowed")).await.unwrap() else {
        panic!("it is denied");
    };
    // Five of nine were granted, and this one; what was denied was charged to nobody.
    assert_eq!(
        (all.by_limiter().count(), all.deciding().1.remaining()),
        (1, 3)
    );
    let Verdict::Rejected(_, blocked) = rules.check(&on("blocked")).await.unwrap() else {
        panic!("it is granted");
    };
    assert_eq!(blocked.deciding().0, "1 an hour");
}

pub async fn a_rule_that_changes_its_algorithm_counts_what_was_used(fixture: Fixture) {
    let client = fixture.client("client").await;
    let stopped = fixture.stop_time();
    let tag = format!("{{{}}}", fixture.name());
    let rule = |limiter| {
        let to = |request: &Request| request.user.map(str::to_owned);
        vec![Rule::new(limiter, to, |_, _| "user")]
    };
    let limiter = |policy: AnyPolicy, prefix| {
        let limiter = client.policy_limiter(policy).unwrap();
        limiter
            .with_prefix(format!("{tag}{prefix}"))
            .with_name("user")
    };
    let fixed = |prefix, limit| rule(limiter(FixedWindow::new(limit, 10 * SECOND).into(), prefix));
    let bucket = |prefix| rule(limiter(TokenBucket::per_second(5).into(), prefix));
    let rules = client.rules(fixed("fixed:", 2)).unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
    let refused = rules.replace(bucket("fixed:")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid rule `user`: it has another algorithm than before: give its limiter another prefix"
    );
    rules.replace(bucket("bucket:")).unwrap();
    let Verdict::Granted(Some(both)) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is denied");
    };
    let left = both.by_limiter().map(|(name, it)| (name, it.remaining()));
    assert_eq!(left.collect::<Vec<_>>(), [("user", 0)]); // the stricter one, once
    assert_eq!(says(&rules, &ALICE).await, Some("user")); // two were used
    rules.replace(bucket("other:")).unwrap(); // what both have counted counts
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    rules.replace(fixed("fixed:", 3)).unwrap(); // so do its own targets
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    rules.replace(bucket("bucket:")).unwrap();
    fixture.let_pass(10 * SECOND).await;
    let Verdict::Granted(Some(one)) = rules.check(&ALICE).await.unwrap() else {
        panic!("it is denied");
    };
    assert_eq!(one.by_limiter().count(), 1);
    drop(stopped);
}

pub async fn rules_that_swap_their_prefixes_go_on_deciding(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let rule = |name, prefix, limit| {
        let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
        let limiter = limiter.unwrap().with_prefix(format!("{tag}{prefix}"));
        let to = |request: &Request| request.user.map(str::to_owned);
        Rule::new(limiter.with_name(name), to, move |_, _| name)
    };
    let rules = client.rules([rule("one", "a:", 9), rule("other", "b:", 9)]);
    let rules: Rules = rules.unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
    rules
        .replace([rule("one", "b:", 9), rule("other", "a:", 2)])
        .unwrap();
    assert_eq!(says(&rules, &ALICE).await, None); // the second of the targets of both
    assert_eq!(says(&rules, &ALICE).await, Some("other"));
}

/// Also of the limiter that a rule had before.
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
        let user = |request: &Request| request.user.map(str::to_owned);
        vec![
            Rule::new(calls.with_name("calls"), user, |_, _| "calls"),
            Rule::new(tokens(prefix), user, |_, _| "tokens").cost(|_| 5),
        ]
    };
    let rules = client.rules(rules_with("before:")).unwrap();
    let charged = async || match rules.check(&ALICE).await.unwrap() {
        Verdict::Granted(Some(decision)) => decision,
        other => panic!("{other:?}"),
    };
    let left = async |prefix: &str| {
        let available = tokens(prefix).rate_limiter("alice");
        available.available_permits().await.unwrap()
    };
    for (cost, expected) in [(5, 15), (2, 13), (9, 4)] {
        let decision = charged().await;
        for cost in [cost, 8] {
            let cost_of = |rule: &str, _| (rule == "tokens").then_some(cost);
            rules.settle(decision.clone(), cost_of).await.unwrap();
        }
        assert_eq!(rules.refund(decision).await.unwrap(), 0);
        assert_eq!(left("before:").await, expected, "{cost}");
    }
    assert_eq!(says(&rules, &ALICE).await, Some("tokens"));
    tokens("before:").reset("alice").await.unwrap();

    rules.replace(rules_with("now:")).unwrap();
    let decision = charged().await;
    rules.settle(decision, |_, _| Some(1)).await.unwrap();
    assert_eq!((left("before:").await, left("now:").await), (19, 19));
    let decision = charged().await;
    assert_eq!(rules.refund(decision).await.unwrap(), 10);
    assert_eq!((left("before:").await, left("now:").await), (19, 19));
    drop(stopped);
}

/// On a cluster their keys are in several slots.
pub async fn rules_per_user_and_per_address_need_no_common_hash_tag(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limited = |name: &'static str, limit, key: fn(&Request) -> Option<String>| {
        let limiter = client.policy_limiter(FixedWindow::new(limit, HOUR));
        let prefix = format!("{}-{name}:", fixture.name());
        let limiter = limiter.unwrap().with_prefix(prefix);
        Rule::new(limiter.with_name(name), key, move |_, _| name)
    };
    let user = limited("user", 2, |request| request.user.map(str::to_owned));
    let address = limited("address", 3, |request| Some(request.address.to_owned()));
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
        assert_eq!(says(&rules, request).await, expected);
    }
    let elsewhere = Request {
        address: "::2",
        ..bob
    };
    assert_eq!(says(&rules, &elsewhere).await, None);
    assert_eq!(says(&rules, &elsewhere).await, Some("user"));
}
