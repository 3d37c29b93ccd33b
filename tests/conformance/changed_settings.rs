//! Settings that change while requests come in: what was granted still counts, even if its key
//! would have expired under the earlier settings. These tests run in memory, where paused time
//! makes them exact; the comparison with the models shows that the scripts write the same times to
//! live.

use std::time::Duration;

use redisson_rate_limiter::{
    KeyedRateLimiter, LeakyBucket, Limiter, MemoryStore, PenaltyTokenBucket, Policy, PolicyLimiter,
    Rate, RedissonClient, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};
use tokio::time::advance;

use crate::fixture::{SECOND, ms};

const MINUTE: Duration = Duration::from_secs(60);

/// Two versions of a service.
struct Versions(MemoryStore);

impl Versions {
    fn new() -> Self {
        Self(MemoryStore::new())
    }

    fn client(&self) -> RedissonClient {
        RedissonClient::builder().in_memory(&self.0)
    }

    fn with<P: Policy>(&self, policy: P) -> PolicyLimiter<P> {
        self.client().policy_limiter(policy).unwrap()
    }

    fn keyed(&self, rate: Rate) -> KeyedRateLimiter {
        self.client().keyed_rate_limiter("", rate).unwrap()
    }
}

/// How many of `requests` are granted.
async fn granted(limiter: &impl Limiter, requests: usize) -> usize {
    let mut granted = 0;
    for _ in 0..requests {
        let decision = limiter.check_without_waiting("k", 1).await.unwrap();
        granted += usize::from(decision.is_granted());
    }
    granted
}

