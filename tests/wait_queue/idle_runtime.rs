//! Two requests share a call on an idle runtime, and one of them leaves: what it was granted is
//! given back.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, RateLimiter, RedissonClient};
use tokio::runtime::{Builder, Runtime};

use crate::by_hand::{Pending, poll_once};
use crate::in_memory::{HOUR, SECOND, ms};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

/// Far more than anything here may take.
const NEVER: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a future in a runtime of its own, on a thread of its own.
fn elsewhere<F>(future: impl FnOnce() -> F + Send + 'static) -> mpsc::Receiver<()>
where
    F: Future<Output = ()>,
{
    let (done, receiver) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(future());
        let _ = done.send(()); // the test may have failed meanwhile
    });
    receiver
}

/// A runtime that is left idle in the middle of a call for two requests, one of which is then
/// dropped.
struct LeftInFlight {
    idle: Runtime,
    limiter: RateLimiter,
    stays: Pending<'static, Result<bool, Error>>,
    _proxies: Runtime,
    _proxy: Proxy,
}

/// `ask` makes a request for this many permits; the first one's call is alone, and the next two
/// share one.
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
    fn wait_for_available(&self, permits: u64) {
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
fn a_waiters_grant_is_given_back_though_another_on_an_idle_runtime_waits() {
    let server = Server::start();
    let left = left_in_flight(&server, |limiter, permits| {
        Box::pin(async move { limiter.acquire(permits).await.map(|()| true) })
    });
    left.wait_for_available(98);
    // The other one is served when its runtime is polled again.
    assert!(left.idle.block_on(left.stays).unwrap());
    let limiter = left.limiter;
    let available = left
        .idle
        .block_on(async move { limiter.available_permits().await });
    assert_eq!(available.unwrap(), 78);
}

#[test]
fn grants_of_waiters_that_all_left_an_idle_runtimes_call_are_given_back() {
    let server = Server::start();
    let mut left = left_in_flight(&server, |limiter, permits| {
        Box::pin(async move { limiter.acquire(permits).await.map(|()| true) })
    });
    left.stays = Box::pin(async { Ok(false) });
    left.wait_for_available(98);
}

#[test]
fn a_plain_requests_grant_is_given_back_though_an_idle_runtime_shares_it() {
    let server = Server::start();
    let left = left_in_flight(&server, |limiter, permits| {
        Box::pin(async move { limiter.try_acquire(permits).await })
    });
    left.wait_for_available(98);
    let error = left.idle.block_on(left.stays).unwrap_err();
    assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
}
