//! A penalty, which any of the other limiters may have: who is denied is locked out.

use redisson_rate_limiter::{
    Decision, Error, FixedWindow, LeakyBucket, Limiter, PenaltyTokenBucket, Policy, PolicyLimiter,
    QuotaBucket, TokenBucket,
};

use crate::fixture::{Fixture, HOUR, SECOND, ms, told};

/// A limiter, the key of a target that has had all of it, and what it had.
struct Used<P> {
    limiter: PolicyLimiter<P>,
    key: String,
    cost: u32,
}

impl<P: Policy> Used<P> {
    async fn all(fixture: &Fixture, policy: P, cost: u32, penalty: std::time::Duration) -> Self {
        let limiter = fixture.client("client").await.limiter(policy).unwrap();
        let used = Self {
            key: format!("{}:{}", fixture.name(), std::any::type_name::<P>()),
            limiter: limiter.penalty(penalty).unwrap(),
            cost,
        };
        assert!(used.ask(&used.key).await.is_granted());
        used
    }

    async fn ask(&self, key: &str) -> Decision {
        self.limiter.decide(key, self.cost).await.unwrap()
    }
}

/// Does the same to a target of each algorithm. What each has is back after 10 ms of both clocks.
macro_rules! with_each_algorithm {
    ($fixture:ident, $penalty:expr, $steps:ident) => {
        let of = ms(10);
        $steps(
            &$fixture,
            Used::all(&$fixture, FixedWindow::new(2, of), 2, $penalty).await,
        )
        .await;
        $steps(
            &$fixture,
            Used::all(&$fixture, TokenBucket::new(2, 200), 2, $penalty).await,
        )
        .await;
        let policy = QuotaBucket::new(2, 2, SECOND);
        $steps(&$fixture, Used::all(&$fixture, policy, 2, $penalty).await).await;
        let policy = LeakyBucket::new(1, 1, ms(5));
        $steps(&$fixture, Used::all(&$fixture, policy, 2, $penalty).await).await;
        let policy = PenaltyTokenBucket::new(2, 1, ms(5));
        $steps(&$fixture, Used::all(&$fixture, policy, 2, $penalty).await).await;
    };
}

pub async fn whoever_is_denied_stays_denied_for_the_penalty_though_all_is_back(fixture: Fixture) {
    async fn steps<P: Policy>(fixture: &Fixture, used: Used<P>) {
        let Decision::Denied {
            retry_after, reset, ..
        } = used.ask(&used.key).await
        else {
            panic!("{} was granted", used.key);
        };
        assert_eq!((retry_after, reset), (HOUR, HOUR), "{}", used.key);
        fixture.pass(2 * HOUR);
        tokio::time::sleep(ms(25)).await;
        for _ in 0..2 {
            let Decision::Denied {
                retry_after,
                remaining: 0,
                limit: 2,
                reset,
                ..
            } = used.ask(&used.key).await
            else {
                panic!("{}", used.key);
            };
            // The lock's time runs, and another denial does not renew it.
            assert!(retry_after <= HOUR - ms(20), "{}", used.key);
            assert!(retry_after > HOUR / 2, "{}", used.key);
            assert_eq!(reset, retry_after);
        }
    }
    with_each_algorithm!(fixture, HOUR, steps);
}

pub async fn whoever_was_locked_out_is_free_when_the_penalty_is_over(fixture: Fixture) {
    async fn steps<P: Policy>(fixture: &Fixture, used: Used<P>) {
        assert!(!used.ask(&used.key).await.is_granted());
        fixture.pass(HOUR);
        tokio::time::sleep(ms(65)).await;
        assert!(used.ask(&used.key).await.is_granted(), "{}", used.key);
    }
    with_each_algorithm!(fixture, ms(60), steps);
}

pub async fn a_lock_is_for_its_target_alone(fixture: Fixture) {
    async fn steps<P: Policy>(_: &Fixture, used: Used<P>) {
        assert!(!used.ask(&used.key).await.is_granted());
        let other = format!("{}:other", used.key);
        assert!(used.ask(&other).await.is_granted(), "{other}");
        assert!(!used.ask(&used.key).await.is_granted());
    }
    with_each_algorithm!(fixture, HOUR, steps);
}