#[tokio::test(start_paused = true)]
async fn the_limiter_of_a_key_lives_for_an_interval_that_became_longer() {
    let limiter = Versions::new().keyed(Rate::overall(5, SECOND));
    assert_eq!(granted(&limiter, 1).await, 1);
    limiter.set_rate(Rate::overall(5, MINUTE)).unwrap();
    assert_eq!(granted(&limiter, 9).await, 4);
    advance(6 * SECOND).await;
    assert_eq!(granted(&limiter, 9).await, 0);
    let config = limiter.rate_limiter("k").config().await.unwrap().unwrap();
    assert_eq!(config.keep_alive_time(), Some(MINUTE));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_version_does_not_shorten_the_keep_alive_of_a_later_one() {
    let versions = Versions::new();
    let earlier = versions.keyed(Rate::overall(5, SECOND).keep_alive(SECOND));
    let later = versions.keyed(Rate::overall(5, MINUTE).keep_alive(MINUTE));
    assert_eq!(granted(&later, 3).await, 3);
    assert_eq!(granted(&earlier, 9).await, 2);
    advance(2 * SECOND).await;
    assert_eq!(granted(&later, 9).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_joint_decision_lengthens_the_keep_alive_whatever_it_decides() {
    let versions = Versions::new();
    let earlier = versions.keyed(Rate::overall(5, SECOND));
    let client = versions.client();
    let later = client
        .keyed_rate_limiter("", Rate::overall(5, MINUTE))
        .unwrap();
    let full = client
        .keyed_rate_limiter("full:", Rate::overall(1, MINUTE))
        .unwrap();
    assert!(full.check("k", 1).await.unwrap().is_granted());
    assert_eq!(granted(&earlier, 3).await, 3);
    let charges = [later.charge("k", 1).unwrap(), full.charge("k", 1).unwrap()];
    let decision = client.check_all(charges).await.unwrap();
    assert!(!decision.is_granted());
    advance(2 * SECOND).await;
    assert_eq!(granted(&later, 9).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_with_another_period_or_capacity_keeps_what_it_holds() {
    let minute = LeakyBucket::new(1, MINUTE).with_capacity(2);
    let second = LeakyBucket::new(1, SECOND).with_capacity(1);
    for later in [minute, LeakyBucket::new(1, SECOND).with_capacity(99)] {
        let limiter = Versions::new().with(second.clone());
        assert_eq!(granted(&limiter, 1).await, 1);
        limiter.set_policy(later.clone()).unwrap();
        let most = later.capacity() + later.quantity();
        assert_eq!(granted(&limiter, 200).await, most as usize - 1);
        advance(ms(3_700)).await;
        let drained = if later.period() == SECOND { 3 } else { 0 };
        assert_eq!(granted(&limiter, 200).await, drained);
    }
}

#[tokio::test(start_paused = true)]
async fn a_penalty_token_bucket_with_other_settings_keeps_what_was_taken() {
    let minute = PenaltyTokenBucket::new(1, MINUTE).with_capacity(3);
    let second = PenaltyTokenBucket::new(1, SECOND).with_capacity(1);
    for later in [
        minute,
        PenaltyTokenBucket::new(1, SECOND).with_capacity(100),
    ] {
        let limiter = Versions::new().with(second.clone());
        assert_eq!(granted(&limiter, 1).await, 1);
        limiter.set_policy(later.clone()).unwrap();
        // The larger bucket does not start full: the tokens left are stored, not the tokens taken.
        assert_eq!(granted(&limiter, 200).await, 0);
        advance(ms(3_700)).await;
        let arrived = if later.period() == SECOND { 3 } else { 0 };
        assert_eq!(granted(&limiter, 200).await, arrived);
    }
}

#[tokio::test(start_paused = true)]
async fn the_counters_of_periods_live_for_a_window_that_became_longer() {
    let of = |window| SlidingWindowCounter::new(10, window).with_period(MINUTE);
    let limiter = Versions::new().with(of(MINUTE));
    assert_eq!(granted(&limiter, 1).await, 1);
    limiter.set_policy(of(10 * MINUTE)).unwrap();
    assert_eq!(granted(&limiter, 20).await, 9);
    advance(3 * MINUTE).await;
    assert_eq!(granted(&limiter, 20).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_too_extends_a_log_to_a_window_that_became_longer() {
    let versions = Versions::new();
    let earlier = versions.with(SlidingWindowLog::new(3, SECOND));
    let later = versions.with(SlidingWindowLog::new(3, MINUTE));
    assert_eq!(granted(&earlier, 3).await, 3);
    assert_eq!(granted(&later, 1).await, 0);
    advance(3 * SECOND).await;
    assert_eq!(granted(&later, 9).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_denial_keeps_a_bucket_until_it_is_full_at_the_pace_of_its_limiter() {
    let versions = Versions::new();
    let earlier = versions.with(TokenBucket::per_second(10).with_capacity(10));
    let later = versions.with(TokenBucket::per_second(1).with_capacity(10));
    assert_eq!(granted(&earlier, 10).await, 10);
    assert_eq!(granted(&later, 1).await, 0);
    advance(3 * SECOND).await;
    assert_eq!(granted(&later, 20).await, 3);
}

#[tokio::test(start_paused = true)]
async fn shorter_settings_do_not_shorten_the_life_of_what_longer_ones_count() {
    let versions = Versions::new();
    let earlier = versions.with(SlidingWindowLog::new(5, SECOND));
    let later = versions.with(SlidingWindowLog::new(5, MINUTE));
    assert_eq!(granted(&later, 3).await, 3);
    assert_eq!(granted(&earlier, 1).await, 1);
    advance(3 * SECOND).await;
    assert_eq!(granted(&later, 9).await, 1);
}

#[tokio::test(start_paused = true)]
async fn counters_with_another_default_period_count_while_a_window_needs_them() {
    let versions = Versions::new();
    let earlier = versions.with(SlidingWindowCounter::new(10, MINUTE));
    let later = versions.with(SlidingWindowCounter::new(10, 10 * MINUTE));
    assert_eq!(granted(&earlier, 7).await, 7);
    assert_eq!(granted(&later, 20).await, 3);
    assert_eq!(granted(&earlier, 20).await, 0);
    advance(5 * MINUTE).await;
    assert_eq!(granted(&later, 20).await, 0);
    assert_eq!(granted(&earlier, 20).await, 10);
    advance(5 * MINUTE).await;
    assert_eq!(granted(&later, 20).await, 0);
    advance(ms(1)).await;
    assert_eq!(granted(&later, 20).await, 0);
    advance(5 * MINUTE).await;
    assert_eq!(granted(&later, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_version_with_one_long_period_keeps_the_lengths_that_others_count() {
    let versions = Versions::new();
    let of = |limit, window, period| {
        versions.with(SlidingWindowCounter::new(limit, window).with_period(period))
    };
    let short = of(4, SECOND, ms(100));
    let sliding = of(5, 10 * SECOND, SECOND);
    let fixed = of(9, 10 * SECOND, 10 * SECOND);
    assert_eq!(granted(&sliding, 1).await, 1);
    advance(ms(9_500)).await;
    assert_eq!(granted(&short, 4).await, 4);
    assert_eq!(granted(&sliding, 1).await, 0);
    advance(ms(501)).await; // the second period of the fixed window, which ends in ten seconds
    assert_eq!(granted(&fixed, 1).await, 1);
    assert_eq!(granted(&sliding, 9).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_does_not_shorten_the_life_that_others_without_one_need() {
    let versions = Versions::new();
    let minute = versions.client().rate_limiter("k");
    let minute = minute.with_rate(Rate::overall(5, MINUTE)).unwrap();
    let second = versions.keyed(Rate::overall(5, SECOND).keep_alive(SECOND));
    assert!(minute.try_acquire(3).await.unwrap());
    assert_eq!(granted(&second, 1).await, 1);
    advance(3 * SECOND).await;
    let of_minute = versions.keyed(Rate::overall(5, MINUTE));
    assert_eq!(granted(&of_minute, 2).await, 1);
    minute.delete().await.unwrap();
    assert!(minute.try_acquire(1).await.unwrap());
    let of_other_type = versions.keyed(Rate::per_client(5, SECOND).keep_alive(SECOND));
    assert_eq!(granted(&of_other_type, 1).await, 1);
    let config = of_other_type
        .rate_limiter("k")
        .config()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(config.keep_alive_time(), Some(MINUTE));
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_other_type_does_not_shorten_the_keep_alive() {
    let versions = Versions::new();
    let later = versions.keyed(Rate::overall(5, MINUTE));
    let of_other_type = versions.keyed(Rate::per_client(5, SECOND));
    let earlier = versions.keyed(Rate::overall(5, SECOND));
    assert_eq!(granted(&later, 1).await, 1);
    assert_eq!(granted(&of_other_type, 1).await, 1);
    assert_eq!(granted(&earlier, 3).await, 3); // all are back, because the type has changed
    advance(2 * SECOND).await;
    assert_eq!(granted(&later, 9).await, 2);
}
