//! The quota by which a decision was made, and when all of it is available again.

use std::time::Duration;

use redisson_rate_limiter::{
    Decision, FixedWindow, LeakyBucket, Policy, PolicyLimiter, Quota, Rate,
};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, SECOND, ms};

/// Whether it was granted, and its reset in ms.
fn reset(decision: &Decision) -> (bool, u128) {
    assert!(decision.reset() <= decision.window(), "{decision:?}");
    (decision.is_granted(), decision.reset().as_millis())
}

fn quota(decision: &Decision) -> Quota {
    Quota::new(decision.limit(), decision.window())
}

pub async fn a_rate_limiter_is_reset_when_its_newest_permits_are_back(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(5, SECOND);
    limiter.try_set_rate(rate).await.unwrap();
    let mut decisions = Vec::new();
    for (at, permits, expected) in [
        (1_000, 2, (true, 1_000)),
        (1_300, 2, (true, 1_000)),
        (1_400, 2, (false, 900)),
        (2_000, 4, (false, 300)), // two are back
        (2_100, 2, (true, 1_000)),
        (2_200, 4, (false, 900)),
        (3_100, 5, (true, 1_000)), // all are back
    ] {
        fixture.at(at);
        let decision = limiter.check(permits).await.unwrap();
        assert_eq!(reset(&decision), expected, "at {at}");
        decisions.push(decision);
    }
    assert!(decisions.iter().all(|it| quota(it) == rate.quota()));
}

pub async fn grants_that_a_clock_ahead_scored_count_as_made_now(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(5, SECOND);
    limiter.try_set_rate(rate).await.unwrap();
    fixture.at(1_500);
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(1_000);
    let decision = limiter.check(2).await.unwrap();
    assert_eq!(reset(&decision), (false, 1_000));
    let decision = limiter.check(1).await.unwrap();
    assert_eq!(reset(&decision), (true, 1_000));
}

pub async fn a_rate_per_client_states_the_reset_of_its_own_client(fixture: Fixture) {
    let rate = Rate::per_client(2, SECOND);
    let [one, other] = [
        fixture.limiter_of("one").await,
        fixture.limiter_of("other").await,
    ];
    one.try_set_rate(rate).await.unwrap();
    assert!(one.try_acquire(1).await.unwrap());
    fixture.pass(ms(400));
    assert!(other.try_acquire(1).await.unwrap());
    let decision = one.check(2).await.unwrap();
    assert_eq!(
        (reset(&decision), quota(&decision)),
        ((false, 600), rate.quota())
    );
}

pub async fn a_keys_limiter_is_reset_as_any_other_and_states_the_rate_it_got(fixture: Fixture) {
    let client = fixture.client("client").await;
    let rate = Rate::overall(3, SECOND);
    let prefix = format!("{}:", fixture.name());
    let limiter = client.keyed_rate_limiter(&prefix, rate).unwrap();
    let granted = limiter.check("key", 2).await.unwrap();
    assert_eq!(
        (reset(&granted), quota(&granted)),
        ((true, 1_000), rate.quota())
    );
    fixture.pass(ms(400));
    let denied = limiter.check("key", 2).await.unwrap();
    assert_eq!(
        (reset(&denied), quota(&denied)),
        ((false, 600), rate.quota())
    );
    let longer = Rate::overall(3, 2 * SECOND);
    let denied = limiter.check_with_rate("key", 2, longer).await.unwrap();
    assert_eq!(
        (reset(&denied), quota(&denied)),
        ((false, 1_600), longer.quota())
    );
}

async fn ask<P: Policy>(limiter: &PolicyLimiter<P>, key: &str, cost: u32) -> Decision {
    limiter.check_without_waiting(key, cost).await.unwrap()
}

