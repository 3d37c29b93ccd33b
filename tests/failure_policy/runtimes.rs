//! Several runtimes share a client: each notices the outage by itself, and none waits for another
//! one.

use redisson_rate_limiter::FailurePolicy;
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{client, kill, limiter, one_of, policies, until_by_policy, until_by_redis};
use crate::support::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_runtime_that_is_idle_holds_up_no_other_one() {
    for policy in policies() {
        let (first, second) = (runtime(), runtime());
        let server = Server::start();
        let client = first.block_on(client(&server.url(), policy));
        let limiter = first.block_on(limiter(&client, 1_000));
        let _ = second.block_on(until_by_redis(&limiter));
        server.signal("STOP");
        // The first runtime makes the probe, and stands still in the middle of it.
        let _ = first.block_on(until_by_policy(&limiter));
        let _ = second.block_on(until_by_policy(&limiter));
        server.signal("CONT");
        let _ = second.block_on(until_by_redis(&limiter));
        let _ = first.block_on(until_by_redis(&limiter));
    }
}

#[test]
fn the_policy_decides_the_first_call_of_a_runtime_during_an_outage() {
    let (first, second) = (runtime(), runtime());
    let server = Server::start();
    let client = first.block_on(client(&server.url(), FailurePolicy::Allow));
    let limiter = first.block_on(limiter(&client, 1_000));
    kill(server);
    let decision = second.block_on(limiter.check(1)).unwrap();
    assert!(decision.is_granted() && decision.is_by_failure_policy());
}

#[test]
fn a_caller_that_asks_again_at_once_lets_its_runtime_connect() {
    for policy in policies() {
        let runtime = runtime();
        let server = Server::start();
        let client = runtime.block_on(client(&server.url(), policy));
        let limiter = runtime.block_on(limiter(&client, 1_000));
        server.signal("STOP");
        let _ = runtime.block_on(until_by_policy(&limiter));
        server.signal("CONT");
        let asking = async { while limiter.check(1).await.unwrap().is_by_failure_policy() {} };
        runtime.block_on(asking);
    }
}

#[test]
fn a_waiter_moves_between_runtimes_while_redis_is_away() {
    for policy in [FailurePolicy::Deny, one_of(1_000_000)] {
        let (first, second) = (runtime(), runtime());
        let server = Server::start();
        let client = first.block_on(client(&server.url(), policy));
        let limiter = first.block_on(limiter(&client, 1_000));
        server.signal("STOP");
        let _ = first.block_on(until_by_policy(&limiter));
        let mut waiting = Box::pin(limiter.acquire(1));
        let short = std::time::Duration::from_millis(50);
        first.block_on(async {
            assert!(tokio::time::timeout(short, &mut waiting).await.is_err());
        });
        drop(first);
        server.signal("CONT");
        second.block_on(waiting).unwrap();
    }
}
