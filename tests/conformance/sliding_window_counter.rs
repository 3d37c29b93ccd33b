//! A window that slides by one period at a time. Each counter is named by its period's last
//! millisecond, and a time between two periods belongs to the one that ends there.

use redisson_rate_limiter::{Decision, Error, Granted, PolicyLimiter, SlidingWindowCounter};
use tokio::time::Duration;

use crate::fixture::{Fixture, denied, granted_to_many_clients, ms, passed};

const MINUTE: Duration = Duration::from_secs(60);
const TEN_SECONDS: Duration = Duration::from_secs(10);

async fn limiter(
    fixture: &Fixture,
    policy: SlidingWindowCounter,
) -> PolicyLimiter<SlidingWindowCounter> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

pub async fn the_current_period_and_those_before_it_in_the_window_count(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(5, MINUTE).with_period(TEN_SECONDS),
    )
    .await;
    fixture.at(100_000); // the start
    assert!(passed(&limiter, fixture.name(), 2).await);
    fixture.at(125_000); // the third period
    assert!(passed(&limiter, fixture.name(), 3).await);
    for (cost, retry_after) in [(1, 35_001), (2, 35_001), (3, 55_001), (5, 55_001)] {
        let denial = denied(&limiter, fixture.name(), cost).await;
        assert_eq!(denial, (0, ms(retry_after)), "{cost}");
    }
    fixture.at(160_000); // still the sixth
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(1)));
    fixture.at(160_001); // the seventh
    assert_eq!(denied(&limiter, fixture.name(), 3).await, (2, ms(20_000)));
    let decision = limiter.check(fixture.name(), 2).await.unwrap();
    let Decision::Granted(Granted {
        limit,
        remaining,
        reset,
        ..
    }) = decision
    else {
        panic!("{decision:?}");
    };
    assert_eq!((limit, remaining, reset), (5, 0, MINUTE));
}

pub async fn a_time_between_two_periods_belongs_to_the_one_that_ends(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(3, MINUTE).with_period(TEN_SECONDS),
    )
    .await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 1).await);
    fixture.at(110_000); // the first period's last moment
    assert!(passed(&limiter, fixture.name(), 1).await);
    fixture.at(110_001);
    assert!(passed(&limiter, fixture.name(), 1).await);
    // Two periods leave the window together.
    assert_eq!(denied(&limiter, fixture.name(), 2).await, (0, ms(50_000)));
    fixture.at(160_001);
    assert!(passed(&limiter, fixture.name(), 2).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, TEN_SECONDS));
}

pub async fn with_one_period_it_is_a_fixed_window(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(3, MINUTE).with_period(MINUTE),
    )
    .await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 1).await);
    fixture.at(150_000);
    assert!(passed(&limiter, fixture.name(), 2).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(10_001)));
    fixture.at(160_001);
    assert!(passed(&limiter, fixture.name(), 3).await);
}

pub async fn an_aligned_first_period_begins_with_the_unit(fixture: Fixture) {
    let policy = SlidingWindowCounter::new(3, MINUTE)
        .with_period(TEN_SECONDS)
        .aligned_to_clock();
    let limiter = limiter(&fixture, policy).await;
    fixture.at(10 * 60_000 + 7_000);
    assert!(passed(&limiter, fixture.name(), 3).await);
    assert_eq!(denied(&limiter, fixture.name(), 1).await, (0, ms(53_001)));
}

pub async fn what_is_denied_is_not_counted(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(5, MINUTE).with_period(TEN_SECONDS),
    )
    .await;
    assert!(passed(&limiter, fixture.name(), 3).await);
    for _ in 0..3 {
        assert_eq!(denied(&limiter, fixture.name(), 3).await.0, 2);
    }
    assert!(passed(&limiter, fixture.name(), 2).await);
    let error = limiter.check(fixture.name(), 6).await;
    assert!(
        matches!(
            error,
            Err(Error::ExceedsLimit {
                requested: 6,
                limit: 5,
                ..
            })
        ),
        "{error:?}"
    );
}

