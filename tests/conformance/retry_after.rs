//! When a denied request fits: exactly then, if nobody else takes any permits.

use std::time::Duration;

use redisson_rate_limiter::{
    Decision, PermitsInUse, Rate, RateLimiter, RedissonClient, TokenBucket,
};

use crate::fixture::{Fixture, HOUR, SECOND, ms};

/// A limiter of ten a second, of which these numbers of permits were taken 100 ms apart, the last
/// of them now.
async fn ten(fixture: &Fixture, taken: &[u32]) -> (RedissonClient, RateLimiter) {
    let client = fixture.client("client").await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(10, SECOND)).await.unwrap();
    for (place, &permits) in taken.iter().enumerate() {
        if place > 0 {
            fixture.pass(ms(100));
        }
        assert!(limiter.try_acquire(permits).await.unwrap());
    }
    (client, limiter)
}

/// The decision of the limiter alone, or beside another one.
async fn decided(
    (client, limiter): &(RedissonClient, RateLimiter),
    permits: u32,
    alone: bool,
) -> Decision {
    if alone {
        return limiter.check(permits).await.unwrap();
    }
    let bucket = TokenBucket::per_second(100).with_capacity(1_000);
    let bucket = client.policy_limiter(bucket).unwrap();
    let key = format!("{{{}}}:bucket", limiter.name());
    let charges = [
        bucket.charge(&key, 1).unwrap(),
        limiter.charge(permits).unwrap(),
    ];
    let decided = client.check_all(charges).await.unwrap();
    decided.into_decisions().swap_remove(1)
}

/// Asserts that this many permits are denied for this time, and then granted.
async fn assert_fits_after(
    fixture: &Fixture,
    limiter: &(RedissonClient, RateLimiter),
    permits: u32,
    alone: bool,
    time: Duration,
) {
    let what = format!("{permits} permits, alone: {alone}");
    let denied = decided(limiter, permits, alone).await;
    assert_eq!(denied.retry_after(), Some(time), "{what}");
    fixture.pass(time - ms(1));
    let denied = decided(limiter, permits, alone).await;
    assert_eq!(denied.retry_after(), Some(ms(1)), "{what}");
    fixture.pass(ms(1));
    let granted = decided(limiter, permits, alone).await;
    assert!(granted.is_granted(), "{what}");
}

/// The retry times of requests that are made at once; `None` for each that is granted.
async fn waits_at_once<const N: usize>(
    limiter: &RateLimiter,
    permits: [u32; N],
) -> [Option<u128>; N] {
    let requests = permits.map(|permits| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(permits).await.unwrap().retry_after() })
    });
    let mut waits = [None; N];
    for (wait, request) in waits.iter_mut().zip(requests) {
        *wait = request.await.unwrap().map(|wait| wait.as_millis());
    }
    waits
}

pub async fn a_request_fits_when_as_many_grants_are_back_as_it_needs(fixture: Fixture) {
    let waits = [800, 800, 800, 900, 900, 900, 900, 900, 900, 1_000];
    for (permits, wait) in (1..=10).zip(waits) {
        for alone in [true, false] {
            let limiter = ten(&fixture, &[3, 6, 1]).await;
            assert_fits_after(&fixture, &limiter, permits, alone, ms(wait)).await;
        }
    }
}

pub async fn a_request_beside_some_permits_that_are_left_needs_only_the_rest(fixture: Fixture) {
    for (permits, wait) in [(3, 800), (4, 900), (5, 1_000), (8, 1_000)] {
        for alone in [true, false] {
            let limiter = ten(&fixture, &[1, 1, 6]).await;
            assert_fits_after(&fixture, &limiter, permits, alone, ms(wait)).await;
        }
    }
}

pub async fn under_a_lowered_rate_a_request_fits_when_less_than_the_rate_is_in_use(
    fixture: Fixture,
) {
    // 8 of 5 are in use, so that nothing is left before four of them are back.
    for (permits, wait) in [(1, 900), (2, 900), (3, 900), (4, 1_000), (5, 1_000)] {
        for alone in [true, false] {
            let limiter = ten(&fixture, &[3, 3, 2]).await;
            let rate = Rate::overall(5, SECOND);
            limiter
                .1
                .update_rate(rate, PermitsInUse::Keep)
                .await
                .unwrap();
            let denied = decided(&limiter, permits, alone).await;
            assert_eq!(denied.available_in(), ms(900));
            assert_fits_after(&fixture, &limiter, permits, alone, ms(wait)).await;
        }
    }
}

pub async fn beside_a_hold_a_request_fits_when_it_has_ended(fixture: Fixture) {
    for alone in [true, false] {
        let limiter = ten(&fixture, &[2, 2]).await;
        limiter.1.hold(HOUR).await.unwrap();
        assert_fits_after(&fixture, &limiter, 1, alone, HOUR).await;
    }
}

pub async fn each_request_of_a_shared_call_gets_its_own_time(fixture: Fixture) {
    let limiter = ten(&fixture, &[1, 2, 3, 4]).await;
    let waits = waits_at_once(&limiter.1, [1, 10, 3, 6, 1, 7]).await;
    assert_eq!(waits, [700, 1_000, 800, 900, 700, 1_000].map(Some));
}

pub async fn what_a_call_grants_to_one_request_delays_the_others_of_it(fixture: Fixture) {
    let limiter = ten(&fixture, &[1, 2, 3]).await;
    fixture.pass(ms(100));
    // The first goes alone, and the others share a call.
    let waits = waits_at_once(&limiter.1, [1, 2, 4, 2, 10]).await;
    let expected = [None, None, Some(800), Some(700), Some(1_000)];
    assert_eq!(waits, expected);
}
