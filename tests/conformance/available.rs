//! When something is available again.

use std::time::Duration;

use redisson_rate_limiter::{
    AnyPolicy, Decision, FixedWindow, Policy, PolicyLimiter, Rate, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket,
};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, SECOND, ms};

/// Whether it was granted, what it left, and in how many ms more is available.
fn available(decision: &Decision) -> (bool, u64, u128) {
    let available_in = decision.available_in().as_millis();
    (decision.is_granted(), decision.remaining(), available_in)
}

pub async fn a_rate_limiter_has_more_when_its_oldest_permits_are_back(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(5, SECOND))
        .await
        .unwrap();
    for (at, permits, expected) in [
        (1_000, 2, (true, 3, 0)),
        (1_300, 4, (false, 3, 0)),
        (1_300, 3, (true, 0, 700)),
        (1_400, 1, (false, 0, 600)),
        (2_000, 2, (true, 0, 300)), // two are back
        (3_300, 5, (true, 0, 1_000)),
    ] {
        fixture.at(at);
        let peeked = limiter.peek(permits).await.unwrap();
        let decision = limiter.check(permits).await.unwrap();
        assert_eq!(available(&decision), expected, "at {at}");
        assert_eq!(available(&peeked), expected, "at {at}");
    }
}

async fn ask<P: Policy>(limiter: &PolicyLimiter<P>, key: &str, cost: u32) -> Decision {
    limiter.check_without_waiting(key, cost).await.unwrap()
}

/// Without the fixed window, which ends by the server's clock. That clock is not moved here, so it
/// has a test of its own.
pub async fn each_policy_has_more_when_it_says_and_not_before(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(4) {
        let name = policy.algorithm();
        if name == "fixed_window" {
            continue;
        }
        let whole = u32::try_from(policy.quota().limit).unwrap();
        let limiter = client.policy_limiter(policy).unwrap();
        for is_granted in [true, false] {
            for (before, is_back) in [(ms(1), false), (Duration::ZERO, true)] {
                let key = format!("{}:{name}:{is_granted}:{is_back}", fixture.name());
                let first = ask(&limiter, &key, unit).await;
                assert_eq!(first.available_in(), Duration::ZERO, "{key}");
                fixture.pass(ms(700));
                let mut decision = ask(&limiter, &key, whole - unit).await;
                if !is_granted {
                    fixture.pass(ms(100));
                    decision = ask(&limiter, &key, whole).await;
                }
                let left = (decision.is_granted(), decision.remaining());
                assert_eq!(left, (is_granted, 0), "{key}");
                fixture.pass(decision.available_in() - before);
                let one = ask(&limiter, &key, 1).await;
                assert_eq!(one.is_granted(), is_back, "{key}: {decision:?}");
            }
        }
    }
}

pub async fn a_limit_that_was_lowered_has_more_when_less_than_it_is_in_use(fixture: Fixture) {
    let client = fixture.client("client").await;
    let log = |limit| AnyPolicy::from(SlidingWindowLog::new(limit, 4 * HOUR));
    let counter = |limit| {
        let counter = SlidingWindowCounter::new(limit, 4 * HOUR).with_period(HOUR);
        AnyPolicy::from(counter)
    };
    for (before, lowered) in [(log(4), log(2)), (counter(4), counter(2))] {
        let limiter = client.policy_limiter(before).unwrap();
        let key = format!("{}:{}", fixture.name(), lowered.algorithm());
        for pause in [0, 1, 1, 1] {
            fixture.pass(pause * HOUR);
            assert!(ask(&limiter, &key, 1).await.is_granted());
        }
        limiter.set_policy(lowered).unwrap();
        let denied = ask(&limiter, &key, 2).await;
        assert_eq!((denied.is_granted(), denied.remaining()), (false, 0));
        assert!(denied.available_in() < denied.retry_after().unwrap());
        fixture.pass(denied.available_in() - ms(1));
        assert!(!ask(&limiter, &key, 1).await.is_granted(), "{key}");
        fixture.pass(ms(1));
        assert!(ask(&limiter, &key, 1).await.is_granted(), "{key}");
    }
}

pub async fn a_fixed_window_has_more_when_it_ends(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let granted = ask(&limiter, fixture.name(), 2).await;
    let denied = ask(&limiter, fixture.name(), 1).await;
    assert_eq!(granted.available_in(), HOUR);
    assert_eq!(Some(denied.available_in()), denied.retry_after());
}

pub async fn a_target_that_is_locked_out_has_nothing_until_the_lock_ends(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap()
        .with_penalty(HOUR)
        .unwrap();
    assert!(ask(&limiter, fixture.name(), 4).await.is_granted());
    let denied = ask(&limiter, fixture.name(), 7).await;
    assert_eq!((denied.available_in(), denied.reset()), (HOUR, HOUR));
    let locked_out = ask(&limiter, fixture.name(), 1).await;
    assert!(locked_out.available_in() > HOUR / 2);
    assert_eq!(Some(locked_out.available_in()), locked_out.retry_after());
}

pub async fn limiters_that_decide_together_say_what_each_would_alone(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let full = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let rate = client.rate_limiter(&format!("{tag}:rate"));
    let policies: Vec<_> = every_policy(4).collect();
    let permits = policies.len() as u64 + 1; // the last one leaves none
    rate.set_rate(Rate::overall(permits, HOUR)).await.unwrap();
    assert!(rate.check(1).await.unwrap().is_granted());
    fixture.pass(SECOND);
    for (policy, unit) in policies {
        let name = policy.algorithm();
        let whole = u32::try_from(policy.quota().limit).unwrap();
        let limiter = client.policy_limiter(policy).unwrap();
        let key = |part: &str| format!("{tag}:{name}:{part}");
        let alone = ask(&limiter, &key("alone"), whole).await;
        let charges = [
            limiter.charge(&key("together"), whole).unwrap(),
            rate.charge(1).unwrap(),
        ];
        let together = client.check_all(charges).await.unwrap();
        let [first, second] = together.decisions() else {
            panic!("{together:?}");
        };
        assert_eq!(available(first), available(&alone), "{name}");
        let left = second.remaining();
        let expected = if left == 0 { HOUR - SECOND } else { ms(0) };
        assert_eq!(second.available_in(), expected, "{left}");

        // A limiter that is not charged because another one denies answers with what it has.
        let charges = || {
            [
                limiter.charge(&key("spared"), unit).unwrap(),
                full.charge(&key("full"), 1).unwrap(),
            ]
        };
        assert!(client.check_all(charges()).await.unwrap().is_granted());
        let denied = client.check_all(charges()).await.unwrap();
        assert_eq!(denied.decisions()[0].available_in(), ms(0), "{name}");
        assert_eq!(
            Some(denied.decisions()[1].available_in()),
            denied.decisions()[1].retry_after()
        );
    }
}
