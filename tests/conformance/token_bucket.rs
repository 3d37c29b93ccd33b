//! Tokens that come in at a steady rate.

use redisson_rate_limiter::{Decision, Error, Granted, PolicyLimiter, TokenBucket};

use crate::fixture::{Fixture, HOUR, denied, ms, passed};

async fn limiter(fixture: &Fixture, policy: TokenBucket) -> PolicyLimiter<TokenBucket> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

pub async fn a_new_bucket_is_full_and_fills_up_to_its_capacity_only(fixture: Fixture) {
    let limiter = limiter(&fixture, TokenBucket::per_second(1).with_capacity(1_000)).await;
    for _ in 0..2 {
        assert!(passed(&limiter, fixture.name(), 999).await);
        assert!(passed(&limiter, fixture.name(), 1).await);
        assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(1_000)));
        fixture.pass(HOUR);
    }
    let error = limiter.check(fixture.name(), 1_001).await;
    assert!(
        matches!(
            error,
            Err(Error::ExceedsLimit {
                requested: 1_001,
                limit: 1_000,
                ..
            })
        ),
        "{error:?}"
    );
}

pub async fn only_whole_tokens_come_in_and_a_denial_states_when(fixture: Fixture) {
    let limiter = limiter(&fixture, TokenBucket::per_second(3).with_capacity(300)).await;
    assert!(passed(&limiter, fixture.name(), 300).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(334)));
    fixture.pass(ms(333));
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(1)));
    fixture.pass(ms(1));
    assert_eq!(denied(&limiter, fixture.name(), 2).await, (1, ms(333)));
    assert!(passed(&limiter, fixture.name(), 1).await);
    // The fraction of a token is kept: the second token is due 667 ms after the start, not 668.
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(333)));
}

pub async fn however_often_it_is_asked_the_long_run_rate_is_exact(fixture: Fixture) {
    for rate in [1, 3, 600, 999, 1_000, 1_001] {
        // It takes half an hour to fill, longer than the test.
        let capacity = rate * 1_800;
        let limiter = limiter(
            &fixture,
            TokenBucket::per_second(rate).with_capacity(capacity),
        )
        .await;
        let key = format!("{{{}}}{rate}", fixture.name());
        assert!(passed(&limiter, &key, capacity).await);
        let mut taken = 0;
        for step in 1..=100 {
            fixture.pass(ms(37));
            let (here, _) = denied(&limiter, &key, capacity).await;
            if here > 0 {
                assert!(passed(&limiter, &key, here as u32).await);
            }
            taken += here;
            assert_eq!(
                taken,
                step * 37 * u64::from(rate) / 1_000,
                "{rate} a second"
            );
        }
    }
}

pub async fn a_grant_states_what_remains_and_when_the_bucket_is_full(fixture: Fixture) {
    let limiter = limiter(&fixture, TokenBucket::per_second(3).with_capacity(1_000)).await;
    let decision = limiter.check(fixture.name(), 10).await.unwrap();
    let Decision::Granted(Granted {
        limit,
        remaining,
        reset,
        ..
    }) = decision
    else {
        panic!("{decision:?}");
    };
    assert_eq!((limit, remaining, reset), (1_000, 990, ms(3_334)));
}

pub async fn a_changed_capacity_caps_at_once_and_a_changed_rate_holds_from_then_on(
    fixture: Fixture,
) {
    let limiter = limiter(&fixture, TokenBucket::per_second(1).with_capacity(1_000)).await;
    assert!(passed(&limiter, fixture.name(), 1).await);
    limiter
        .set_policy(TokenBucket::per_second(1).with_capacity(500))
        .unwrap();
    assert!(passed(&limiter, fixture.name(), 500).await);
    assert_eq!(denied(&limiter, fixture.name(), 10).await, (0, ms(10_000)));
    limiter
        .set_policy(TokenBucket::per_second(10).with_capacity(500))
        .unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 10).await, (0, ms(1_000)));
}