pub async fn a_denial_tells_the_longer_of_the_penalty_and_its_own_time(fixture: Fixture) {
    for (penalty, expected) in [
        (ms(600), (false, 1, Some(1_000), 2_000)),
        (ms(1_600), (false, 1, Some(1_600), 2_000)),
        (ms(2_600), (false, 1, Some(2_600), 2_600)),
    ] {
        let client = fixture.client("client").await;
        let limiter = client.limiter(TokenBucket::new(3, 1)).unwrap();
        let limiter = limiter.penalty(penalty).unwrap();
        let key = format!("{}:{}", fixture.name(), penalty.as_millis());
        assert!(limiter.decide(&key, 2).await.unwrap().is_granted());
        let denied = limiter.decide(&key, 2).await.unwrap();
        assert_eq!(told(&denied), expected);
    }
}

pub async fn without_a_penalty_nobody_is_locked_out_and_a_peers_lock_is_not_looked_at(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    let mild = client.limiter(TokenBucket::new(1, 1)).unwrap();
    let strict = mild.clone().penalty(HOUR).unwrap();
    let key = fixture.name();
    assert!(mild.decide(key, 1).await.unwrap().is_granted());
    assert!(!mild.decide(key, 1).await.unwrap().is_granted());
    fixture.pass(SECOND);
    assert!(strict.decide(key, 1).await.unwrap().is_granted());
    assert!(!strict.decide(key, 1).await.unwrap().is_granted());
    fixture.pass(SECOND);
    assert!(!strict.decide(key, 1).await.unwrap().is_granted());
    assert!(mild.decide(key, 1).await.unwrap().is_granted());
}

pub async fn of_several_limiters_one_that_grants_locks_nobody_out(fixture: Fixture) {
    let client = fixture.client("client").await;
    let wide = client.limiter(TokenBucket::new(10, 1)).unwrap();
    let wide = wide.penalty(HOUR).unwrap();
    let narrow = client.limiter(TokenBucket::new(1, 1)).unwrap();
    // In one slot of a cluster.
    let (wide_key, narrow_key) = (fixture.name(), format!("{{{}}}:narrow", fixture.name()));
    assert!(narrow.decide(&narrow_key, 1).await.unwrap().is_granted());
    let both = [wide.share(wide_key, 1), narrow.share(&narrow_key, 1)];
    let denied = client.decide_all(both.map(Result::unwrap)).await.unwrap();
    assert!(!denied.is_granted());
    assert!(wide.decide(wide_key, 10).await.unwrap().is_granted());
}

pub async fn of_several_limiters_one_that_is_locked_denies_for_all_and_none_is_charged(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    let narrow = client.limiter(TokenBucket::new(1, 1)).unwrap();
    let narrow = narrow.penalty(HOUR).unwrap();
    let wide = client.limiter(TokenBucket::new(10, 1)).unwrap();
    let (narrow_key, wide_key) = (fixture.name(), format!("{{{}}}:wide", fixture.name()));
    let ask = async || {
        let both = [narrow.share(narrow_key, 1), wide.share(&wide_key, 1)];
        let decision = client.decide_all(both.map(Result::unwrap)).await.unwrap();
        decision.is_granted()
    };
    assert!(ask().await);
    assert!(!ask().await);
    fixture.pass(2 * HOUR);
    assert!(!ask().await);
    assert!(wide.decide(&wide_key, 10).await.unwrap().is_granted());
}

pub async fn a_penalty_that_is_no_whole_number_of_milliseconds_from_1_is_refused(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.limiter(TokenBucket::new(1, 1)).unwrap();
    for bad in [ms(0), ms(1) / 2, ms(3) / 2, std::time::Duration::MAX] {
        let error = limiter.clone().penalty(bad).unwrap_err();
        assert!(
            matches!(
                error,
                Error::InvalidArgument {
                    argument: "penalty",
                    ..
                }
            ),
            "{error:?}"
        );
    }
}
