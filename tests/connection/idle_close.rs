//! A connection that the server closes between two calls fails no call, not even one that cannot be repeated.

use redisson_rate_limiter::{FixedWindow, Limiter, Rate, RateLimiter};
use tokio::runtime::{Builder, Runtime};

use crate::load::{HOUR, ample, patient_client};
use crate::support::Server;

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

async fn every_kind_of_call(limiter: &RateLimiter, policy: &impl Limiter, call: usize) {
    match call {
        0 => assert!(limiter.try_acquire(1).await.unwrap()),
        1 => limiter.release(1).await.unwrap(),
        2 => assert!(policy.check("key", 1).await.unwrap().is_granted()),
        3 => limiter
            .set_rate(Rate::overall(1_000_000_000, HOUR))
            .await
            .unwrap(),
        _ => assert!(limiter.exists().await.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_first_call_after_a_close_succeeds() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let policy = client.limiter(FixedWindow::new(1_000_000, HOUR)).unwrap();
    for call in (0..5).cycle().take(50) {
        close_others(&server).await;
        every_kind_of_call(&limiter, &policy, call).await;
    }
}

#[test]
fn each_first_call_of_a_runtime_that_was_not_polled_meanwhile_succeeds() {
    let server = Server::start();
    let (own, other) = (runtime(), runtime());
    let client = own.block_on(patient_client(&server.url()));
    let limiter = own.block_on(ample(&client, "limiter"));
    let policy = client.limiter(FixedWindow::new(1_000_000, HOUR)).unwrap();
    for call in (0..5).cycle().take(50) {
        std::thread::sleep(std::time::Duration::from_millis(6)); // what was just used is not looked at
        other.block_on(close_others(&server));
        own.block_on(every_kind_of_call(&limiter, &policy, call));
    }
}
