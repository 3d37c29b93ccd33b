//! Remembered denials, over a store that takes a millisecond for each call and counts the calls, with tokio's time
//! paused.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::without_redis_tests::Remote;
use crate::{
    Decision, Denied, Error, FailurePolicy, Granted, PermitsInUse, Rate, RateLimiter,
    RedissonClient,
};

const AT_MOST: Duration = ms(100);
const MINUTE: Duration = Duration::from_secs(60);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn remembering(client: &RedissonClient) -> RateLimiter {
    client.rate_limiter("l").with_remember_denials(AT_MOST)
}

/// A limiter with this rate, all of which is in use, and the answer that a request for one permit got just now.
async fn denied(remote: &Remote, rate: Rate) -> (RateLimiter, Decision) {
    let limiter = remembering(&remote.client(FailurePolicy::Error));
    limiter.set_rate(rate).await.unwrap();
    let all = u32::try_from(rate.permits()).unwrap();
    assert!(limiter.check(all).await.unwrap().is_granted());
    let denial = limiter.check(1).await.unwrap();
    assert!(!denial.is_granted());
    remote.take_calls();
    (limiter, denial)
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_repeated_without_a_call_with_its_times_counted_down() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(5, MINUTE)).await;
    advance(AT_MOST).await;
    let Decision::Denied(Denied { retry_after, .. }) = limiter.check(1).await.unwrap() else {
        panic!("it is granted");
    };
    remote.take_calls();
    advance(ms(30)).await;
    let left = retry_after - ms(30);
    assert_eq!(
        limiter.check(2).await.unwrap(),
        Decision::from(Denied::new(left).with_limit(5))
    );
    assert!(!limiter.try_acquire(5).await.unwrap());
    assert!(
        !limiter
            .try_acquire_timeout(1, Duration::ZERO)
            .await
            .unwrap()
    );
    assert!(!limiter.check(1).await.unwrap().is_by_failure_policy());
    assert_eq!(remote.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_another_client_gives_back_is_seen_no_later_than_the_setting_says() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(5, MINUTE)).await; // its call was sent 1 ms ago
    let other = remote.client(FailurePolicy::Error).rate_limiter("l");
    other.release(5).await.unwrap();
    advance(AT_MOST - ms(3)).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    advance(ms(1)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn permits_that_come_back_with_time_are_never_hidden() {
    let remote = Remote::new();
    let (limiter, denial) = denied(&remote, Rate::overall(1, ms(50))).await;
    let Decision::Denied(Denied { retry_after, .. }) = denial else {
        panic!("it is granted");
    };
    assert!(retry_after < AT_MOST);
    advance(retry_after - ms(1)).await;
    assert!(limiter.try_acquire(1).await.unwrap()); // the call takes the last millisecond
}

#[tokio::test(start_paused = true)]
async fn fewer_permits_than_were_denied_and_more_than_the_rate_are_asked_for() {
    let remote = Remote::new();
    let limiter = remembering(&remote.client(FailurePolicy::Error));
    limiter.set_rate(Rate::overall(5, MINUTE)).await.unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    assert!(!limiter.try_acquire(3).await.unwrap());
    assert!(matches!(
        limiter.try_acquire(6).await,
        Err(Error::PermitsExceedRate { requested: 6, .. })
    ));
    assert!(!limiter.try_acquire(3).await.unwrap());
    assert!(limiter.try_acquire(2).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_this_client_gives_back_or_sets_counts_at_once_for_all_handles() {
    let remote = Remote::new();
    let rate = Rate::overall(5, MINUTE);
    let client = remote.client(FailurePolicy::Error);
    let limiter = remembering(&client);
    let handle = client.rate_limiter("l");
    for change in 0..6 {
        handle.set_rate(rate).await.unwrap();
        let Decision::Granted(Granted { grant, .. }) = limiter.check(5).await.unwrap() else {
            panic!("it is denied");
        };
        assert!(!limiter.try_acquire(1).await.unwrap());
        match change {
            0 => handle.release(1).await.unwrap(),
            1 => assert_eq!(handle.refund(grant).await.unwrap(), 5),
            2 => handle.set_rate(rate).await.unwrap(),
            3 => assert!(handle.update_rate(rate, PermitsInUse::Reset).await.unwrap()),
            4 => assert!(handle.delete().await.unwrap()),
            _ => assert!(handle.expire(Duration::ZERO).await.unwrap()),
        }
        if change == 4 || change == 5 {
            let missing = limiter.try_acquire(1).await;
            assert!(
                matches!(missing, Err(Error::NotInitialized { .. })),
                "{change}"
            );
        } else {
            assert!(limiter.try_acquire(1).await.unwrap(), "{change}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_decided_before_a_release_and_read_after_it_is_not_remembered() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(5, MINUTE)).await;
    advance(AT_MOST).await;
    let (asked, released) = tokio::join!(limiter.try_acquire(1), limiter.release(5));
    released.unwrap();
    let _ = asked.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_whatever_is_remembered() {
    let remote = Remote::new();
    let (limiter, denial) = denied(&remote, Rate::overall(1, MINUTE)).await;
    let other = remote.client(FailurePolicy::Error).rate_limiter("l");
    assert!(!denial.is_granted());
    other.release(1).await.unwrap();
    assert!(limiter.try_acquire_timeout(1, ms(5)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn callers_who_are_denied_cost_one_call_each_time_that_the_denial_is_too_old() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(1, 10 * MINUTE)).await;
    let mut callers = JoinSet::new();
    for _ in 0..256 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            for _ in 0..100 {
                assert!(!limiter.try_acquire(1).await.unwrap());
                sleep(ms(10)).await;
            }
        });
    }
    callers.join_all().await;
    // In 1,000 ms and the time that the calls take.
    let calls = remote.take_calls();
    assert!((9..=11).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_nobody_has_a_handle_on_is_remembered_until_its_rate_changes() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let keyed = client
        .keyed_rate_limiter("k:", Rate::overall(1, MINUTE))
        .unwrap()
        .with_remember_denials(AT_MOST);
    assert!(keyed.try_acquire("a", 1).await.unwrap());
    assert!(!keyed.try_acquire("a", 1).await.unwrap());
    remote.take_calls();
    for _ in 0..10 {
        assert!(!keyed.try_acquire("a", 1).await.unwrap());
    }
    assert_eq!(remote.take_calls(), 0);
    keyed.set_rate(Rate::overall(2, MINUTE)).unwrap();
    assert!(keyed.try_acquire("a", 1).await.unwrap());
}
