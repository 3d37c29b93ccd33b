//! Threads with one current-thread runtime each share a client, and do not depend on each other's
//! runtimes.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redisson_rate_limiter::{Error, PolicyLimiter, Rate, RateLimiter, RedissonClient, TokenBucket};
use tokio::runtime::Runtime;

use crate::by_hand::{Pending, poll_once};
use crate::fixture::{Fixture, HOUR, SECOND, ms, runtime};

/// Far more than anything here may take.
pub const NEVER: Duration = Duration::from_secs(60);

/// Runs a future in a runtime of its own, on a thread of its own, which then goes idle.
pub fn elsewhere<T, F>(future: impl FnOnce() -> F + Send + 'static) -> mpsc::Receiver<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (done, receiver) = mpsc::channel();
    thread::spawn(move || {
        let runtime = runtime();
        let _ = done.send(runtime.block_on(future())); // the test may have failed meanwhile
        loop {
            thread::park(); // the runtime is alive, and nobody drives it
        }
    });
    receiver
}

/// Asserts that all that a caller on another runtime can do works.
fn others_proceed(limiter: &RateLimiter, free: u64) {
    let others: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            elsewhere(move || async move {
                limiter.acquire(1).await?;
                assert!(limiter.try_acquire(1).await?);
                assert!(limiter.check(1).await?.is_granted());
                assert!(limiter.try_acquire_timeout(1, NEVER).await?);
                Ok::<_, Error>(())
            })
        })
        .collect();
    for other in others {
        other.recv_timeout(NEVER).expect("it is served").unwrap();
    }
    let limiter = limiter.clone();
    let left = elsewhere(move || async move { limiter.available_permits().await.unwrap() });
    assert_eq!(left.recv_timeout(NEVER).unwrap(), free - 12);
}

/// A runtime that is idle, and what a client of the store's own clock connected there.
fn connected<T>(fixture: &Fixture, connect: impl AsyncFnOnce(RedissonClient) -> T) -> (Runtime, T) {
    let first = runtime();
    let connected = first.block_on(async {
        // The default of 3 s is short on a busy machine. Permits that are lost in flight take as
        // long to be given back.
        let builder = RedissonClient::builder().response_timeout(Duration::from_secs(8));
        connect(fixture.connect(builder).await).await
    });
    (first, connected)
}

/// A limiter of this many permits an hour, of which one is taken.
fn limiter(fixture: &Fixture, rate: u64) -> (Runtime, RateLimiter) {
    let name = fixture.name();
    connected(fixture, async |client| {
        let limiter = client.rate_limiter(name);
        limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        limiter
    })
}

/// A limiter of one permit in 100 ms, which is taken.
fn used_up(fixture: &Fixture) -> (Runtime, RateLimiter) {
    let name = fixture.name();
    connected(fixture, async |client| {
        let limiter = client.rate_limiter(name);
        limiter.set_rate(Rate::overall(1, ms(100))).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        limiter
    })
}

fn policy(fixture: &Fixture) -> (Runtime, PolicyLimiter<TokenBucket>) {
    let key = fixture.name();
    connected(fixture, async |client| {
        let limiter = client
            .policy_limiter(TokenBucket::per_second(1).with_capacity(100))
            .unwrap();
        assert!(limiter.check(key, 1).await.unwrap().is_granted());
        limiter
    })
}

/// Lets a queue's own tasks on this runtime do what they can do at once.
async fn let_others_work() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

pub fn others_proceed_where_the_runtime_that_connected_is_idle(fixture: Fixture) {
    let (_idle, limiter) = limiter(&fixture, 100);
    others_proceed(&limiter, 99);
}

pub fn others_proceed_while_a_call_is_left_unpolled_on_an_idle_runtime(fixture: Fixture) {
    let (_connected, limiter) = limiter(&fixture, 100);
    let idle = runtime();
    let (acquire, plain) = (limiter.clone(), limiter.clone());
    let mut acquire = Box::pin(async move { acquire.acquire(1).await });
    let mut plain = Box::pin(async move { plain.try_acquire(1).await });
    idle.block_on(async {
        // In memory they are answered.
        assert_eq!(poll_once(&mut acquire).is_some(), fixture.is_in_memory());
        assert_eq!(poll_once(&mut plain).is_some(), fixture.is_in_memory());
    });
    let others: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            elsewhere(move || async move {
                limiter.acquire(1).await.unwrap();
                assert!(limiter.try_acquire(1).await.unwrap());
            })
        })
        .collect();
    for other in others {
        other.recv_timeout(NEVER).expect("it is served");
    }
}

