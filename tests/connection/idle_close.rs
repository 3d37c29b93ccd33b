//! A connection that the server closes between two calls fails no call, not even one that cannot be
//! repeated.

use redisson_rate_limiter::{FixedWindow, PolicyLimiter, Rate, RateLimiter, RedissonClient};
use tokio::runtime::{Builder, Runtime};

use crate::load::{HOUR, ample, patient_client, taken};
use crate::support::Server;
#[cfg(feature = "tls")]
use crate::tls_server::{TlsServer, connect};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Closes all connections but this one.
async fn close_others(server: &Server) {
    let mut raw = server.connection().await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal");
    let killed: i64 = kill.query_async(&mut raw).await.unwrap();
    assert!(killed > 0);
}

/// What the calls are made on.
struct Called {
    limiter: RateLimiter,
    other: RateLimiter,
    policy: PolicyLimiter<FixedWindow>,
}

impl Called {
    async fn of(client: &RedissonClient) -> Self {
        Self {
            limiter: ample(client, "limiter").await,
            other: client.rate_limiter("other"),
            policy: client
                .policy_limiter(FixedWindow::new(1_000_000, HOUR))
                .unwrap(),
        }
    }

    /// One of five kinds of calls.
    async fn call(&self, kind: usize) {
        match kind {
            0 => assert!(self.limiter.try_acquire(1).await.unwrap()),
            1 => self.limiter.release(1).await.unwrap(),
            2 => assert!(self.policy.check("key", 1).await.unwrap().is_granted()),
            3 => self.other.set_rate(Rate::overall(1, HOUR)).await.unwrap(),
            _ => assert!(self.limiter.exists().await.unwrap()),
        }
    }

    /// Asserts that this many calls of each kind were executed once each.
    async fn were_executed_once(&self, server: &Server, calls: u64) {
        // What was acquired was released.
        let mut raw = server.connection().await;
        assert_eq!(taken(&mut raw, self.limiter.name()).await, 1);
        let last = self.policy.check("key", 1).await.unwrap();
        assert_eq!(last.remaining(), 1_000_000 - calls - 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_first_call_after_a_close_succeeds() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let called = Called::of(&client).await;
    for kind in (0..5).cycle().take(50) {
        close_others(&server).await;
        called.call(kind).await;
    }
    called.were_executed_once(&server, 10).await;
}

#[test]
fn each_first_call_of_a_runtime_that_was_not_polled_meanwhile_succeeds() {
    let server = Server::start();
    each_first_call_succeeds(&server, patient_client(&server.url()));
}

/// With TLS the end of the session is data that must be read.
#[cfg(feature = "tls")]
#[test]
fn each_first_call_by_tls_after_a_runtime_was_not_polled_succeeds() {
    let server = TlsServer::start("127.0.0.1", "no");
    let connecting = async { connect(&server.url(), server.trust()).await.unwrap() };
    each_first_call_succeeds(&server.server, connecting);
}

fn each_first_call_succeeds(server: &Server, connecting: impl Future<Output = RedissonClient>) {
    let (own, other) = (runtime(), runtime());
    let client = own.block_on(connecting);
    let called = own.block_on(Called::of(&client));
    for kind in (0..5).cycle().take(50) {
        std::thread::sleep(std::time::Duration::from_millis(6)); // else it is not checked
        other.block_on(close_others(server));
        own.block_on(called.call(kind));
    }
    own.block_on(called.were_executed_once(server, 10));
}
