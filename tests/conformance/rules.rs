//! Rules: which target a request counts for, what it costs, and what a denied request gets.
use redisson_rate_limiter::{
    Chargeable, Decision, Denied, Error, FixedWindow, RedissonClient, Rule, TokenBucket, Verdict,
};

use crate::fixture::{Fixture, HOUR, SECOND};

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
    client.limiter(FixedWindow::new(limit, HOUR)).unwrap()
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
        Verdict::Rejected(why) => Some(why),
    }
}

pub async fn all_rules_that_apply_grant_or_none_is_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rules = client.rules(vec![
        Rule::new(window(&client, 2), by_user(&fixture), |_, _| "user"),
        Rule::new(window(&client, 3), by_address(&fixture), |_, _| "address"),
    ]);
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
    let rules = client.rules(vec![Rule::new(
        window(&client, 1),
        by_user(&fixture),
        |_, _| "user",
    )]);
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
    let rules = client.rules(vec![
        rule.and_by(|request| Some(request.address.to_owned())),
    ]);
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
        .limiter(TokenBucket::per_second(1).with_capacity(10))
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
    let rules = client.rules(vec![rule.cost(|request| request.size)]);
    assert_eq!(says(&rules, &Request { size: 7, ..ALICE }).await, None);
    assert_eq!(
        says(&rules, &Request { size: 5, ..ALICE }).await,
        Some("in 2 s")
    );
    assert_eq!(says(&rules, &Request { size: 3, ..ALICE }).await, None);
    let refused = rules.check(&Request { size: 0, ..ALICE }).await;
    assert!(matches!(
        refused,
        Err(Error::InvalidArgument {
            argument: "cost",
            ..
        })
    ));
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
    let rules = client.rules(rule(1, "one"));
    assert_eq!(says(&rules, &ALICE).await, None);
    assert_eq!(says(&rules, &ALICE).await, Some("one"));
    rules.replace(rule(2, "two"));
    assert_eq!(says(&rules, &ALICE).await, None); // what was used counts on
    assert_eq!(says(&rules, &ALICE).await, Some("two"));
    rules.replace(vec![]);
    assert_eq!(says(&rules, &ALICE).await, None);
}