pub fn what_is_dropped_on_an_idle_runtime_is_given_back_unless_it_was_granted(fixture: Fixture) {
    let (_connected, limiter) = limiter(&fixture, 100);
    let idle = runtime();
    let granted = idle.block_on(async {
        // This runtime is connected already.
        assert!(limiter.try_acquire(1).await.unwrap());
        let mut dropped = Box::pin(limiter.try_acquire(10));
        let plain = poll_once(&mut dropped).map_or(0, |answer| 10 * u64::from(answer.unwrap()));
        let mut dropped = Box::pin(limiter.acquire(10));
        let waited = poll_once(&mut dropped).map_or(0, |answer| {
            answer.unwrap();
            10
        });
        plain + waited
    });
    let expected = 98 - granted;
    let given_back = elsewhere(move || async move {
        // The call was executed, and is given back once no other attempt of it can arrive.
        while limiter.available_permits().await.unwrap() != expected {
            tokio::time::sleep(ms(10)).await;
        }
    });
    let given_back = given_back.recv_timeout(NEVER);
    given_back.expect("what was not granted is left");
}

pub fn a_policy_decides_while_another_call_on_its_target_is_left_unpolled(fixture: Fixture) {
    let (_connected, limiter) = policy(&fixture);
    let key = fixture.name().to_owned();
    let idle = runtime();
    let (parked, parked_key) = (limiter.clone(), key.clone());
    let mut parked = Box::pin(async move { parked.check(&parked_key, 1).await });
    idle.block_on(async { drop(poll_once(&mut parked)) });
    for _ in 0..3 {
        let (limiter, key) = (limiter.clone(), key.clone());
        let other = elsewhere(move || async move { limiter.check(&key, 1).await });
        let decision = other.recv_timeout(NEVER).expect("it is answered");
        assert!(decision.unwrap().is_granted());
    }
}

pub fn waiters_are_served_behind_one_that_is_left_unpolled_on_an_idle_runtime(fixture: Fixture) {
    let (idle, limiter) = used_up(&fixture);
    let mut parked = Box::pin(limiter.acquire(1));
    idle.block_on(async {
        assert!(poll_once(&mut parked).is_none());
        let_others_work().await;
    });
    let others: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            elsewhere(move || async move { limiter.acquire(1).await.unwrap() })
        })
        .collect();
    for other in others {
        other.recv_timeout(NEVER).expect("it is served");
    }
}

pub fn a_waiter_goes_on_where_another_runtime_polls_it(fixture: Fixture) {
    for is_shut_down in [false, true] {
        for timeout in [None, Some(NEVER)] {
            let (first, limiter) = used_up(&fixture);
            let waiter = limiter.clone();
            let mut waiting = Box::pin(async move {
                match timeout {
                    Some(timeout) => waiter.try_acquire_timeout(1, timeout).await,
                    None => waiter.acquire(1).await.map(|()| true),
                }
            });
            first.block_on(async {
                assert!(poll_once(&mut waiting).is_none());
                let_others_work().await;
            });
            let kept = (!is_shut_down).then_some(first);
            let served = elsewhere(move || waiting);
            let served = served.recv_timeout(NEVER).expect("it is served");
            assert!(served.unwrap());
            drop(kept);
        }
    }
}

pub fn a_timeout_passes_on_the_runtime_that_polls(fixture: Fixture) {
    for is_shut_down in [false, true] {
        let (first, limiter) = limiter(&fixture, 1);
        let waiter = limiter.clone();
        let mut waiting: Pending<'_, _> =
            Box::pin(async move { waiter.try_acquire_timeout(1, ms(50)).await });
        first.block_on(async {
            assert!(poll_once(&mut waiting).is_none());
        });
        let kept = (!is_shut_down).then_some(first);
        let answer = elsewhere(move || waiting);
        let answer = answer.recv_timeout(NEVER).expect("its timeout passes");
        assert!(!answer.unwrap());
        drop(kept);
    }
}

pub fn a_call_goes_on_when_another_runtime_polls_it(fixture: Fixture) {
    for is_shut_down in [false, true] {
        let (first, limiter) = limiter(&fixture, 100);
        let (plain, waiter, timed) = (limiter.clone(), limiter.clone(), limiter.clone());
        let calls: Vec<Pending<'_, Result<bool, Error>>> = vec![
            Box::pin(async move { plain.try_acquire(1).await }),
            Box::pin(async move { waiter.acquire(1).await.map(|()| true) }),
            Box::pin(async move { timed.try_acquire_timeout(1, NEVER).await }),
        ];
        let under_way = first.block_on(async {
            let mut under_way = Vec::new();
            for mut call in calls {
                match poll_once(&mut call) {
                    Some(answer) => assert!(answer.unwrap()), // in memory
                    None => under_way.push(call),
                }
            }
            under_way
        });
        assert_eq!(under_way.is_empty(), fixture.is_in_memory());
        let kept = (!is_shut_down).then_some(first);
        for call in under_way {
            let answer = elsewhere(move || call);
            assert!(answer.recv_timeout(NEVER).expect("it goes on").unwrap());
        }
        drop(kept);
    }
}

