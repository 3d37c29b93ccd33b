//! A penalty, which any policy may have: a denied target is locked out.

use std::time::Duration;

use redisson_rate_limiter::{AnyPolicy, Decision, Denied, Error, PolicyLimiter, TokenBucket};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, SECOND, fields, ms};

/// A limiter, the key of a target that has used it up, and how much the target used.
struct Used {
    limiter: PolicyLimiter<AnyPolicy>,
    key: String,
    cost: u32,
    /// A policy under which the target has as much again, after two hours by the clock if not at
    /// once.
    larger: AnyPolicy,
}

impl Used {
    async fn all(
        fixture: &Fixture,
        [policy, larger]: [AnyPolicy; 2],
        cost: u32,
        penalty: Duration,
    ) -> Self {
        let key = format!("{}:{}", fixture.name(), policy.algorithm());
        let limiter = fixture
            .client("client")
            .await
            .policy_limiter(policy)
            .unwrap();
        let used = Self {
            key,
            limiter: limiter.with_penalty(penalty).unwrap(),
            cost,
            larger,
        };
        assert!(used.ask(&used.key).await.is_granted());
        used
    }

    async fn ask(&self, key: &str) -> Decision {
        let decision = self.limiter.check_without_waiting(key, self.cost);
        decision.await.unwrap()
    }

    /// Makes everything available again, except for a lock.
    fn restore(&self, fixture: &Fixture) {
        self.limiter.set_policy(self.larger.clone()).unwrap();
        fixture.pass(2 * HOUR);
    }
}

/// Each policy and a larger one, and what a target has of the first. That is kept for an hour or
/// longer, so that no machine is too slow for a denial. The server ends a fixed window by its own
/// clock, so a larger limit makes room there.
fn every_pair() -> impl Iterator<Item = ([AnyPolicy; 2], u32)> {
    let pairs = every_policy(2).zip(every_policy(4));
    pairs.map(|((policy, unit), (larger, _))| ([policy, larger], 2 * unit))
}

/// Longer than each algorithm's own time.
const LONG: Duration = Duration::from_secs(100 * 3_600);

pub async fn a_denied_target_stays_denied_for_the_penalty_even_if_all_is_back(fixture: Fixture) {
    for (policies, all) in every_pair() {
        let used = Used::all(&fixture, policies, all, LONG).await;
        let Decision::Denied(Denied {
            retry_after, reset, ..
        }) = used.ask(&used.key).await
        else {
            panic!("{} was granted", used.key);
        };
        assert_eq!((retry_after, reset), (LONG, LONG), "{}", used.key);
        used.restore(&fixture);
        tokio::time::sleep(ms(25)).await;
        for _ in 0..2 {
            let Decision::Denied(Denied {
                retry_after,
                remaining: 0,
                reset,
                ..
            }) = used.ask(&used.key).await
            else {
                panic!("{}", used.key);
            };
            // Another denial does not extend the lock.
            assert!(retry_after <= LONG - ms(20), "{}", used.key);
            assert!(retry_after > LONG / 2, "{}", used.key);
            assert_eq!(reset, retry_after);
        }
        // A limiter without a penalty shows that all permits have come back. A limiter of this
        // algorithm honours every lock.
        if !matches!(used.larger, AnyPolicy::PenaltyTokenBucket(_)) {
            let mild = fixture.client("client").await;
            let mild = mild.policy_limiter(used.larger).unwrap();
            let decision = mild.check_without_waiting(&used.key, used.cost).await;
            assert!(decision.unwrap().is_granted(), "{}", used.key);
        }
    }
}

pub async fn a_locked_out_target_is_free_when_the_penalty_is_over(fixture: Fixture) {
    for (policies, all) in every_pair() {
        let used = Used::all(&fixture, policies, all, ms(20)).await;
        assert!(!used.ask(&used.key).await.is_granted());
        used.restore(&fixture);
        tokio::time::sleep(ms(25)).await;
        assert!(used.ask(&used.key).await.is_granted(), "{}", used.key);
    }
}

