//! Threads with a current-thread runtime each share a client, and do not depend on each other's runtimes.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redisson_rate_limiter::{
    Error, Limiter, RRateLimiter, Rate, RateLimiter, RedissonClient, TokenBucket,
};
use tokio::runtime::{Builder, Runtime};

use crate::by_hand::{Pending, poll_once};
use crate::in_memory::{HOUR, SECOND, let_others_work, ms};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

/// Far more than anything here may take.
const NEVER: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a future in a runtime of its own, on a thread of its own, which then goes idle.
fn elsewhere<T, F>(future: impl FnOnce() -> F + Send + 'static) -> mpsc::Receiver<T>
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

/// All that a caller on another runtime can do works.
fn others_proceed(limiter: &RateLimiter, free: i64) {
    let others: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            elsewhere(move || async move {
                limiter.acquire(1).await?;
                assert!(limiter.try_acquire(1).await?);
                assert!(limiter.check(1).await?.is_granted());
                assert!(limiter.try_acquire_timeout(1, SECOND).await?);
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

/// A limiter of so many permits on a server, and a client that was connected on a runtime which is idle since.
fn on_a_server(server: &Server, rate: u64) -> RateLimiter {
    let url = server.url();
    let connected = elsewhere(move || async move {
        let client = RedissonClient::connect(&url).await.unwrap();
        let limiter = client.rate_limiter("limiter");
        limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        limiter
    });
    connected.recv_timeout(NEVER).expect("it connects")
}

#[test]
fn others_proceed_where_the_runtime_that_connected_is_idle() {
    let server = Server::start();
    let limiter = on_a_server(&server, 100);
    others_proceed(&limiter, 99);
}

#[test]
fn others_proceed_while_a_call_is_left_unpolled_on_an_idle_runtime() {
    let server = Server::start();
    let limiter = on_a_server(&server, 100);
    let idle = runtime();
    let (acquire, plain) = (limiter.clone(), limiter.clone());
    let mut acquire: Pending<'_, _> = Box::pin(async move { acquire.acquire(1).await });
    let mut plain: Pending<'_, _> = Box::pin(async move { plain.try_acquire(1).await });
    idle.block_on(async {
        assert!(poll_once(&mut acquire).is_none());
        assert!(poll_once(&mut plain).is_none());
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

#[test]
fn what_is_dropped_in_flight_on_an_idle_runtime_is_given_back() {
    let server = Server::start();
    let limiter = on_a_server(&server, 100);
    let idle = runtime();
    idle.block_on(async {
        // The connection of this runtime is there before.
        assert!(limiter.try_acquire(1).await.unwrap());
        let mut dropped: Pending<'_, _> = limiter.try_acquire(10);
        assert!(poll_once(&mut dropped).is_none());
        let mut dropped: Pending<'_, _> = limiter.acquire(10);
        assert!(poll_once(&mut dropped).is_none());
    });
    let given_back = elsewhere(move || async move {
        // What was sent has been executed, and is taken back once it is sure that it is all.
        while limiter.available_permits().await.unwrap() != 98 {
            tokio::time::sleep(ms(10)).await;
        }
    });
    given_back.recv_timeout(NEVER).expect("98 permits are left");
}

/// A runtime that is left idle in the middle of a call for two, one of which is dropped then.
struct LeftInFlight {
    idle: Runtime,
    limiter: RateLimiter,
    stays: Pending<'static, Result<bool, Error>>,
    _proxies: Runtime,
    _proxy: Proxy,
}

/// `ask` makes a request for so many permits; the first one's call is alone, and the next two share one.
fn left_in_flight(
    server: &Server,
    ask: fn(RateLimiter, u32) -> Pending<'static, Result<bool, Error>>,
) -> LeftInFlight {
    let proxies = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut proxy = proxies.block_on(Proxy::to(server.port()));
    let idle = runtime();
    let (limiter, call, stays) = idle.block_on(async {
        let builder = RedissonClient::builder().response_timeout(3 * SECOND);
        let client = builder.connect(&proxy.url()).await.unwrap();
        let limiter = client.rate_limiter("limiter");
        limiter.set_rate(Rate::overall(100, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        proxy.next("EVALSHA", Fate::Held);
        proxy.next("EVALSHA", Fate::Held);
        let mut alone = ask(limiter.clone(), 1);
        assert!(poll_once(&mut alone).is_none());
        let call = proxy.held().await;
        let mut leaves = ask(limiter.clone(), 10);
        let mut stays = ask(limiter.clone(), 20);
        assert!(poll_once(&mut leaves).is_none());
        assert!(poll_once(&mut stays).is_none());
        call.let_through().await;
        assert!(alone.await.unwrap());
        let call = proxy.held().await;
        drop(leaves);
        (limiter, call, stays)
    });
    proxies.block_on(call.let_through()); // the server executes it, and nobody reads the answer
    LeftInFlight {
        idle,
        limiter,
        stays,
        _proxies: proxies,
        _proxy: proxy,
    }
}

impl LeftInFlight {
    fn wait_for_available(&self, permits: i64) {
        let limiter = self.limiter.clone();
        let given_back = elsewhere(move || async move {
            while limiter.available_permits().await.unwrap() != permits {
                tokio::time::sleep(ms(10)).await;
            }
        });
        given_back.recv_timeout(NEVER).expect("it is given back");
    }
}

#[test]
fn what_a_waiter_was_granted_that_left_is_given_back_though_another_one_waits_for_the_same_call_on_an_idle_runtime()
 {
    let server = Server::start();
    let left = left_in_flight(&server, |limiter, permits| {
        Box::pin(async move { limiter.acquire(permits).await.map(|()| true) })
    });
    left.wait_for_available(98);
    // The other one has its turn when its runtime goes on.
    assert!(left.idle.block_on(left.stays).unwrap());
    let limiter = left.limiter;
    let available = left
        .idle
        .block_on(async move { limiter.available_permits().await });
    assert_eq!(available.unwrap(), 78);
}

#[test]
fn what_waiters_were_granted_that_have_all_left_a_call_on_an_idle_runtime_is_given_back() {
    let server = Server::start();
    let mut left = left_in_flight(&server, |limiter, permits| {
        Box::pin(async move { limiter.acquire(permits).await.map(|()| true) })
    });
    left.stays = Box::pin(async { Ok(false) });
    left.wait_for_available(98);
}

#[test]
fn what_a_plain_request_was_granted_that_left_is_given_back_though_another_one_shares_its_call_on_an_idle_runtime()
 {
    let server = Server::start();
    let left = left_in_flight(&server, |limiter, permits| {
        Box::pin(async move { limiter.try_acquire(permits).await })
    });
    left.wait_for_available(98);
    let error = left.idle.block_on(left.stays).unwrap_err();
    assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
}

#[test]
fn a_policy_decides_while_a_call_on_its_target_is_left_unpolled_on_an_idle_runtime() {
    let server = Server::start();
    let url = server.url();
    let connected = elsewhere(move || async move {
        let client = RedissonClient::connect(&url).await.unwrap();
        let limiter = client.limiter(TokenBucket::new(100, 1)).unwrap();
        assert!(limiter.decide("key", 1).await.unwrap().is_granted());
        limiter
    });
    let limiter = connected.recv_timeout(NEVER).expect("it connects");
    let idle = runtime();
    let parked = limiter.clone();
    let mut parked: Pending<'_, _> = Box::pin(async move { parked.decide("key", 1).await });
    idle.block_on(async { assert!(poll_once(&mut parked).is_none()) });
    for _ in 0..3 {
        let limiter = limiter.clone();
        let other = elsewhere(move || async move { limiter.decide("key", 1).await });
        let decision = other.recv_timeout(NEVER).expect("it is answered");
        assert!(decision.unwrap().is_granted());
    }
}

/// A limiter in memory of one permit in 100 ms, which is taken.
fn used_up(runtime: &Runtime) -> RateLimiter {
    let limiter = RedissonClient::in_memory().rate_limiter("limiter");
    runtime.block_on(async {
        limiter.set_rate(Rate::overall(1, ms(100))).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    });
    limiter
}

#[test]
fn waiters_are_served_behind_one_that_is_left_unpolled_on_an_idle_runtime() {
    let idle = runtime();
    let limiter = used_up(&idle);
    let mut parked = crate::in_memory::wait(&limiter, 1);
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

#[test]
fn a_waiter_goes_on_when_another_runtime_polls_it_whether_its_first_one_is_idle_or_shut_down() {
    for is_shut_down in [false, true] {
        for timeout in [None, Some(NEVER)] {
            let first = runtime();
            let limiter = used_up(&first);
            let waiter = limiter.clone();
            let mut waiting: Pending<'_, _> = Box::pin(async move {
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

#[test]
fn a_timeout_passes_on_the_runtime_that_polls() {
    for is_shut_down in [false, true] {
        let first = runtime();
        let limiter = RedissonClient::in_memory().rate_limiter("limiter");
        let waiter = limiter.clone();
        let mut waiting: Pending<'_, _> =
            Box::pin(async move { waiter.try_acquire_timeout(1, ms(50)).await });
        first.block_on(async {
            limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            assert!(poll_once(&mut waiting).is_none());
        });
        let kept = (!is_shut_down).then_some(first);
        let answer = elsewhere(move || waiting);
        let answer = answer.recv_timeout(NEVER).expect("its timeout passes");
        assert!(!answer.unwrap());
        drop(kept);
    }
}

#[test]
fn a_call_to_a_server_goes_on_when_another_runtime_polls_it() {
    let server = Server::start();
    for is_shut_down in [false, true] {
        let limiter = on_a_server(&server, 100);
        let first = runtime();
        let (plain, waiter, timed) = (limiter.clone(), limiter.clone(), limiter.clone());
        let mut calls: Vec<Pending<'_, Result<bool, Error>>> = vec![
            Box::pin(async move { plain.try_acquire(1).await }),
            Box::pin(async move { waiter.acquire(1).await.map(|()| true) }),
            Box::pin(async move { timed.try_acquire_timeout(1, NEVER).await }),
        ];
        first.block_on(async {
            for call in &mut calls {
                assert!(poll_once(call).is_none());
            }
        });
        let kept = (!is_shut_down).then_some(first);
        for call in calls {
            let answer = elsewhere(move || call);
            assert!(answer.recv_timeout(NEVER).expect("it goes on").unwrap());
        }
        drop(kept);
    }
}

#[test]
fn a_policys_call_to_a_server_ends_when_another_runtime_polls_it() {
    let server = Server::start();
    for is_shut_down in [false, true] {
        let first = runtime();
        let polled = first.block_on(async {
            let builder = RedissonClient::builder().response_timeout(ms(500));
            let client = builder.connect(&server.url()).await.unwrap();
            let limiter = client.limiter(TokenBucket::new(100, 1)).unwrap();
            assert!(limiter.decide("key", 1).await.unwrap().is_granted());
            let mut call: Pending<'_, _> = Box::pin(async move { limiter.decide("key", 1).await });
            assert!(poll_once(&mut call).is_none());
            Some(call)
        });
        let kept = (!is_shut_down).then_some(first);
        let call = polled.expect("it was polled");
        let answer = elsewhere(move || call);
        let answer = answer.recv_timeout(NEVER).expect("it ends");
        // It may have been charged, so it is not made again.
        assert!(
            matches!(answer, Err(Error::Indeterminate { .. })),
            "{answer:?}"
        );
        drop(kept);
    }
}

#[test]
fn outside_of_a_runtime_a_call_is_an_error() {
    let server = Server::start();
    let connected = runtime();
    let limiter = on_a_server(&server, 1);
    let in_memory = used_up(&connected);
    for limiter in [&limiter, &in_memory] {
        let calls: [Pending<'_, Result<bool, Error>>; 2] = [
            Box::pin(async { limiter.acquire(1).await.map(|()| true) }),
            limiter.try_acquire_timeout(1, SECOND),
        ];
        for mut call in calls {
            let answer = poll_once(&mut call).expect("it does not wait");
            assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}");
        }
    }
    let mut plain: Pending<'_, _> = limiter.try_acquire(1);
    let answer = poll_once(&mut plain).expect("it does not wait");
    assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}");
}

#[test]
fn a_call_that_began_on_a_runtime_is_an_error_when_it_is_polled_outside() {
    let server = Server::start();
    let limiter = on_a_server(&server, 100);
    let first = runtime();
    let mut plain: Pending<'_, _> = limiter.try_acquire(1);
    let mut timed: Pending<'_, _> = limiter.try_acquire_timeout(1, SECOND);
    first.block_on(async {
        assert!(poll_once(&mut plain).is_none());
        assert!(poll_once(&mut timed).is_none());
    });
    drop(first);
    for call in [&mut plain, &mut timed] {
        let answer = poll_once(call).expect("it does not wait");
        assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}");
    }
}

#[test]
fn on_the_handle_of_a_runtime_that_has_shut_down_a_waiter_ends_with_an_error() {
    let first = runtime();
    let limiter = used_up(&first);
    let handle = first.handle().clone();
    drop(first);
    let (done, receiver) = mpsc::channel();
    thread::spawn(move || {
        let _entered = handle.enter();
        let mut waiting: Pending<'_, _> = limiter.acquire(1);
        let _ = done.send(poll_once(&mut waiting)); // the test may have failed meanwhile
    });
    let answer = receiver.recv_timeout(NEVER).expect("it does not spin");
    assert!(matches!(answer, Some(Err(Error::NoRuntime))), "{answer:?}");
}
