//! Remembered denials, over a store that takes a millisecond for each call and counts the calls,
//! with tokio's time paused.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{advance, sleep, timeout};

use super::without_redis_tests::{RESPONSE_TIMEOUT, Remote};
use crate::{
    Decision, DecisionSource, Denied, Error, FailurePolicy, Granted, LimiterOptions, PermitsInUse,
    Quota, Rate, RateLimiter, RedissonClient,
};

const MAX_AGE: Duration = ms(100);
const MINUTE: Duration = Duration::from_secs(60);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn remembering(client: &RedissonClient) -> RateLimiter {
    client
        .rate_limiter("l")
        .with_options(LimiterOptions::new().remember_denials(MAX_AGE))
}

/// A limiter with this rate, all of which is in use, and the answer that a request for one permit
/// got just now.
async fn denied(remote: &Remote, rate: Rate) -> (RateLimiter, Decision) {
    denied_by(&remote.client(FailurePolicy::Error), remote, rate).await
}

async fn denied_by(
    client: &RedissonClient,
    remote: &Remote,
    rate: Rate,
) -> (RateLimiter, Decision) {
    let limiter = remembering(client);
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
    advance(MAX_AGE).await;
    let Decision::Denied(Denied { retry_after, .. }) = limiter.check(1).await.unwrap() else {
        panic!("it is granted");
    };
    remote.take_calls();
    advance(ms(30)).await;
    let left = retry_after - ms(30);
    let remembered = Denied {
        source: DecisionSource::Remembered,
        ..Denied::new(left)
            .with_quota(Quota::new(5, MINUTE))
            .with_available_in(left)
    };
    assert_eq!(limiter.check(2).await.unwrap(), remembered.into());
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
    advance(MAX_AGE - ms(3)).await;
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
    assert!(retry_after < MAX_AGE);
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
        Err(Error::ExceedsLimit { requested: 6, .. })
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
    for change in 0..7 {
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
            5 => assert!(handle.reset().await.unwrap()),
            _ => assert!(handle.expire(Duration::ZERO).await.unwrap()),
        }
        if change == 4 || change == 6 {
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
    advance(MAX_AGE).await;
    let (asked, released) = tokio::join!(limiter.try_acquire(1), limiter.release(5));
    released.unwrap();
    let _ = asked.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_is_read_while_a_reset_is_under_way_is_not_remembered() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(5, MINUTE)).await;
    advance(MAX_AGE).await;
    remote.set_round_trip(ms(10));
    let (asked, reset) = tokio::join!(limiter.try_acquire(1), async {
        sleep(ms(1)).await;
        limiter.reset().await
    });
    assert!(!asked.unwrap() && reset.unwrap());
    assert!(limiter.try_acquire(5).await.unwrap());
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
async fn denied_callers_cost_one_call_each_time_the_denial_is_too_old() {
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
        .with_options(LimiterOptions::new().remember_denials(MAX_AGE));
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

#[tokio::test(start_paused = true)]
async fn handles_made_anew_for_each_request_remember_what_their_client_was_told() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let rate = Rate::overall(1, MINUTE);
    let plain = || remembering(&client);
    let with_rate = || plain().with_rate(rate).unwrap();
    let keyed = || client.keyed_rate_limiter("", rate).unwrap();
    let keyed = || keyed().with_options(LimiterOptions::new().remember_denials(MAX_AGE));
    assert!(with_rate().try_acquire(1).await.unwrap());
    for kind in 0..4 {
        advance(MAX_AGE).await;
        remote.take_calls();
        for _ in 0..200 {
            let is_granted = match kind {
                0 => plain().try_acquire(1).await,
                1 => plain().check(1).await.map(|it| it.is_granted()),
                2 => with_rate().try_acquire(1).await,
                _ => keyed().try_acquire("l", 1).await,
            };
            assert!(!is_granted.unwrap());
        }
        assert_eq!(remote.take_calls(), 1, "{kind}");
    }
}

/// One of many limiters, which remembers denials for so long.
fn numbered(client: &RedissonClient, number: u32, at_most: Duration) -> RateLimiter {
    let limiter = client.rate_limiter(&number.to_string());
    let limiter = limiter.with_rate(Rate::overall(1, 10 * MINUTE)).unwrap();
    limiter.with_options(LimiterOptions::new().remember_denials(at_most))
}

/// Denies one more limiter than a client remembers.
async fn deny_1025(limiter: impl Fn(u32) -> RateLimiter) {
    for number in 0..1_025 {
        assert!(limiter(number).try_acquire(1).await.unwrap());
        assert!(!limiter(number).try_acquire(1).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_remembers_the_1024_limiters_that_were_denied_last() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = |i| numbered(&client, i, 10 * MINUTE);
    deny_1025(limiter).await;
    remote.take_calls();
    for (i, calls) in [(1_024, 0), (1, 0), (0, 1)] {
        assert!(!limiter(i).try_acquire(1).await.unwrap());
        assert_eq!(remote.take_calls(), calls, "{i}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_was_evicted_is_remembered_again_as_it_is_denied() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = |i| numbered(&client, i, MAX_AGE);
    let kept = limiter(0);
    deny_1025(limiter).await;
    advance(MAX_AGE).await;
    assert!(!kept.try_acquire(1).await.unwrap());
    drop(kept);
    remote.take_calls();
    assert!(!limiter(0).try_acquire(1).await.unwrap());
    assert_eq!(remote.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_more_expired_grants_behind_it_denies_nothing() {
    let remote = Remote::new();
    let limiter = remembering(&remote.client(FailurePolicy::Error));
    limiter.set_rate(Rate::overall(20, MINUTE)).await.unwrap();
    for _ in 0..19 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    advance(ms(1_000)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    advance(MINUTE - ms(1_000)).await; // all have expired but the last
    for permits in [1, 8, 10] {
        assert!(limiter.try_acquire(permits).await.unwrap(), "{permits}");
    }
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_a_joint_decision_sets_counts_at_once() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = remembering(&client);
    limiter.set_rate(Rate::overall(1, MINUTE)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    let keyed = client.keyed_rate_limiter("", Rate::overall(3, MINUTE));
    let charge = keyed.unwrap().charge("l", 1).unwrap();
    assert!(client.check_all([charge]).await.unwrap().is_granted());
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    remote.take_calls();
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(remote.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_a_joint_decision_in_flight_sets_is_asked_for() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let (limiter, _) = denied_by(&client, &remote, Rate::overall(1, MINUTE)).await;
    let keyed = client.keyed_rate_limiter("", Rate::overall(3, MINUTE));
    let charge = keyed.unwrap().charge("l", 1).unwrap();
    let (joint, asked) = tokio::join!(client.check_all([charge]), limiter.try_acquire(1));
    assert!(joint.unwrap().is_granted() && asked.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_joint_decision_that_creates_an_expired_limiter_ends_its_denial() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let rate = Rate::overall(3, MINUTE);
    let limiter = remembering(&client).with_rate(rate).unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    assert!(limiter.expire(ms(20)).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    advance(ms(20)).await;
    let charge = limiter.charge(1).unwrap();
    assert!(client.check_all([charge]).await.unwrap().is_granted());
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_request_with_another_rate_than_the_answers_asks_the_store() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let (limiter, _) = denied_by(&client, &remote, Rate::overall(1, MINUTE)).await;
    let raised = client.keyed_rate_limiter("", Rate::overall(2, MINUTE));
    let raised = raised.unwrap().with_options(limiter.options().clone());
    assert!(raised.try_acquire("l", 1).await.unwrap());
    assert!(!raised.try_acquire("l", 1).await.unwrap());
    // This one's denial is remembered, and drops nothing for a handle without a rate, nor for one
    // that sets none.
    let with_rate = limiter.clone().with_rate(Rate::overall(9, MINUTE)).unwrap();
    remote.take_calls();
    assert!(!raised.try_acquire("l", 1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert!(!with_rate.try_acquire(1).await.unwrap());
    assert_eq!(remote.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_an_unanswered_change_every_request_asks_until_its_time_is_over() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let (limiter, _) = denied_by(&client, &remote, Rate::overall(1, 10 * MINUTE)).await;
    let raised = client
        .keyed_rate_limiter("", Rate::overall(2, 10 * MINUTE))
        .unwrap();
    for change in 0..3 {
        let (limiter, raised) = (limiter.clone(), raised.clone());
        let call = tokio::spawn(async move {
            match change {
                0 => limiter.release(1).await,
                1 => limiter.delete().await.map(drop),
                _ => raised.check("l", 1).await.map(drop),
            }
        });
        tokio::task::yield_now().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    remote.take_calls();
    for _ in 0..5 {
        let _ = limiter.try_acquire(1).await.unwrap();
    }
    assert_eq!(remote.take_calls(), 5);
    advance(RESPONSE_TIMEOUT).await;
    let _ = limiter.try_acquire(1).await.unwrap();
    remote.take_calls();
    for _ in 0..5 {
        assert!(!limiter.try_acquire(1).await.unwrap());
    }
    assert_eq!(remote.take_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_an_unanswered_reset_every_request_asks_until_its_time_is_over() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(1, 10 * MINUTE)).await;
    remote.set_round_trip(ms(1));
    let unanswered = timeout(Duration::ZERO, limiter.reset()).await;
    assert!(unanswered.is_err());
    remote.take_calls();
    for _ in 0..2 {
        assert!(!limiter.try_acquire(1).await.unwrap());
        assert_eq!(remote.take_calls(), 1);
    }
    advance(RESPONSE_TIMEOUT).await;
    for calls in [1, 0] {
        assert!(!limiter.try_acquire(1).await.unwrap());
        assert_eq!(remote.take_calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_not_refused_while_permits_of_a_dropped_request_come_back() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = client
        .rate_limiter("l")
        .with_options(LimiterOptions::new().fail_fast(true));
    limiter.set_rate(Rate::overall(1, MINUTE)).await.unwrap();
    // Its call is in flight, and takes the permit.
    assert!(timeout(Duration::ZERO, limiter.check(1)).await.is_err());
    assert!(limiter.try_acquire_timeout(1, ms(100)).await.unwrap());
    // A waiter that is granted the permit, and is not polled.
    let mut waiter = Box::pin(limiter.acquire(1));
    assert!(timeout(MINUTE - ms(100), &mut waiter).await.is_err());
    sleep(ms(200)).await;
    assert!(!limiter.try_acquire_timeout(1, ms(100)).await.unwrap());
    drop(waiter);
    assert!(limiter.try_acquire_timeout(1, ms(100)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_not_refused_while_this_client_gives_permits_back() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = client
        .rate_limiter("l")
        .with_options(LimiterOptions::new().fail_fast(true));
    limiter.set_rate(Rate::overall(1, MINUTE)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let wait = || limiter.try_acquire_timeout(1, ms(100));
    assert!(!wait().await.unwrap());
    let (released, granted) = tokio::join!(limiter.release(1), wait());
    released.unwrap();
    assert!(granted.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_denial_of_an_expired_limiter_is_no_older_than_the_setting_says() {
    let remote = Remote::new();
    let (limiter, _) = denied(&remote, Rate::overall(1, MINUTE)).await;
    assert!(limiter.expire(ms(50)).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    remote.take_calls();
    advance(ms(60)).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(remote.take_calls(), 0);
    advance(MAX_AGE - ms(60)).await;
    let missing = limiter.try_acquire(1).await;
    assert!(matches!(missing, Err(Error::NotInitialized { .. })));
}
