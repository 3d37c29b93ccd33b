//! Changing the rate of a limiter that has one.

use redisson_rate_limiter::{Error, PermitsInUse, Rate, RateLimiter};

use crate::fixture::{Fixture, HOUR, SECOND, granted, ms};

/// Ten a second, of which `used` are in use.
async fn ten(fixture: &Fixture, used: u32) -> RateLimiter {
    let limiter = fixture.limiter().await;
    assert!(
        limiter
            .try_set_rate(Rate::overall(10, SECOND))
            .await
            .unwrap()
    );
    assert!(limiter.try_acquire(used).await.unwrap());
    limiter
}

pub async fn updating_a_limiter_that_is_missing_is_false_and_makes_none(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    for state in [PermitsInUse::Keep, PermitsInUse::Reset] {
        let rate = Rate::overall(10, SECOND);
        assert!(!limiter.update_rate(rate, state).await.unwrap());
        let rate = rate.keep_alive(HOUR);
        assert!(!limiter.update_rate(rate, state).await.unwrap());
    }
    assert!(!limiter.exists().await.unwrap());
    assert!(!limiter.delete().await.unwrap());
}

pub async fn updating_to_the_same_rate_with_kept_state_leaves_8_of_10_after_2(fixture: Fixture) {
    let limiter = ten(&fixture, 2).await;
    assert!(
        limiter
            .update_rate(Rate::overall(10, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 8);
    assert_eq!(granted(&limiter, 9).await, 8);
}

pub async fn updating_10_with_4_used_to_20_leaves_16(fixture: Fixture) {
    let limiter = ten(&fixture, 4).await;
    let rate = Rate::overall(20, SECOND);
    assert!(limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(rate));
    assert_eq!(limiter.available_permits().await.unwrap(), 16);
}

pub async fn updating_10_with_3_used_to_5_leaves_2(fixture: Fixture) {
    let limiter = ten(&fixture, 3).await;
    assert!(
        limiter
            .update_rate(Rate::overall(5, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
    assert_eq!(granted(&limiter, 3).await, 2);
}

pub async fn updating_10_with_8_used_to_5_leaves_0_and_not_less(fixture: Fixture) {
    let limiter = ten(&fixture, 8).await;
    assert!(
        limiter
            .update_rate(Rate::overall(5, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    assert!(!limiter.try_acquire(1).await.unwrap());
    fixture.pass(SECOND);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert_eq!(granted(&limiter, 6).await, 5);
}

pub async fn permits_come_free_once_less_than_a_lowered_rate_is_in_use(fixture: Fixture) {
    let limiter = ten(&fixture, 2).await;
    fixture.pass(ms(100));
    assert!(limiter.try_acquire(3).await.unwrap());
    fixture.pass(ms(100));
    assert!(limiter.try_acquire(5).await.unwrap());
    let lowered = Rate::overall(6, SECOND);
    assert!(
        limiter
            .update_rate(lowered, PermitsInUse::Keep)
            .await
            .unwrap()
    );
    // 10 are in use, then 8, 5 and none.
    for (pause, available) in [(0, 0), (800, 0), (100, 1), (100, 6)] {
        fixture.pass(ms(pause));
        assert_eq!(limiter.available_permits().await.unwrap(), available);
        assert!(
            !limiter
                .try_acquire(available as u32 + 1)
                .await
                .unwrap_or(false)
        );
    }
    assert!(limiter.try_acquire(6).await.unwrap());
}

pub async fn updating_after_the_window_has_passed_leaves_all_10(fixture: Fixture) {
    let limiter = ten(&fixture, 6).await;
    fixture.pass(SECOND);
    assert!(
        limiter
            .update_rate(Rate::overall(10, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn updating_with_reset_state_leaves_the_whole_new_rate(fixture: Fixture) {
    let limiter = ten(&fixture, 6).await;
    assert!(
        limiter
            .update_rate(Rate::overall(12, SECOND), PermitsInUse::Reset)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 12);
    assert_eq!(granted(&limiter, 13).await, 12);
}

pub async fn updating_to_another_type_clears_what_was_in_use(fixture: Fixture) {
    for state in [PermitsInUse::Keep, PermitsInUse::Reset] {
        let limiter = ten(&fixture, 6).await;
        assert!(
            limiter
                .update_rate(Rate::per_client(10, SECOND), state)
                .await
                .unwrap()
        );
        assert_eq!(limiter.available_permits().await.unwrap(), 10);
        assert!(limiter.try_acquire(6).await.unwrap());
        assert!(
            limiter
                .update_rate(Rate::overall(10, SECOND), state)
                .await
                .unwrap()
        );
        assert_eq!(limiter.available_permits().await.unwrap(), 10);
        assert!(limiter.delete().await.unwrap());
    }
}

pub async fn a_keep_alive_below_the_interval_is_an_error_and_changes_nothing(fixture: Fixture) {
    let limiter = ten(&fixture, 6).await;
    let bad = Rate::overall(20, SECOND).keep_alive(ms(999));
    let errors = [
        limiter
            .update_rate(bad, PermitsInUse::Keep)
            .await
            .map(|_| ()),
        limiter
            .update_rate(bad, PermitsInUse::Reset)
            .await
            .map(|_| ()),
        limiter.set_rate_with(bad, PermitsInUse::Keep).await,
        limiter.set_rate(bad).await,
        limiter.try_set_rate(bad).await.map(|_| ()),
    ];
    for error in errors {
        assert!(
            matches!(
                &error,
                Err(Error::InvalidArgument {
                    argument: "keep_alive",
                    ..
                })
            ),
            "{error:?}"
        );
    }
    assert_eq!(
        limiter.config().await.unwrap(),
        Some(Rate::overall(10, SECOND))
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 4);
}

pub async fn a_keep_alive_below_the_interval_is_an_error_for_a_missing_limiter_too(
    fixture: Fixture,
) {
    let limiter = fixture.limiter().await;
    let bad = Rate::overall(20, SECOND).keep_alive(ms(999));
    let error = limiter.update_rate(bad, PermitsInUse::Keep).await;
    assert!(
        matches!(
            &error,
            Err(Error::InvalidArgument {
                argument: "keep_alive",
                ..
            })
        ),
        "{error:?}"
    );
    assert!(!limiter.exists().await.unwrap());
}

pub async fn updating_to_a_shorter_interval_drops_what_it_makes_old(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::overall(10, ms(10_000)))
        .await
        .unwrap();
    fixture.at(1_000);
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(2_500);
    assert!(limiter.try_acquire(3).await.unwrap());
    fixture.at(3_000);
    assert!(
        limiter
            .update_rate(Rate::overall(10, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
    // What it removed does not come back when the old window ends.
    fixture.at(3_499);
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
    fixture.at(3_500);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn updating_to_a_longer_interval_keeps_what_is_in_use_for_longer(fixture: Fixture) {
    let limiter = ten(&fixture, 4).await;
    fixture.at(1_500);
    assert!(
        limiter
            .update_rate(Rate::overall(10, ms(10_000)), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    fixture.at(10_999);
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    fixture.at(11_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

pub async fn updating_per_client_keeps_what_this_client_uses_and_leaves_it_17(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    limiter
        .try_set_rate(Rate::per_client(10, SECOND))
        .await
        .unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    let other = fixture.limiter_of("other").await;
    assert!(other.try_acquire(9).await.unwrap());
    assert!(
        limiter
            .update_rate(Rate::per_client(20, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert_eq!(limiter.available_permits().await.unwrap(), 17);
}

pub async fn updating_with_a_keep_alive_stores_it_and_without_one_removes_it(fixture: Fixture) {
    let limiter = ten(&fixture, 4).await;
    for state in [PermitsInUse::Keep, PermitsInUse::Reset] {
        let kept = Rate::overall(10, SECOND).keep_alive(HOUR);
        assert!(limiter.update_rate(kept, state).await.unwrap());
        assert_eq!(limiter.config().await.unwrap(), Some(kept));
        let bare = Rate::overall(10, SECOND);
        assert!(limiter.update_rate(bare, state).await.unwrap());
        assert_eq!(limiter.config().await.unwrap(), Some(bare));
    }
}
