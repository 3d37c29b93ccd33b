//! Rules: which target a request counts for, what it costs, and what a denied request gets.
use std::sync::Arc;

use redisson_rate_limiter::{
    AnyPolicy, Chargeable, Decision, DecisionSource, Denied, Error, FixedWindow, JointDecision,
    Plan, Rate, RedissonClient, Rule, RulesGrant, SlidingWindowCounter, SlidingWindowLog,
    TokenBucket, Verdict,
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

/// The decision on a request that is granted.
fn granted(verdict: Verdict<&'static str>) -> JointDecision {
    match verdict {
        Verdict::Granted(granted) => granted.into_decision().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Whether no rule has charged a request.
fn is_free(verdict: Verdict<&'static str>) -> bool {
    verdict == Verdict::Granted(RulesGrant::default())
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
        assert!(is_free(rules.check(&nobody).await.unwrap()));
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
    let both = granted(rules.check(&ALICE).await.unwrap());
    assert_eq!(
        named(&both),
        [owned("users", true, 1), owned("addresses", true, 2)]
    );
    assert_eq!(both.deciding().0, "users");
    let nobody = Request {
        user: None,
        ..ALICE
    };
    let one = granted(rules.check(&nobody).await.unwrap());
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
        let joint = granted(rules.check(request).await.unwrap());
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
    let decision = granted(rules.check(&ALICE).await.unwrap());
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
            "shadow *2 an hour 5: exceeds_limit",
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
        assert_eq!(rules.check(request).await.unwrap().decision(), None);
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
    let all = all.with_prefix(format!("{tag}all:")).with_name("all");
    let free = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let free = free.with_prefix(format!("{tag}free:"));
    let user = Rule::new(
        free.with_name("1 an hour"),
        |request: &Request| request.user.map(str::to_owned),
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
    let all = granted(rules.check(&on("allowed")).await.unwrap());
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

/// A rule for users with this limiter.
fn of_users(limiter: impl Chargeable + 'static) -> Vec<Rule<Request, &'static str>> {
    let to = |request: &Request| request.user.map(str::to_owned);
    vec![Rule::new(limiter, to, |_, _| "user")]
}

pub async fn a_rule_with_another_algorithm_starts_anew_and_says_so(fixture: Fixture) {
    let client = fixture.client("client").await;
    let stopped = fixture.stop_time();
    let tag = format!("{{{}}}", fixture.name());
    let limiter = |policy: AnyPolicy, prefix| {
        let limiter = client.policy_limiter(policy).unwrap();
        let prefix = format!("{tag}{prefix}");
        of_users(limiter.with_prefix(prefix).with_name("user"))
    };
    let fixed = |prefix, limit| limiter(FixedWindow::new(limit, HOUR).into(), prefix);
    let bucket = |prefix| limiter(TokenBucket::per_second(1).into(), prefix);
    let rules = client.rules(fixed("fixed:", 2)).unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, None);
    let change = rules.replace(bucket("bucket:")).unwrap();
    assert_eq!(change.started_anew, ["user"]);
    let one = granted(rules.check(&ALICE).await.unwrap());
    assert_eq!(one.by_limiter().count(), 1); // the one before does not decide
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    let change = rules.replace(fixed("fixed:", 3)).unwrap();
    assert_eq!(change.started_anew, ["user"]);
    assert_eq!(says(&rules, &ALICE).await, None); // what its keys still hold counts
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    let change = rules.replace(fixed("fixed:", 4)).unwrap();
    assert_eq!((change.changed.len(), change.started_anew.len()), (1, 0));
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    assert!(rules.replace(fixed("fixed:", 4)).unwrap().is_empty());
    drop(stopped);
}

pub async fn limiters_that_may_have_keys_of_another_algorithm_are_refused(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let bucket = |prefix: &str, name: &str| {
        let limiter = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
        let limiter = limiter.with_prefix(format!("{tag}{prefix}"));
        of_users(limiter.with_name(name))
    };
    let fixed = |prefix: &str, name: &str| {
        let limiter = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
        let limiter = limiter.with_prefix(format!("{tag}{prefix}"));
        of_users(limiter.with_name(name))
    };
    let shared = || of_users(client.rate_limiter(&format!("{tag}a:orders")));
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
    let rules = client.rules(fixed("a:", "a")).unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
    let refuse = |refused: Vec<_>| {
        let error = rules.replace(refused).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid rule `b`: it may have the keys of another algorithm, of another rule or of one before: \
             give its limiter a prefix of its own"
        );
    };
    refuse(bucket("a:", "b"));
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
    rules.replace([]).unwrap();
    refuse(bucket("a:", "b"));
    assert_eq!(says(&rules, &ALICE).await, None);
    rules.replace(fixed("a:", "b")).unwrap();
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
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
    let change = rules.replace([rule("one", "b:", 9), rule("other", "a:", 2)]);
    assert_eq!(change.unwrap().started_anew, ["one", "other"]);
    assert_eq!(says(&rules, &ALICE).await, None); // the second of the targets of both
    assert_eq!(says(&rules, &ALICE).await, Some("other"));
}

/// Each of them would be asked too, if a limiter decided because a rule had it once: more than one
/// call may ask.
pub async fn rules_may_be_replaced_as_often_as_one_likes(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let with_prefixes = |of: usize| {
        let rule = |place| {
            let counter = SlidingWindowCounter::new(9, HOUR).with_period(HOUR / 500);
            let limiter = client.policy_limiter(counter).unwrap();
            let limiter = limiter.with_prefix(format!("{tag}{of}-{place}:"));
            let to = |request: &Request| request.user.map(str::to_owned);
            Rule::new(limiter.with_name(format!("{place}")), to, |_, _| "")
        };
        (0..3).map(rule).collect::<Vec<_>>()
    };
    let rules = client.rules(with_prefixes(0)).unwrap();
    for of in 1..=40 {
        assert_eq!(says(&rules, &ALICE).await, None);
        let change = rules.replace(with_prefixes(of)).unwrap();
        assert_eq!(change.started_anew.len(), 3);
    }
    let joint = granted(rules.check(&ALICE).await.unwrap());
    let left: Vec<_> = joint.decisions().iter().map(Decision::remaining).collect();
    assert_eq!(left, [8, 8, 8]);
}

pub async fn replaced_rules_stay_in_shadow_mode(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rule = || Rule::new(window(&client, 1), by_user(&fixture), |_, _| "user");
    let rules = client.rules([rule()]).unwrap();
    rules.set_shadow(true);
    rules.replace([rule()]).unwrap();
    for _ in 0..2 {
        assert_eq!(says(&rules, &ALICE).await, None);
    }
    rules.set_shadow(false);
    rules.replace([rule()]).unwrap();
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
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
        let user = |request: &Request| request.user.map(str::to_owned);
        vec![
            Rule::new(calls.with_name("calls"), user, |_, _| "calls"),
            Rule::new(tokens(prefix), user, |_, _| "tokens").cost(|_| 5),
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
        assert_eq!(rules.refund(decision).await.unwrap(), 0);
        assert_eq!(left("before:").await, expected, "{cost}");
    }
    assert_eq!(says(&rules, &ALICE).await, Some("tokens"));
    tokens("before:").reset("alice").await.unwrap();

    // Also after the rules were replaced.
    let decision = charged().await;
    rules.replace(rules_with("now:")).unwrap();
    rules.settle(decision, |_, _| Some(1)).await.unwrap();
    assert_eq!((left("before:").await, left("now:").await), (19, 20));
    let decision = charged().await;
    assert_eq!(rules.refund(decision).await.unwrap(), 5);
    assert_eq!((left("before:").await, left("now:").await), (19, 20));
    drop(stopped);
}

/// An RRateLimiter's permits and those of a policy, by whether the rule in shadow mode would deny.
pub async fn shadow_rules_are_charged_settled_and_given_back_as_others(fixture: Fixture) {
    let client = fixture.client("client").await;
    let stopped = fixture.stop_time();
    let tag = format!("{{{}}}", fixture.name());
    let tokens = |name: &str| {
        let limiter = client.keyed_rate_limiter(&format!("{tag}{name}:"), Rate::overall(20, HOUR));
        limiter.unwrap().with_name(name)
    };
    let user = |request: &Request| request.user.map(str::to_owned);
    let rule = |name| Rule::new(tokens(name), user, move |_, _| name).cost(|_| 5);
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
        // What a request has is kept while rules in shadow mode are asked, and after it.
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
        let to = |request: &Request| request.user.map(str::to_owned);
        Rule::new(limiter.with_name(name), to, |_, _| "").cost(|request| request.size)
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
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(told.take_requests(), [format!("shadow {expected}")]);

    let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let limiter = limiter.with_prefix(format!("{tag}wide:")).with_name("wide");
    let wide = Rule::new(
        limiter,
        |request: &Request| request.user.map(str::to_owned),
        |_, _| "",
    );
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
        let to = |request: &Request| request.user.map(str::to_owned);
        Rule::new(limiter.with_name(format!("{place}")), to, |_, _| "")
    };
    let rules = client
        .rules((0..4).map(counter).collect::<Vec<_>>())
        .unwrap();
    assert_eq!(says(&rules, &ALICE).await, None);
    let rules = client
        .rules((0..5).map(counter).collect::<Vec<_>>())
        .unwrap();
    let too_many = rules.check(&ALICE).await.unwrap_err();
    assert!(matches!(too_many, Error::InvalidRule { rule, .. } if rule == "4"));
}

/// Of several functions that choose a plan, those that name none of the rule's do not count.
pub async fn a_plan_that_a_rule_does_not_have_leaves_the_choice_to_others(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rule = Rule::new(window(&client, 1), by_user(&fixture), |_, _| "user")
        .with_plan("blocked", Plan::Block)
        .plan_of(|_, _| Some("no such plan".to_owned()))
        .plan_of(|_, _| None)
        .plan_of(|_, _| Some("blocked".to_owned()));
    let rules = client.rules([rule]).unwrap();
    assert_eq!(says(&rules, &ALICE).await, Some("user"));
}

/// On a cluster they are in two slots, and asked one after another.
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
