//! A counter that restarts with each window. Its windows end by the store's own clock.

use std::time::Instant;

use redisson_rate_limiter::{Decision, Denied, Error, FixedWindow, Granted, PolicyLimiter};
use tokio::time::{Duration, sleep};

use crate::fixture::{Fixture, HOUR, SECOND, denied, ms, passed};

const MINUTE: Duration = Duration::from_secs(60);

async fn limiter(fixture: &Fixture, policy: FixedWindow) -> PolicyLimiter<FixedWindow> {
    fixture
        .client("client")
        .await
        .policy_limiter(policy)
        .unwrap()
}

/// Asserts that `left` is left of a time that was set after `since`.
fn assert_left_of(time: Duration, left: Duration, since: Instant) {
    assert!(left <= time, "{left:?} of {time:?}");
    // The store counts whole milliseconds.
    assert!(
        left + since.elapsed() + ms(1) >= time,
        "{left:?} of {time:?}"
    );
}

pub async fn of_101_requests_in_a_minute_the_last_is_denied_for_the_rest_of_it(fixture: Fixture) {
    let limiter = limiter(&fixture, FixedWindow::new(100, MINUTE)).await;
    let since = Instant::now();
    for left in (0..100).rev() {
        let decision = limiter.check(fixture.name(), 1).await.unwrap();
        let Decision::Granted(Granted {
            limit, remaining, ..
        }) = decision
        else {
            panic!("{decision:?}");
        };
        assert_eq!((limit, remaining), (100, left));
    }
    let (remaining, retry_after) = denied(&limiter, fixture.name(), 1).await;
    assert_eq!(remaining, 0);
    assert_left_of(MINUTE, retry_after, since);
}

pub async fn the_next_window_begins_when_the_denial_said(fixture: Fixture) {
    let limiter = limiter(&fixture, FixedWindow::new(2, ms(100))).await;
    for _ in 0..2 {
        // On a slow machine the request may come after the end of the window, and belong to the
        // next one.
        let retry_after = loop {
            match limiter.check(fixture.name(), 2).await.unwrap() {
                Decision::Granted(_) => {}
                Decision::Denied(Denied { retry_after, .. }) => break retry_after,
            }
        };
        sleep(retry_after).await;
        assert!(passed(&limiter, fixture.name(), 2).await);
    }
}

pub async fn what_would_exceed_the_limit_is_denied_and_not_counted(fixture: Fixture) {
    let limiter = limiter(&fixture, FixedWindow::new(5, MINUTE)).await;
    assert!(passed(&limiter, fixture.name(), 3).await);
    for _ in 0..3 {
        assert_eq!(denied(&limiter, fixture.name(), 3).await.0, 2);
    }
    assert!(passed(&limiter, fixture.name(), 2).await);
    let error = limiter.check(fixture.name(), 6).await;
    assert!(
        matches!(&error, Err(Error::ExceedsLimit { requested: 6, limit: 5, name }) if name == fixture.name()),
        "{error:?}"
    );
}

pub async fn an_aligned_window_ends_with_the_largest_unit_that_divides_it(fixture: Fixture) {
    let day = 24 * HOUR;
    // The 100th day, 05:20:56.789
    fixture.at(100 * 86_400_000 + 5 * 3_600_000 + 20 * 60_000 + 56_789);
    for (place, (window, left)) in [
        (SECOND, ms(211)),
        (90 * SECOND, ms(89_211)),
        (MINUTE, ms(3_211)),
        (3 * MINUTE, ms(123_211)),
        (HOUR, 39 * MINUTE + ms(3_211)),
        (2 * HOUR, HOUR + 39 * MINUTE + ms(3_211)),
        (day, 18 * HOUR + 39 * MINUTE + ms(3_211)),
        (7 * day, 6 * day + 18 * HOUR + 39 * MINUTE + ms(3_211)),
    ]
    .into_iter()
    .enumerate()
    {
        let limiter = limiter(&fixture, FixedWindow::new(1, window).aligned_to_clock()).await;
        let key = format!("{{{}}}{place}", fixture.name());
        let since = Instant::now();
        let decision = limiter.check(&key, 1).await.unwrap();
        let Decision::Granted(Granted { reset, .. }) = decision else {
            panic!("{decision:?}");
        };
        assert_left_of(left, reset, since);
    }
}

pub async fn the_current_window_ends_as_before_and_the_next_has_the_new_length(fixture: Fixture) {
    let limiter = limiter(&fixture, FixedWindow::new(2, ms(150))).await;
    let began = Instant::now();
    assert!(passed(&limiter, fixture.name(), 2).await);
    limiter.set_policy(FixedWindow::new(2, MINUTE)).unwrap();
    let since = Instant::now(); // the next window begins after this
    match limiter.check(fixture.name(), 1).await.unwrap() {
        Decision::Denied(Denied { retry_after, .. }) => {
            assert!(retry_after <= ms(150), "{retry_after:?}");
            sleep(retry_after).await;
        }
        // On a slow machine it has ended already.
        Decision::Granted(_) => assert!(began.elapsed() >= ms(149)),
    }
    while passed(&limiter, fixture.name(), 1).await {}
    let (_, retry_after) = denied(&limiter, fixture.name(), 1).await;
    assert_left_of(MINUTE, retry_after, since);
}

