//! A rate with bursts, by the theoretical arrival time.

use std::time::Duration;

use redisson_rate_limiter::{Decision, Error, Gcra, Granted, PolicyLimiter};

use crate::fixture::{Fixture, HOUR, SECOND, denied, ms, passed};

async fn limiter(fixture: &Fixture, policy: Gcra) -> PolicyLimiter<Gcra> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

pub async fn a_burst_is_granted_at_once_and_comes_back_at_the_rate(fixture: Fixture) {
    let limiter = limiter(&fixture, Gcra::per_second(10).with_burst(100)).await;
    fixture.at(1_000_000);
    assert!(passed(&limiter, fixture.name(), 99).await);
    assert!(passed(&limiter, fixture.name(), 1).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(100)));
    assert_eq!(denied(&limiter, fixture.name(), 100).await, (0, ms(10_000)));
    fixture.at(1_000_099);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(1)));
    fixture.at(1_000_350);
    assert_eq!(denied(&limiter, fixture.name(), 4).await, (3, ms(50)));
    assert!(passed(&limiter, fixture.name(), 3).await);
    fixture.pass(HOUR);
    assert!(passed(&limiter, fixture.name(), 100).await);
    let error = limiter.check(fixture.name(), 101).await;
    assert!(
        matches!(
            error,
            Err(Error::ExceedsLimit {
                requested: 101,
                limit: 100,
                ..
            })
        ),
        "{error:?}"
    );
}

pub async fn a_decision_states_the_burst_what_is_left_and_when_all_is_back(fixture: Fixture) {
    let limiter = limiter(&fixture, Gcra::per_minute(3).with_burst(5)).await;
    fixture.at(1_000_000);
    let decision = limiter.check(fixture.name(), 2).await.unwrap();
    let Decision::Granted(Granted {
        limit,
        window,
        remaining,
        reset,
        ..
    }) = decision
    else {
        panic!("{decision:?}");
    };
    assert_eq!((limit, window), (5, 100 * SECOND));
    assert_eq!((remaining, reset), (3, 40 * SECOND));
    fixture.at(1_030_000);
    let decision = limiter.peek(fixture.name(), 5).await.unwrap();
    assert_eq!((decision.remaining(), decision.reset()), (4, 10 * SECOND));
    assert_eq!(decision.retry_after(), Some(10 * SECOND));
}

pub async fn no_more_than_the_rate_comes_back_however_it_divides_the_period(fixture: Fixture) {
    for (place, quantity) in [1, 3, 7, 999, 1_001, 700_000].into_iter().enumerate() {
        let limiter = limiter(
            &fixture,
            Gcra::per_second(quantity).with_burst(2 * quantity),
        )
        .await;
        let key = format!("{{{}}}{place}", fixture.name());
        fixture.at(1_000_000);
        assert!(passed(&limiter, &key, 2 * quantity).await);
        let mut taken = 0;
        for step in 1..=50 {
            fixture.at(1_000_000 + 37 * step);
            let (here, _) = denied(&limiter, &key, 2 * quantity).await;
            if here > 0 {
                assert!(passed(&limiter, &key, here as u32).await);
            }
            taken += here as i64;
            let interval = limiter.policy().emission_interval().as_micros() as i64;
            assert_eq!(taken, 37_000 * step / interval, "{quantity}");
            assert!(
                taken <= 37 * step * i64::from(quantity) / 1_000,
                "{quantity}"
            );
        }
    }
}

pub async fn what_was_taken_still_counts_after_the_numbers_change(fixture: Fixture) {
    let limiter = limiter(&fixture, Gcra::per_second(10).with_burst(50)).await;
    fixture.at(1_000_000);
    assert!(passed(&limiter, fixture.name(), 40).await); // back in 4 s
    limiter
        .set_policy(Gcra::per_second(10).with_burst(10))
        .unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(3_100)));
    limiter
        .set_policy(Gcra::per_second(1).with_burst(10))
        .unwrap();
    assert!(passed(&limiter, fixture.name(), 6).await); // 10 s ahead
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(1_000)));
    limiter
        .set_policy(Gcra::per_second(10).with_burst(101))
        .unwrap();
    assert!(passed(&limiter, fixture.name(), 1).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(100)));
}

pub async fn a_new_policy_of_each_unit_has_its_emission_interval(fixture: Fixture) {
    for (place, (policy, interval)) in [
        (Gcra::per_second(2), ms(500)),
        (Gcra::per_minute(2), 30 * SECOND),
        (Gcra::per_hour(2), 1_800 * SECOND),
        (Gcra::new(2, Duration::from_secs(86_400)), 12 * HOUR),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("{{{}}}{place}", fixture.name());
        let limiter = limiter(&fixture, policy).await;
        fixture.at(1_000_000);
        assert!(passed(&limiter, &key, 2).await);
        assert_eq!(denied(&limiter, &key, 1).await, (0, interval));
    }
}
