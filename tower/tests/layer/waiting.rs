//! Requests that wait for a grant.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{
    BoxFuture, Decision, Denied, FailurePolicy, Faults, LeakyBucket, Limiter, LimiterOptions,
    MemoryStore, RedissonClient, Result, Rule,
};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Everyone;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Always, MINUTE, ask, by_rules, field, per_minute, request};

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_it_is_granted() {
    let limiter = per_minute(&RedissonClient::in_memory(), 1);
    let layer = RateLimitLayer::new(limiter, Everyone).wait_up_to(MINUTE);
    let start = Instant::now();
    for waited in [0, 1, 2] {
        assert_eq!(ask(&layer, request()).await.status(), 200);
        assert_eq!(start.elapsed(), waited * MINUTE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_rejected_at_once() {
    let limiter = || per_minute(&RedissonClient::in_memory(), 1);
    let at_once = RateLimitLayer::new(limiter(), Everyone);
    let by_a_task = RateLimitLayer::with_async_key(limiter(), |_| Box::pin(async { None }));
    for layer in [at_once, by_a_task] {
        let layer = layer.wait_up_to(MINUTE - Duration::from_millis(1));
        let start = Instant::now();
        for status in [200, 429] {
            assert_eq!(ask(&layer, request()).await.status(), status);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

/// Takes this long to deny a request, and denies it for as long again.
#[derive(Debug)]
struct Slow(Duration);

impl Limiter for Slow {
    fn check<'a>(&'a self, _key: &'a str, _cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(async {
            sleep(self.0).await;
            Ok(Denied::new(self.0).into())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_that_an_answer_takes_is_part_of_the_wait() {
    let second = Duration::from_secs(1);
    let at_once = RateLimitLayer::new(Slow(second), Everyone);
    let by_a_task = RateLimitLayer::with_async_key(Slow(second), |_| Box::pin(async { None }));
    for layer in [at_once, by_a_task] {
        for (wait, answered_after) in [(second * 3 / 2, second), (second * 2, second * 3)] {
            let (layer, start) = (layer.clone().wait_up_to(wait), Instant::now());
            assert_eq!(ask(&layer, request()).await.status(), 429);
            assert_eq!(start.elapsed(), answered_after);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_lets_requests_through_at_its_pace() {
    let slow = LeakyBucket::new(1, Duration::from_secs(1)).with_capacity(2);
    let limiter = RedissonClient::in_memory().policy_limiter(slow).unwrap();
    let layer = RateLimitLayer::new(limiter, Everyone);
    let start = Instant::now();
    for waited in [0, 1, 2] {
        assert_eq!(ask(&layer, request()).await.status(), 200);
        assert_eq!(start.elapsed(), Duration::from_secs(waited));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_turn_the_limit_is_stated_as_it_is_then() {
    let slow = LeakyBucket::new(1, Duration::from_secs(1)).with_capacity(2);
    let limiter = || {
        let limiter = RedissonClient::in_memory().policy_limiter(slow.clone());
        limiter.unwrap().with_name("slow")
    };
    let at_once = RateLimitLayer::new(limiter(), Everyone);
    let by_a_task = RateLimitLayer::with_async_key(limiter(), |_| Box::pin(async { None }));
    for layer in [at_once, by_a_task] {
        for left in [2, 1, 1] {
            let response = ask(&layer, request()).await;
            let stated = format!("\"slow\";r={left};t=0");
            assert_eq!(field(&response, "ratelimit"), Some(&*stated));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_may_wait_for_the_longest_time_there_is() {
    let limiter = || per_minute(&RedissonClient::in_memory(), 1);
    let at_once = RateLimitLayer::new(limiter(), Everyone);
    let by_a_task = RateLimitLayer::with_async_key(limiter(), |_| Box::pin(async { None }));
    for layer in [at_once, by_a_task] {
        let (layer, start) = (layer.wait_up_to(Duration::MAX), Instant::now());
        for waited in [0, 1] {
            assert_eq!(ask(&layer, request()).await.status(), 200);
            assert_eq!(start.elapsed(), waited * MINUTE);
        }
    }
    let client = RedissonClient::in_memory();
    let rule = Rule::new(per_minute(&client, 1));
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
    let (layer, start) = (layer.wait_up_to(Duration::MAX), Instant::now());
    for waited in [0, 1] {
        assert_eq!(ask(&layer, request()).await.status(), 200);
        assert_eq!(start.elapsed(), waited * MINUTE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_may_deny_for_the_longest_time_there_is() {
    let limiter = Always(Ok(Denied::new(Duration::MAX).into()));
    for wait in [Duration::ZERO, MINUTE] {
        let layer = RateLimitLayer::new(limiter.clone(), Everyone).wait_up_to(wait);
        assert_eq!(ask(&layer, request()).await.status(), 429);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_denies_for_no_time_is_asked_until_the_wait_ends() {
    let limiter = Always(Ok(Denied::new(Duration::ZERO).into()));
    for wait in [Duration::ZERO, Duration::from_millis(5)] {
        let layer = RateLimitLayer::new(limiter.clone(), Everyone).wait_up_to(wait);
        let start = Instant::now();
        let asked = timeout(MINUTE, ask(&layer, request())).await;
        assert_eq!(asked.expect("the wait ends").status(), 429);
        assert_eq!(start.elapsed(), wait);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_a_leaky_bucket_makes_it_wait_was_charged() {
    let second = Duration::from_secs(1);
    let slow = LeakyBucket::new(1, second).with_capacity(3);
    let limiter = RedissonClient::in_memory().policy_limiter(slow).unwrap();
    let layer = RateLimitLayer::new(limiter, Everyone);
    let start = Instant::now();
    assert_eq!(ask(&layer, request()).await.status(), 200);
    let waiting = timeout(second / 2, ask(&layer, request())).await;
    assert!(waiting.is_err());
    // The turn of the dropped one was at one second, and nobody else has it.
    assert_eq!(ask(&layer, request()).await.status(), 200);
    assert_eq!(start.elapsed(), 2 * second);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_what_no_limiter_has_denied() {
    let (store, faults) = (MemoryStore::new(), Faults::new());
    let client = RedissonClient::builder().in_memory_with_faults(&store, &faults);
    let limiter = || {
        let options = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
        per_minute(&client, 9).with_options(options)
    };
    let rules = || client.rules([Rule::new(limiter())]).unwrap();
    let blocked = Rule::block("blocked");
    let blocked = client.rules([blocked]).unwrap();
    let start = Instant::now();
    // Longer than it says that it blocks.
    let blocks = by_rules(Arc::new(blocked)).wait_up_to(48 * 60 * MINUTE);
    assert_eq!(ask(&blocks, request()).await.status(), 403);
    faults.lose_store();
    let one = RateLimitLayer::new(limiter(), Everyone).wait_up_to(MINUTE);
    assert_eq!(ask(&one, request()).await.status(), 503);
    let by_rules = by_rules(Arc::new(rules())).wait_up_to(MINUTE);
    assert_eq!(ask(&by_rules, request()).await.status(), 503);
    assert_eq!(start.elapsed(), Duration::ZERO);
}
