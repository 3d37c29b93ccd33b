//! Holding a limiter: no request is granted permits for some time.

use redisson_rate_limiter::{Error, PermitsInUse, Rate, RateLimiter};

use crate::fixture::{Fixture, HOUR, SECOND, granted, ms};
use crate::stopped_time::at_once;

async fn ten(fixture: &Fixture) -> RateLimiter {
    let limiter = fixture.limiter().await;
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    limiter
}

async fn available(limiter: &RateLimiter) -> u64 {
    limiter.available_permits().await.unwrap()
}

pub async fn nobody_is_granted_a_permit_until_the_time_has_passed(fixture: Fixture) {
    for time in [ms(1), ms(999), SECOND, ms(1_001), 100 * HOUR] {
        let limiter = ten(&fixture).await;
        limiter.hold(time).await.unwrap();
        fixture.pass(time - ms(1));
        let other = fixture.limiter_of("other").await;
        assert_eq!(granted(&other, 1).await, 0);
        assert_eq!(available(&limiter).await, 0);
        fixture.pass(ms(1));
        assert_eq!(available(&limiter).await, 10);
        assert_eq!(granted(&other, 11).await, 10);
    }
}

pub async fn what_was_in_use_before_a_hold_counts_after_it(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    fixture.pass(ms(300));
    assert_eq!(granted(&limiter, 4).await, 4);
    limiter.hold(ms(500)).await.unwrap();
    fixture.pass(ms(500));
    assert_eq!(available(&limiter).await, 6);
    assert_eq!(granted(&limiter, 10).await, 6);
    fixture.pass(ms(500));
    assert_eq!(granted(&limiter, 10).await, 4);
}

pub async fn of_several_holds_the_one_that_ends_last_counts(fixture: Fixture) {
    for times in [[2, 60], [60, 2], [60, 60]] {
        let limiter = ten(&fixture).await;
        let other = fixture.limiter_of("other").await;
        limiter.hold(times[0] * SECOND).await.unwrap();
        other.hold(times[1] * SECOND).await.unwrap();
        fixture.pass(60 * SECOND - ms(1));
        assert_eq!(granted(&limiter, 1).await, 0);
        fixture.pass(ms(1));
        assert_eq!(granted(&limiter, 11).await, 10);
    }
}

pub async fn a_release_and_a_raised_rate_do_not_end_a_hold(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    assert_eq!(granted(&limiter, 4).await, 4);
    limiter.hold(60 * SECOND).await.unwrap();
    limiter.release(1_000).await.unwrap();
    let raised = Rate::overall(1_000, SECOND);
    limiter
        .update_rate(raised, PermitsInUse::Keep)
        .await
        .unwrap();
    fixture.pass(60 * SECOND - ms(1));
    assert_eq!(granted(&limiter, 1).await, 0);
    fixture.pass(ms(1));
    assert_eq!(available(&limiter).await, 1_000);
}

pub async fn a_reset_ends_a_hold(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    limiter.hold(60 * SECOND).await.unwrap();
    assert!(limiter.reset().await.unwrap());
    assert_eq!(granted(&limiter, 11).await, 10);
}

pub async fn those_who_wait_are_served_in_order_when_a_hold_ends(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    let _time = fixture.stop_time();
    assert!(limiter.try_acquire(10).await.unwrap());
    let waiting = [8, 3].map(|permits| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire(permits).await })
    });
    crate::stopped_time::run_until_stalled(&limiter).await;
    limiter.hold(ms(2_500)).await.unwrap();
    for _ in 0..10 {
        fixture.let_pass(ms(250) - ms(1)).await;
        crate::stopped_time::run_until_stalled(&limiter).await;
    }
    assert!(waiting.iter().all(|it| !it.is_finished()));
    fixture.let_pass(SECOND).await;
    let [first, second] = waiting;
    at_once(first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    fixture.let_pass(SECOND).await;
    fixture.let_pass(ms(10)).await;
    at_once(second).await.unwrap().unwrap();
}

pub async fn a_limiter_that_expires_ends_its_hold(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(10, SECOND).keep_alive(60 * SECOND);
    limiter.set_rate(rate).await.unwrap();
    limiter.hold(HOUR).await.unwrap();
    fixture.pass(60 * SECOND - ms(1));
    assert_eq!(granted(&limiter, 1).await, 0);
    fixture.pass(ms(1));
    assert_eq!(granted(&limiter, 11).await, 10);
}

pub async fn a_handle_with_a_rate_creates_the_limiter_that_it_holds(fixture: Fixture) {
    let limiter = fixture.limiter().await;
    assert!(matches!(
        limiter.hold(SECOND).await,
        Err(Error::NotInitialized { .. })
    ));
    assert!(!limiter.exists().await.unwrap());
    let limiter = limiter.with_rate(Rate::overall(10, SECOND)).unwrap();
    limiter.hold(SECOND).await.unwrap();
    assert_eq!(granted(&limiter, 1).await, 0);
}

pub async fn a_hold_of_no_time_or_of_too_large_a_rate_is_an_error(fixture: Fixture) {
    let limiter = ten(&fixture).await;
    for time in [ms(0), ms((1 << 52) + 1), std::time::Duration::MAX] {
        let error = limiter.hold(time).await;
        assert!(
            matches!(
                &error,
                Err(Error::InvalidArgument {
                    argument: "time",
                    ..
                })
            ),
            "{error:?}"
        );
    }
    limiter
        .hold(std::time::Duration::from_nanos(1))
        .await
        .unwrap(); // rounded up
    assert_eq!(available(&limiter).await, 0);
    fixture.pass(ms(1));
    assert_eq!(available(&limiter).await, 10);

    let rate = Rate::overall(1 << 32, SECOND);
    limiter.set_rate(rate).await.unwrap();
    let error = limiter.hold(SECOND).await;
    assert!(
        matches!(
            &error,
            Err(Error::InvalidArgument {
                argument: "rate",
                ..
            })
        ),
        "{error:?}"
    );
    assert_eq!(available(&limiter).await, 1 << 32);
}