pub async fn no_time_of_a_window_less_a_period_holds_more_than_the_limit(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(7, MINUTE).with_period(TEN_SECONDS),
    )
    .await;
    let mut grants = Vec::new();
    for _ in 0..150 {
        if passed(&limiter, fixture.name(), 1).await {
            grants.push(fixture.now());
        }
        fixture.pass(ms(1_733));
    }
    assert!(grants.len() > 21);
    for (first, eighth) in grants.iter().zip(&grants[7..]) {
        assert!(eighth - first > 50_000, "{first} to {eighth}");
    }
}

pub async fn of_many_clients_at_once_no_more_pass_than_the_limit(fixture: Fixture) {
    let policy = SlidingWindowCounter::new(20, MINUTE).with_period(TEN_SECONDS);
    assert_eq!(granted_to_many_clients(&fixture, policy).await, 20);
}

pub async fn a_changed_window_of_the_same_periods_applies_at_once(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(2, MINUTE).with_period(TEN_SECONDS),
    )
    .await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 2).await);
    fixture.at(145_000);
    limiter
        .set_policy(SlidingWindowCounter::new(3, 2 * MINUTE).with_period(TEN_SECONDS))
        .unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 2).await, (1, ms(75_001)));
    limiter
        .set_policy(SlidingWindowCounter::new(2, 4 * TEN_SECONDS).with_period(TEN_SECONDS))
        .unwrap();
    assert!(passed(&limiter, fixture.name(), 2).await);
}

pub async fn after_a_change_of_the_periods_what_was_counted_still_counts(fixture: Fixture) {
    let limiter = limiter(
        &fixture,
        SlidingWindowCounter::new(9, MINUTE).with_period(TEN_SECONDS),
    )
    .await;
    fixture.at(100_000);
    assert!(passed(&limiter, fixture.name(), 2).await); // up to 109,999
    fixture.at(115_000);
    assert!(passed(&limiter, fixture.name(), 3).await); // up to 119,999
    let fifteen = Duration::from_secs(15);
    limiter
        .set_policy(SlidingWindowCounter::new(9, MINUTE).with_period(fifteen))
        .unwrap();
    assert!(passed(&limiter, fixture.name(), 4).await); // up to 114,999
    // At 160,001 the window begins at 115,000, at 175,001 at 130,000.
    for (cost, retry_after) in [(1, 45_001), (6, 45_001), (7, 60_001), (9, 60_001)] {
        let denial = denied(&limiter, fixture.name(), cost).await;
        assert_eq!(denial, (0, ms(retry_after)), "{cost}");
    }
    fixture.at(160_001);
    assert_eq!(denied(&limiter, fixture.name(), 7).await, (6, ms(15_000)));
    assert!(passed(&limiter, fixture.name(), 6).await);
}

pub async fn clients_with_other_periods_count_each_others_counters(fixture: Fixture) {
    let of = |window, period| SlidingWindowCounter::new(9, window).with_period(period);
    let seconds = |n| n * Duration::from_secs(1);
    let short = limiter(&fixture, of(MINUTE, TEN_SECONDS)).await;
    let long = limiter(&fixture, of(10 * MINUTE, MINUTE)).await;
    let even = limiter(&fixture, of(seconds(90), seconds(15))).await;
    fixture.at(100_000);
    assert!(passed(&short, fixture.name(), 2).await); // up to 109,999
    assert!(passed(&long, fixture.name(), 1).await); // up to 159,999
    fixture.at(125_000);
    assert_eq!(denied(&even, fixture.name(), 7).await, (6, ms(65_001)));
    assert!(passed(&even, fixture.name(), 4).await); // up to 129,999
    assert_eq!(denied(&short, fixture.name(), 3).await, (2, ms(35_001)));
    assert_eq!(denied(&long, fixture.name(), 3).await, (2, ms(575_001)));
    fixture.at(170_001);
    assert!(passed(&short, fixture.name(), 4).await); // the two have left its window
    assert_eq!(denied(&long, fixture.name(), 1).await, (0, ms(530_000)));
    fixture.at(700_001);
    assert_eq!(denied(&long, fixture.name(), 9).await, (5, ms(60_000)));
    assert!(passed(&long, fixture.name(), 5).await);
}
