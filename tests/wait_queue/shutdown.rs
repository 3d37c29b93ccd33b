//! A runtime that shuts down while it drives the queue: the waiters of other runtimes go on.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};
use tokio::runtime::{Builder, Runtime};

use crate::by_hand::poll_once;
use crate::in_memory::{ms, wait};

/// Far more than anything here may take.
const NEVER: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A limiter with one permit in 100 ms, which is taken.
fn used_up(runtime: &Runtime) -> RateLimiter {
    let limiter = RedissonClient::in_memory().rate_limiter("limiter");
    runtime.block_on(async {
        limiter.set_rate(Rate::overall(1, ms(100))).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    });
    limiter
}

/// Acquires in a runtime of its own, on a thread of its own, and tells when it is done.
fn acquire_elsewhere(limiter: &RateLimiter) -> mpsc::Receiver<()> {
    let (done, receiver) = mpsc::channel();
    let limiter = limiter.clone();
    thread::spawn(move || {
        runtime().block_on(limiter.acquire(1)).unwrap();
        let _ = done.send(()); // who waited for it may have given up
    });
    receiver
}

#[test]
fn a_runtime_that_ends_while_its_driver_sleeps_hangs_no_other_runtime() {
    let first = runtime();
    let limiter = used_up(&first);
    let mut waiting = wait(&limiter, 1);
    first.block_on(async {
        assert!(poll_once(&mut waiting).is_none());
        crate::in_memory::let_others_work().await; // its task sleeps now
    });
    let done = acquire_elsewhere(&limiter);
    drop(first);
    done.recv_timeout(NEVER).expect("it is served");
}

#[test]
fn a_runtime_that_ends_before_its_task_ran_hangs_no_other_runtime() {
    let first = runtime();
    let limiter = used_up(&first);
    let mut waiting = wait(&limiter, 1);
    first.block_on(async { assert!(poll_once(&mut waiting).is_none()) });
    drop(first);
    let done = acquire_elsewhere(&limiter);
    done.recv_timeout(NEVER).expect("it is served");
}

#[test]
fn a_plain_request_works_after_the_runtime_of_a_waiter_has_ended() {
    let first = runtime();
    let limiter = used_up(&first);
    let mut waiting = wait(&limiter, 1);
    first.block_on(async { assert!(poll_once(&mut waiting).is_none()) });
    drop((first, waiting));
    let (done, receiver) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(limiter.try_acquire(1)).unwrap();
        let _ = done.send(());
    });
    receiver.recv_timeout(NEVER).expect("it is answered");
}

#[test]
fn waiters_of_the_runtime_that_goes_on_are_served_in_turn() {
    let first = runtime();
    let limiter = used_up(&first);
    let mut waiting = wait(&limiter, 1);
    first.block_on(async {
        assert!(poll_once(&mut waiting).is_none());
        crate::in_memory::let_others_work().await;
    });
    let waiters: Vec<_> = (0..3).map(|_| acquire_elsewhere(&limiter)).collect();
    drop((first, waiting));
    for waiter in waiters {
        waiter.recv_timeout(NEVER).expect("it is served");
    }
}