pub async fn a_lock_is_for_its_target_alone(fixture: Fixture) {
    for (policies, all) in every_pair() {
        let used = Used::all(&fixture, policies, all, LONG).await;
        assert!(!used.ask(&used.key).await.is_granted());
        let other = format!("{}:other", used.key);
        assert!(used.ask(&other).await.is_granted(), "{other}");
        assert!(!used.ask(&used.key).await.is_granted());
    }
}

pub async fn a_denial_states_the_longer_of_the_penalty_and_its_own_time(fixture: Fixture) {
    for (penalty, expected) in [
        (600 * SECOND, (false, 1_000, Some(1_000_000), 2_000_000)),
        (1_600 * SECOND, (false, 1_000, Some(1_600_000), 2_000_000)),
        (2_600 * SECOND, (false, 1_000, Some(2_600_000), 2_600_000)),
    ] {
        let client = fixture.client("client").await;
        let limiter = client
            .policy_limiter(TokenBucket::per_second(1).with_capacity(3_000))
            .unwrap();
        let limiter = limiter.with_penalty(penalty).unwrap();
        let key = format!("{}:{}", fixture.name(), penalty.as_secs());
        assert!(limiter.check(&key, 2_000).await.unwrap().is_granted());
        let denied = limiter.check(&key, 2_000).await.unwrap();
        assert_eq!(fields(&denied), expected);
    }
}

/// What a bucket with a token a second has after an hour.
const ALL: u32 = 3_600;

pub async fn without_a_penalty_nobody_is_locked_out_and_a_peers_lock_is_ignored(fixture: Fixture) {
    let client = fixture.client("client").await;
    let mild = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(ALL))
        .unwrap();
    let strict = mild.clone().with_penalty(LONG).unwrap();
    let key = fixture.name();
    assert!(mild.check(key, ALL).await.unwrap().is_granted());
    assert!(!mild.check(key, ALL).await.unwrap().is_granted());
    fixture.pass(HOUR);
    assert!(strict.check(key, ALL).await.unwrap().is_granted());
    assert!(!strict.check(key, ALL).await.unwrap().is_granted());
    fixture.pass(HOUR);
    assert!(!strict.check(key, ALL).await.unwrap().is_granted());
    assert!(mild.check(key, ALL).await.unwrap().is_granted());
}

pub async fn of_several_limiters_one_that_grants_locks_nobody_out(fixture: Fixture) {
    let client = fixture.client("client").await;
    let wide = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10 * ALL))
        .unwrap();
    let wide = wide.with_penalty(LONG).unwrap();
    let narrow = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(ALL))
        .unwrap();
    // In one slot of a cluster.
    let (wide_key, narrow_key) = (fixture.name(), format!("{{{}}}:narrow", fixture.name()));
    assert!(narrow.check(&narrow_key, ALL).await.unwrap().is_granted());
    let both = [wide.charge(wide_key, ALL), narrow.charge(&narrow_key, ALL)];
    let denied = client.check_all(both.map(Result::unwrap)).await.unwrap();
    assert!(!denied.is_granted());
    assert!(wide.check(wide_key, 10 * ALL).await.unwrap().is_granted());
}

pub async fn one_locked_limiter_of_several_denies_for_all_and_none_is_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let narrow = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(ALL))
        .unwrap();
    let narrow = narrow.with_penalty(LONG).unwrap();
    let wide = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10 * ALL))
        .unwrap();
    let (narrow_key, wide_key) = (fixture.name(), format!("{{{}}}:wide", fixture.name()));
    let ask = async || {
        let both = [narrow.charge(narrow_key, ALL), wide.charge(&wide_key, ALL)];
        let decision = client.check_all(both.map(Result::unwrap)).await.unwrap();
        decision.is_granted()
    };
    assert!(ask().await);
    assert!(!ask().await);
    fixture.pass(2 * HOUR);
    assert!(!ask().await);
    assert!(wide.check(&wide_key, 10 * ALL).await.unwrap().is_granted());
}

pub async fn a_penalty_that_is_no_whole_number_of_milliseconds_from_1_is_refused(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
    for bad in [ms(0), ms(1) / 2, ms(3) / 2, Duration::MAX] {
        let error = limiter.clone().with_penalty(bad).unwrap_err();
        assert!(
            matches!(
                error,
                Error::InvalidArgument {
                    argument: "time",
                    ..
                }
            ),
            "{error:?}"
        );
    }
}
