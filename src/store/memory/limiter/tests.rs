//! Tests of when the fast path opens, and of what is recorded about it.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{
    Clock, Decision, FixedWindow, Grant, Granted, MemoryStore, Rate, RateLimiter, RedissonClient,
};

#[test]
fn a_request_that_read_the_clock_early_has_the_time_of_the_one_before() {
    let limiter = StoredLimiter::new("limiter".into());
    let times = [1_000, 999, 1_001].map(|read| limiter.held().time(read));
    assert_eq!(times, [1_000, 1_000, 1_001]);
}

/// A limiter whose clock stands still, and its state.
async fn limiter(rate: Rate) -> (RateLimiter, Arc<StoredLimiter>) {
    let store = MemoryStore::new();
    let client = RedissonClient::builder().in_memory(&store);
    let limiter = client.rate_limiter("limiter");
    assert!(limiter.try_set_rate(rate).await.unwrap());
    (limiter, store.limiter("limiter"))
}

/// The permits of each grant that is recorded.
fn entries(limiter: &StoredLimiter) -> Vec<u32> {
    let held = limiter.held();
    let grants = held.window.overall.grants();
    grants
        .iter()
        .map(|(_, member)| crate::permit::decode(&member).unwrap().1)
        .collect()
}

async fn granted(limiter: &RateLimiter, permits: u32) -> Grant {
    match limiter.check(permits).await.unwrap() {
        Decision::Granted(Granted { grant, .. }) => grant,
        denied => panic!("{denied:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn grants_of_one_ms_without_refunds_share_an_entry_and_return_in_time() {
    let second = Duration::from_secs(1);
    let (limiter, held) = limiter(Rate::overall(1_000, second)).await;
    for _ in 0..2 {
        for _ in 0..100 {
            assert!(limiter.try_acquire(1).await.unwrap());
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // The second request that is decided opens the fast path; the others take from it.
    assert_eq!(entries(&held), [1, 1, 98, 1, 1, 98]);
    tokio::time::advance(second - Duration::from_millis(3)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 800);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 900);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn the_fast_path_opens_only_if_such_requests_follow_within_a_ms() {
    let (limiter, held) = limiter(Rate::overall(1_000, Duration::from_secs(1))).await;
    let is_reserved = || lock(&held.held).reserved.is_some();
    for _ in 0..5 {
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(!is_reserved());
        granted(&limiter, 1).await;
    }
    for _ in 0..5 {
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(!is_reserved());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(is_reserved());
}

#[tokio::test(start_paused = true)]
async fn a_grant_among_others_of_its_ms_is_refunded_exactly() {
    let (limiter, held) = limiter(Rate::overall(1_000, Duration::from_secs(1))).await;
    for _ in 0..10 {
        assert!(limiter.try_acquire(2).await.unwrap());
    }
    let grant = granted(&limiter, 3).await;
    for _ in 0..10 {
        assert!(limiter.try_acquire(2).await.unwrap());
    }
    assert_eq!(limiter.refund(grant).await.unwrap(), 3);
    assert_eq!(limiter.available_permits().await.unwrap(), 960);
    assert_eq!(entries(&held), [2, 2, 16, 2, 2, 16]);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_in_one_ms_fits_its_entries_however_much_it_is() {
    let rate = Rate::overall(1 << 40, Duration::from_secs(1));
    let (limiter, held) = limiter(rate).await;
    let mut taken = 0_i64;
    for permits in [u32::MAX, 1, u32::MAX, 1_000_000, 1_000_000, u32::MAX, 7] {
        assert!(limiter.try_acquire(permits).await.unwrap());
        taken += i64::from(permits);
        let entries: i64 = entries(&held).into_iter().map(i64::from).sum();
        assert_eq!(entries, taken);
    }
    assert_eq!(
        limiter.available_permits().await.unwrap(),
        (1 << 40) - taken.unsigned_abs()
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_rate_is_an_error_and_opens_no_fast_path() {
    let (limiter, _) = limiter(Rate::overall(8, Duration::from_secs(1))).await;
    let is_above = |answer| matches!(answer, Err(Error::ExceedsLimit { limit: 8, .. }));
    assert!(is_above(limiter.try_acquire(9).await));
    assert!(limiter.try_acquire(8).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert!(is_above(limiter.try_acquire(9).await));
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_scored_by_the_clock_of_its_own_client() {
    let store = MemoryStore::new();
    let now = store.0.clock.now();
    let own = [700, -700].map(|off| Clock::from_fn(move || now + off));
    let limiters = [own[0].clone(), Clock::server(), own[1].clone()].map(|clock| {
        let client = RedissonClient::builder().clock(clock).in_memory(&store);
        client.rate_limiter("limiter")
    });
    let rate = Rate::overall(1_000, Duration::from_secs(10));
    assert!(limiters[0].try_set_rate(rate).await.unwrap());
    for _ in 0..2 {
        for limiter in &limiters {
            assert!(limiter.try_acquire(1).await.unwrap());
        }
    }
    let limiter = store.limiter("limiter");
    let held = limiter.held();
    let grants = held.window.overall.grants();
    let scores: Vec<i64> = grants.iter().map(|(score, _)| score - now).collect();
    assert_eq!(scores, [-700, -700, 0, 0, 700, 700]);
}

#[tokio::test(start_paused = true)]
async fn no_limiter_is_locked_while_a_clients_clock_is_read() {
    let store = MemoryStore::new();
    let seen = store.clone();
    let clock = Clock::from_fn(move || {
        for name in ["one", "other"] {
            assert!(seen.limiter(name).held.try_lock().is_ok(), "{name}");
        }
        0
    });
    let client = RedissonClient::builder().clock(clock).in_memory(&store);
    let limiters = ["one", "other"].map(|name| client.rate_limiter(name));
    for limiter in &limiters {
        let rate = Rate::overall(5, Duration::from_secs(1));
        limiter.set_rate(rate).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    let charges = limiters.map(|limiter| limiter.charge(1).unwrap());
    assert!(client.check_all(charges).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_clients_own_permits_are_not_reserved_for_others() {
    let store = MemoryStore::new();
    let limiters = [(); 2].map(|()| {
        let client = RedissonClient::builder().in_memory(&store);
        client.rate_limiter("limiter")
    });
    let rate = Rate::per_client(20, Duration::from_secs(1));
    assert!(limiters[0].try_set_rate(rate).await.unwrap());
    for limiter in &limiters {
        for _ in 0..20 {
            assert!(limiter.try_acquire(1).await.unwrap());
        }
        assert!(!limiter.try_acquire(1).await.unwrap());
    }
}

/// The grants have one permit each, so that there are more than a call sums.
#[tokio::test(start_paused = true)]
async fn a_lowered_rate_per_client_holds_for_what_the_others_have_in_use() {
    let store = MemoryStore::new();
    let [one, other] = [(); 2].map(|()| {
        let client = RedissonClient::builder().in_memory(&store);
        client.rate_limiter("limiter")
    });
    let interval = Duration::from_secs(1);
    let rate = Rate::per_client(20, interval);
    assert!(one.try_set_rate(rate).await.unwrap());
    for _ in 0..10 {
        granted(&other, 1).await;
    }
    tokio::time::advance(interval / 2).await;
    for _ in 0..10 {
        granted(&other, 1).await;
    }
    one.set_rate(Rate::per_client(12, interval)).await.unwrap();
    assert!(!other.try_acquire(1).await.unwrap());
    tokio::time::advance(interval / 2).await;
    assert_eq!(other.available_permits().await.unwrap(), 2);
    granted(&other, 2).await;
    assert!(!other.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn the_debug_text_of_a_client_and_its_limiters_has_no_users_keys() {
    let client = RedissonClient::in_memory();
    let window = FixedWindow::new(5, Duration::from_secs(60));
    let per_user = client.policy_limiter(window).unwrap();
    assert!(per_user.check("alice", 1).await.unwrap().is_granted());
    let shown = format!("{client:?} {per_user:?} {:?}", client.rate_limiter("b"));
    assert!(!shown.contains("alice"), "{shown}");
}
