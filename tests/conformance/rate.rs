//! Setting the rate and reading it back.

use redisson_rate_limiter::{PermitsInUse, Rate, RateType};

use crate::fixture::{Fixture, HOUR, SECOND, granted, ms};

pub async fn the_config_is_what_was_set_and_set_rate_changes_it(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let first = Rate::overall(1, ms(5_000));
    assert!(limiter.try_set_rate(first).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(first));

    let second = Rate::per_client(2, ms(10_001)).keep_alive(ms(20_000));
    limiter.set_rate(second).await.unwrap();
    let config = limiter.config().await.unwrap().unwrap();
    assert_eq!(config, second);
    assert_eq!(config.rate_type(), RateType::PerClient);
    assert_eq!(config.permits(), 2);
    assert_eq!(config.interval(), ms(10_001));
    assert_eq!(config.keep_alive_time(), Some(ms(20_000)));
    let other = fixture.limiter_of("other").await;
    assert_eq!(other.config().await.unwrap(), Some(second));

    limiter.set_rate(first).await.unwrap();
    assert_eq!(limiter.config().await.unwrap(), Some(first));
}

pub async fn a_limiter_that_was_never_set_has_no_config(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    assert_eq!(limiter.config().await.unwrap(), None);
    assert!(!limiter.exists().await.unwrap());
}

pub async fn a_second_try_set_rate_is_false_and_changes_nothing(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let first = Rate::overall(10, SECOND);
    assert!(limiter.try_set_rate(first).await.unwrap());
    assert!(limiter.try_acquire(4).await.unwrap());
    let second = Rate::per_client(20, HOUR).keep_alive(HOUR);
    assert!(!limiter.try_set_rate(second).await.unwrap());
    assert!(
        !fixture
            .limiter_of("other")
            .await
            .try_set_rate(second)
            .await
            .unwrap()
    );
    assert_eq!(limiter.config().await.unwrap(), Some(first));
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
}

pub async fn a_rate_changed_from_10_to_20_leaves_9_then_19_for_all_clients(fixture: Fixture) {
    from_10_to_20(fixture, Rate::overall).await;
}

pub async fn a_rate_changed_from_10_to_20_leaves_9_then_19_for_each_client(fixture: Fixture) {
    from_10_to_20(fixture, Rate::per_client).await;
}

async fn from_10_to_20(fixture: Fixture, rate: fn(u64, std::time::Duration) -> Rate) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(rate(10, SECOND)).await.unwrap();
    limiter.acquire(1).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    limiter.set_rate(rate(20, SECOND)).await.unwrap();
    limiter.acquire(1).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 19);
}

pub async fn set_rate_forgets_what_is_in_use_even_if_the_rate_stays_the_same(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(5, SECOND);
    limiter.set_rate(rate).await.unwrap();
    assert_eq!(granted(&limiter, 6).await, 5);
    limiter.set_rate(rate).await.unwrap();
    assert_eq!(granted(&limiter, 6).await, 5);
}

pub async fn set_rate_with_creates_a_missing_limiter(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (state, name) in [(PermitsInUse::Keep, "keep"), (PermitsInUse::Reset, "reset")] {
        let limiter = client.rate_limiter(&format!("{}:{name}", fixture.name()));
        let rate = Rate::overall(7, SECOND);
        limiter.set_rate_with(rate, state).await.unwrap();
        assert_eq!(limiter.config().await.unwrap(), Some(rate));
        assert_eq!(limiter.available_permits().await.unwrap(), 7);
        assert_eq!(granted(&limiter, 8).await, 7);
    }
}

pub async fn set_rate_with_kept_state_leaves_17_of_20_where_3_were_used(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    limiter
        .set_rate_with(Rate::overall(20, SECOND), PermitsInUse::Keep)
        .await
        .unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 17);
    assert_eq!(granted(&limiter, 18).await, 17);
    // Permits in use come back after their own window.
    fixture.pass(SECOND);
    assert_eq!(limiter.available_permits().await.unwrap(), 20);
}

pub async fn set_rate_with_reset_state_leaves_all_20_where_3_were_used(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    limiter
        .set_rate_with(Rate::overall(20, SECOND), PermitsInUse::Reset)
        .await
        .unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 20);
    assert_eq!(granted(&limiter, 21).await, 20);
}