/// One process changes the length while it runs, another one starts with the new length.
pub async fn processes_that_learn_a_new_length_in_their_own_way_keep_the_limit(fixture: Fixture) {
    let minutes = |n| FixedWindow::new(5, n * MINUTE);
    let changed = limiter(&fixture, minutes(60)).await;
    let since = Instant::now();
    assert!(passed(&changed, fixture.name(), 5).await);
    let began = limiter(&fixture, minutes(10)).await;
    changed.set_policy(minutes(10)).unwrap();
    for _ in 0..2 {
        for limiter in [&began, &changed] {
            let (remaining, retry_after) = denied(limiter, fixture.name(), 1).await;
            assert_eq!(remaining, 0);
            assert_left_of(60 * MINUTE, retry_after, since);
        }
    }
}

pub async fn a_window_of_the_calendar_ends_with_its_unit_at_its_offset(fixture: Fixture) {
    let day = 24 * HOUR;
    // 2024-02-29 15:00:00.001 UTC, a Thursday.
    fixture.at(1_709_218_800_001);
    let tokyo = 9 * 60; // 2024-03-01 00:00:00.001
    for (place, (policy, left, window)) in [
        (FixedWindow::calendar_hour(1), HOUR, HOUR),
        (
            FixedWindow::calendar_hour(1).with_utc_offset_minutes(-210),
            HOUR / 2,
            HOUR,
        ),
        (FixedWindow::calendar_day(1), 9 * HOUR, day),
        (
            FixedWindow::calendar_day(1).with_utc_offset_minutes(tokyo),
            day,
            day,
        ),
        (FixedWindow::calendar_week(1), 3 * day + 9 * HOUR, 7 * day),
        (FixedWindow::calendar_month(1), 9 * HOUR, 29 * day),
        (
            FixedWindow::calendar_month(1).with_utc_offset_minutes(tokyo),
            31 * day,
            31 * day,
        ),
        (
            FixedWindow::calendar_year(1),
            306 * day + 9 * HOUR,
            366 * day,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let limiter = limiter(&fixture, policy).await;
        let key = format!("{{{}}}{place}", fixture.name());
        let since = Instant::now();
        let decision = limiter.check(&key, 1).await.unwrap();
        assert!(decision.is_granted());
        assert_eq!(decision.window(), window, "{}", limiter.policy());
        assert_left_of(left - ms(1), decision.reset(), since);
        let (_, retry_after) = denied(&limiter, &key, 1).await;
        assert_left_of(left - ms(1), retry_after, since);
    }
}

pub async fn a_plan_that_changes_in_the_middle_of_a_month_keeps_what_was_used(fixture: Fixture) {
    fixture.at(1_709_218_800_000);
    let limiter = limiter(&fixture, FixedWindow::calendar_month(10)).await;
    assert!(passed(&limiter, fixture.name(), 8).await);
    limiter.set_policy(FixedWindow::calendar_month(5)).unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 1).await.0, 0);
    limiter
        .set_policy(FixedWindow::calendar_month(100))
        .unwrap();
    let decision = limiter.check(fixture.name(), 1).await.unwrap();
    assert_eq!(decision.remaining(), 91);
    // Also with another unit, until the current month is over.
    limiter.set_policy(FixedWindow::calendar_day(9)).unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 1).await.0, 0);
}

pub async fn a_changed_limit_applies_to_what_the_window_has_counted(fixture: Fixture) {
    let limiter = limiter(&fixture, FixedWindow::new(2, MINUTE)).await;
    assert!(passed(&limiter, fixture.name(), 2).await);
    limiter.set_policy(FixedWindow::new(5, MINUTE)).unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 4).await.0, 3);
    limiter.set_policy(FixedWindow::new(1, MINUTE)).unwrap();
    assert_eq!(denied(&limiter, fixture.name(), 1).await.0, 0);
}

pub async fn a_penalty_is_over_when_the_denial_said(fixture: Fixture) {
    let limiter = limiter(&fixture, FixedWindow::new(1, HOUR)).await;
    let limiter = limiter.with_penalty(2 * HOUR).unwrap();
    assert!(passed(&limiter, fixture.name(), 1).await);
    let (_, retry_after) = denied(&limiter, fixture.name(), 1).await;
    assert_eq!(retry_after, 2 * HOUR);

    let key = format!("{}:short", fixture.name());
    let limiter = limiter.with_penalty(ms(100)).unwrap();
    assert!(passed(&limiter, &key, 1).await);
    let locked_at = Instant::now();
    denied(&limiter, &key, 1).await;
    limiter.set_policy(FixedWindow::new(2, HOUR)).unwrap();
    match limiter.check(&key, 1).await.unwrap() {
        Decision::Denied(Denied { retry_after, .. }) => {
            assert!(retry_after <= ms(100), "{retry_after:?}");
            sleep(retry_after).await;
            assert!(passed(&limiter, &key, 1).await);
        }
        // On a slow machine it has ended already.
        Decision::Granted(_) => assert!(locked_at.elapsed() >= ms(99)),
    }
}