/// Keys live by the server's clock, which is not moved here. A fixed window, which ends by that
/// clock alone, has a test of its own.
pub async fn each_policy_has_its_whole_limit_again_after_the_reset_and_not_before(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(4) {
        let name = policy.algorithm();
        if name == "fixed_window" {
            continue;
        }
        let its_quota = policy.quota();
        let whole = u32::try_from(its_quota.limit).unwrap();
        let limiter = client.policy_limiter(policy).unwrap();
        for is_granted in [true, false] {
            for (before, all_is_back) in [(ms(1), false), (Duration::ZERO, true)] {
                let key = format!("{}:{name}:{is_granted}:{all_is_back}", fixture.name());
                let _ = ask(&limiter, &key, unit).await;
                fixture.pass(ms(700));
                let mut decision = ask(&limiter, &key, 2 * unit).await;
                if !is_granted {
                    fixture.pass(ms(700));
                    decision = ask(&limiter, &key, whole).await;
                }
                assert_eq!(
                    (decision.is_granted(), quota(&decision)),
                    (is_granted, its_quota)
                );
                assert!(decision.reset() <= its_quota.window, "{key}: {decision:?}");
                fixture.pass(decision.reset() - before);
                let all = ask(&limiter, &key, whole).await;
                assert_eq!(all.is_granted(), all_is_back, "{key}: {decision:?}");
            }
        }
    }
}

pub async fn the_first_request_of_each_policy_is_reset_within_the_window(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (policy, unit) in every_policy(4) {
        let key = format!("{}:{}", fixture.name(), policy.algorithm());
        let window = policy.quota().window;
        let decision = ask(&client.policy_limiter(policy).unwrap(), &key, 4 * unit).await;
        assert!(decision.reset() <= window, "{key}: {decision:?}");
        assert!(decision.reset() > window / 2, "{key}: {decision:?}");
    }
}

pub async fn what_a_lowered_limit_leaves_in_use_may_take_longer_than_its_window(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client
        .policy_limiter(LeakyBucket::new(2, SECOND).with_capacity(4))
        .unwrap();
    assert!(ask(&limiter, fixture.name(), 6).await.is_granted());
    limiter.set_policy(LeakyBucket::new(1, SECOND)).unwrap();
    let denied = ask(&limiter, fixture.name(), 2).await;
    assert_eq!((denied.window(), denied.reset()), (2 * SECOND, 6 * SECOND));
    assert_eq!(denied.retry_after(), Some(6 * SECOND));
}

pub async fn a_fixed_window_is_reset_when_it_ends(fixture: Fixture) {
    let client = fixture.client("client").await;
    let policy = FixedWindow::new(2, HOUR);
    let limiter = client.policy_limiter(policy.clone()).unwrap();
    let granted = ask(&limiter, fixture.name(), 2).await;
    let denied = ask(&limiter, fixture.name(), 1).await;
    assert_eq!((quota(&granted), granted.reset()), (policy.quota(), HOUR));
    assert_eq!(quota(&denied), policy.quota());
    assert_eq!(Some(denied.reset()), denied.retry_after());
}

pub async fn a_limiter_not_charged_because_another_denies_keeps_its_reset(fixture: Fixture) {
    let client = fixture.client("client").await;
    let tag = format!("{{{}}}", fixture.name());
    let full = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let rate_limiter = client.rate_limiter(&format!("{tag}:rate"));
    rate_limiter
        .try_set_rate(Rate::overall(3, HOUR))
        .await
        .unwrap();
    for (policy, unit) in every_policy(4) {
        let name = policy.algorithm();
        let limiter = client.policy_limiter(policy).unwrap();
        let key = |part: &str| format!("{tag}:{name}:{part}");
        let full = || full.charge(&key("full"), 1).unwrap();
        let other = |part: &str| limiter.charge(&key(part), unit).unwrap();
        let granted = client.check_all([full(), other("used")]).await.unwrap();
        let used = granted.decisions()[1].reset();
        let charges = [
            full(),
            other("used"),
            other("unused"),
            rate_limiter.charge(1).unwrap(),
        ];
        let denied = client.check_all(charges).await.unwrap();
        let [_, used_still, unused, rate] = denied.decisions() else {
            panic!("{denied:?}");
        };
        assert_eq!(
            (unused.reset(), rate.reset()),
            (Duration::ZERO, Duration::ZERO),
            "{name}"
        );
        assert_eq!(unused.remaining(), unused.limit(), "{name}");
        // The server ends a fixed window by its own clock.
        let elapsed = used - used_still.reset();
        assert!(
            !used.is_zero()
                && elapsed
                    <= if name == "fixed_window" {
                        HOUR / 2
                    } else {
                        ms(0)
                    }
        );
    }
}