/// A policy's call that may have been charged is not made again.
pub fn a_policys_call_ends_when_another_runtime_polls_it(fixture: Fixture) {
    for is_shut_down in [false, true] {
        let first = runtime();
        let key = fixture.name().to_owned();
        let call = first.block_on(async {
            let builder = RedissonClient::builder().response_timeout(ms(500));
            let client = fixture.connect(builder.wait_for_server(NEVER)).await;
            let limiter = client
                .policy_limiter(TokenBucket::per_second(1).with_capacity(100))
                .unwrap();
            while limiter.check(&key, 1).await.is_err() {}
            let mut call = Box::pin(async move { limiter.check(&key, 1).await });
            match poll_once(&mut call) {
                Some(answer) => {
                    assert!(answer.unwrap().is_granted()); // in memory
                    None
                }
                None => Some(call),
            }
        });
        assert_eq!(call.is_none(), fixture.is_in_memory());
        let kept = (!is_shut_down).then_some(first);
        if let Some(call) = call {
            let answer = elsewhere(move || call);
            let answer = answer.recv_timeout(NEVER).expect("it ends");
            assert!(
                matches!(answer, Err(Error::Indeterminate { .. })),
                "{answer:?}"
            );
        }
        drop(kept);
    }
}

/// What was taken from the first runtime is not taken again.
pub fn a_debt_is_taken_once_when_another_runtime_polls_its_call(fixture: Fixture) {
    let (first, limiter) = limiter(&fixture, 100);
    let settling = first.block_on(async {
        let estimate = limiter.check(4).await.unwrap().into_grant().unwrap();
        let settling = limiter.clone();
        let mut settling = Box::pin(async move { settling.settle(estimate, 9).await });
        if let Some(answer) = poll_once(&mut settling) {
            answer.unwrap(); // in memory
            return None;
        }
        while limiter.available_permits().await.unwrap() > 90 {}
        Some(settling)
    });
    drop(first);
    assert_eq!(settling.is_none(), fixture.is_in_memory());
    if let Some(settling) = settling {
        let answer = elsewhere(move || settling);
        let answer = answer.recv_timeout(NEVER).expect("it ends");
        assert!(
            matches!(answer, Ok(()) | Err(Error::Indeterminate { .. })),
            "{answer:?}"
        );
    }
    let left = elsewhere(move || async move { limiter.available_permits().await.unwrap() });
    assert_eq!(left.recv_timeout(NEVER).unwrap(), 90);
}

pub fn outside_of_a_runtime_a_call_that_would_wait_is_an_error(fixture: Fixture) {
    let (_connected, limiter) = limiter(&fixture, 1);
    let calls: [Pending<'_, Result<bool, Error>>; 2] = [
        Box::pin(async { limiter.acquire(1).await.map(|()| true) }),
        Box::pin(limiter.try_acquire_timeout(1, SECOND)),
    ];
    for mut call in calls {
        let answer = poll_once(&mut call).expect("it does not wait");
        assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}");
    }
    let mut plain = Box::pin(limiter.try_acquire(1));
    let answer = poll_once(&mut plain).expect("it does not wait");
    match fixture.is_in_memory() {
        true => assert!(!answer.unwrap()),
        false => assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}"),
    }
}

pub fn outside_of_a_runtime_a_grant_is_settled_in_memory(fixture: Fixture) {
    let (first, limiter) = limiter(&fixture, 5);
    let estimate = first.block_on(limiter.check(1)).unwrap();
    let mut settling = Box::pin(limiter.settle(estimate.into_grant().unwrap(), 2));
    let answer = poll_once(&mut settling).expect("it does not wait");
    match fixture.is_in_memory() {
        true => answer.unwrap(),
        false => assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}"),
    }
    let left = first.block_on(limiter.available_permits()).unwrap();
    assert_eq!(left, if fixture.is_in_memory() { 2 } else { 3 });
}

pub fn a_call_that_began_on_a_runtime_is_an_error_when_it_is_polled_outside(fixture: Fixture) {
    let (_connected, limiter) = limiter(&fixture, 1);
    let first = runtime();
    let mut plain = Box::pin(limiter.try_acquire(1));
    let mut timed: Pending<'_, _> = Box::pin(limiter.try_acquire_timeout(1, SECOND));
    let plain_answer = first.block_on(async {
        assert!(poll_once(&mut timed).is_none());
        poll_once(&mut plain)
    });
    assert_eq!(plain_answer.is_some(), fixture.is_in_memory());
    drop(first);
    let mut calls = vec![timed];
    if !fixture.is_in_memory() {
        calls.push(plain);
    }
    for mut call in calls {
        let answer = poll_once(&mut call).expect("it does not wait");
        assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}");
    }
}

pub fn on_the_handle_of_a_runtime_that_has_shut_down_a_waiter_does_not_spin(fixture: Fixture) {
    let (first, limiter) = limiter(&fixture, 1);
    let handle = first.handle().clone();
    drop(first);
    let (done, receiver) = mpsc::channel();
    let polling = thread::spawn(move || {
        let _entered = handle.enter();
        let mut waiting = Box::pin(limiter.acquire(1));
        let _ = done.send(poll_once(&mut waiting)); // the test may have failed meanwhile
    });
    match receiver.recv_timeout(NEVER) {
        Ok(answer) => assert!(matches!(answer, Some(Err(Error::NoRuntime))), "{answer:?}"),
        // The timer of a call to a server panics, as tokio documents it.
        Err(error) => {
            assert_eq!(error, mpsc::RecvTimeoutError::Disconnected);
            assert!(!fixture.is_in_memory() && polling.join().is_err());
        }
    }
}
