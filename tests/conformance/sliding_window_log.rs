//! A log of requests, each of which counts for one window.

use redisson_rate_limiter::{Decision, Error, Granted, PolicyLimiter, SlidingWindowLog};
use tokio::time::Duration;

use crate::fixture::{Fixture, denied, granted_to_many_clients, ms, passed};

const MINUTE: Duration = Duration::from_secs(60);

async fn limiter(fixture: &Fixture, policy: SlidingWindowLog) -> PolicyLimiter<SlidingWindowLog> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

pub async fn a_request_counts_for_a_window_and_not_a_millisecond_longer(fixture: Fixture) {
    let limiter = limiter(&fixture, SlidingWindowLog::new(3, MINUTE)).await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 1).await);
    fixture.at(120_000);
    assert!(passed(&limiter, fixture.name(), 1).await);
    assert!(passed(&limiter, fixture.name(), 1).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(40_000)));
    fixture.at(159_999);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(1)));
    fixture.at(160_000);
    let decision = limiter.check(fixture.name(), 1).await.unwrap();
    let Decision::Granted(Granted {
        limit,
        remaining,
        reset,
        ..
    }) = decision
    else {
        panic!("{decision:?}");
    };
    assert_eq!((limit, remaining, reset), (3, 0, MINUTE));
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(20_000)));
}

pub async fn a_request_of_cost_n_counts_n(fixture: Fixture) {
    let limiter = limiter(&fixture, SlidingWindowLog::new(10, MINUTE)).await;
    for (at, cost) in [(100_000, 4), (110_000, 1), (120_000, 3)] {
        fixture.at(at);
        assert!(passed(&limiter, fixture.name(), cost).await);
    }
    // Two are left. A request may be tried again once enough of the earlier ones have left the
    // window.
    for (cost, retry_after) in [(3, 40), (6, 40), (7, 50), (8, 60), (10, 60)] {
        let denial = denied(&limiter, fixture.name(), cost).await;
        assert_eq!(denial, (2, Duration::from_secs(retry_after)), "{cost}");
    }
    fixture.at(169_999);
    assert_eq!(denied(&limiter, fixture.name(), 7).await, (6, ms(1)));
    fixture.at(170_000);
    assert!(passed(&limiter, fixture.name(), 7).await);
    let error = limiter.check(fixture.name(), 11).await;
    assert!(
        matches!(
            error,
            Err(Error::ExceedsLimit {
                requested: 11,
                limit: 10,
                ..
            })
        ),
        "{error:?}"
    );
}

pub async fn requests_of_the_same_millisecond_and_cost_each_count(fixture: Fixture) {
    let limiter = limiter(&fixture, SlidingWindowLog::new(5, MINUTE)).await;
    for left in (0..5).rev() {
        let decision = limiter.check(fixture.name(), 1).await.unwrap();
        assert!(
            matches!(decision, Decision::Granted(Granted { remaining, .. }) if remaining == left),
            "{decision:?}"
        );
    }
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, MINUTE));
}

pub async fn what_is_denied_is_not_logged(fixture: Fixture) {
    let limiter = limiter(&fixture, SlidingWindowLog::new(2, MINUTE)).await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 2).await);
    for at in [110_000, 159_999] {
        fixture.at(at);
        assert_eq!(denied(&limiter, fixture.name(), 1).await.0, 0);
    }
    fixture.at(160_000);
    assert!(passed(&limiter, fixture.name(), 2).await);
}

pub async fn no_two_clients_pass_between_the_count_and_the_entry(fixture: Fixture) {
    let policy = SlidingWindowLog::new(20, MINUTE);
    assert_eq!(granted_to_many_clients(&fixture, policy).await, 20);
}

pub async fn a_changed_window_applies_at_once_to_what_is_logged(fixture: Fixture) {
    let limiter = limiter(&fixture, SlidingWindowLog::new(2, MINUTE)).await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 2).await);
    fixture.at(140_000);
    limiter
        .set_policy(SlidingWindowLog::new(2, 2 * MINUTE))
        .unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(80_000)));
    limiter
        .set_policy(SlidingWindowLog::new(3, ms(50_000)))
        .unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 2).await, (1, ms(10_000)));
    limiter
        .set_policy(SlidingWindowLog::new(2, ms(40_000)))
        .unwrap();
    assert!(passed(&limiter, fixture.name(), 2).await);
}

pub async fn a_request_of_more_units_than_a_call_writes_is_refused(fixture: Fixture) {
    let limiter = limiter(&fixture, SlidingWindowLog::new(1_000, MINUTE)).await;
    for cost in [501, 1_000] {
        for refused in [
            limiter.check(fixture.name(), cost).await.map(drop),
            limiter.charge(fixture.name(), cost).map(drop),
        ] {
            assert!(
                matches!(
                    refused,
                    Err(Error::InvalidArgument {
                        argument: "cost",
                        ..
                    })
                ),
                "{refused:?}"
            );
        }
    }
    assert!(passed(&limiter, fixture.name(), 500).await);
    assert!(passed(&limiter, fixture.name(), 500).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, MINUTE));
}
