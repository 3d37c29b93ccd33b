//! Each runtime has its own connection, so that none waits for another one to be polled.

use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use redisson_rate_limiter::{Error, RedissonClient};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::by_hand::{Pending, poll_once};
use crate::load::{ample, patient_client, taken};
use crate::support::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn taken_on(runtime: &Runtime, server: &Server, name: &str) -> u64 {
    runtime.block_on(async { taken(&mut server.connection().await, name).await })
}

#[test]
fn threads_with_a_runtime_each_go_on_while_the_one_that_connected_idles() {
    let server = Server::start();
    let idle = runtime();
    let client = idle.block_on(patient_client(&server.url()));
    let limiter = idle.block_on(ample(&client, "limiter"));
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (limiter, client, start) = (limiter.clone(), client.clone(), Arc::clone(&start));
            thread::spawn(move || {
                let runtime = runtime();
                start.wait();
                for _ in 0..50 {
                    assert!(runtime.block_on(limiter.try_acquire(1)).unwrap());
                }
                // So many at once that they share calls.
                runtime.block_on(async {
                    let mut callers = JoinSet::new();
                    for name in 0..64 {
                        let client = client.clone();
                        callers.spawn(async move {
                            let limiter = ample(&client, &format!("{thread}:{name}")).await;
                            limiter.try_acquire(1).await.unwrap()
                        });
                    }
                    assert!(callers.join_all().await.into_iter().all(|granted| granted));
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(idle.block_on(limiter.try_acquire(1)).unwrap());
    assert_eq!(taken_on(&idle, &server, "limiter"), 1 + 4 * 50 + 1);
    // One permit of each limiter was taken when it was created, and one later.
    for thread in 0..4 {
        for name in 0..64 {
            let name = format!("{thread}:{name}");
            assert_eq!(taken_on(&idle, &server, &name), 2);
        }
    }
}

#[test]
fn a_runtime_that_stops_in_the_middle_of_a_call_holds_up_no_other() {
    let server = Server::start();
    let (stopped, other) = (runtime(), runtime());
    let client = stopped.block_on(patient_client(&server.url()));
    let limiter = stopped.block_on(ample(&client, "limiter"));
    let apart = stopped.block_on(ample(&client, "another"));
    let mut left_alone: Vec<_> = (0..32)
        .map(|_| Box::pin(limiter.available_permits()))
        .collect();
    stopped.block_on(async {
        for call in &mut left_alone {
            assert!(poll_once(call).is_none());
        }
    });
    for _ in 0..20 {
        assert!(other.block_on(limiter.try_acquire(1)).unwrap());
        assert!(other.block_on(apart.try_acquire(1)).unwrap());
    }
    for name in ["limiter", "another"] {
        assert_eq!(taken_on(&other, &server, name), 1 + 20);
    }
}

#[test]
fn the_client_outlives_the_runtime_that_connected() {
    let server = Server::start();
    let first = runtime();
    let client = first.block_on(patient_client(&server.url()));
    let limiter = first.block_on(ample(&client, "limiter"));
    drop(first);
    for _ in 0..3 {
        assert!(runtime().block_on(limiter.try_acquire(1)).unwrap());
    }
    assert_eq!(taken_on(&runtime(), &server, "limiter"), 1 + 3);
}

#[test]
fn a_call_outside_a_runtime_is_an_error() {
    let server = Server::start();
    let runtime = runtime();
    let client = runtime.block_on(patient_client(&server.url()));
    let limiter = runtime.block_on(ample(&client, "limiter"));
    let mut call = Box::pin(limiter.available_permits());
    assert!(matches!(poll_once(&mut call), Some(Err(Error::NoRuntime))));
    let mut call = Box::pin(limiter.try_acquire(1));
    assert!(matches!(poll_once(&mut call), Some(Err(Error::NoRuntime))));
    let mut call: Pending<'_, _> = Box::pin(RedissonClient::connect("redis://127.0.0.1"));
    assert!(matches!(poll_once(&mut call), Some(Err(Error::NoRuntime))));
}

/// The call wakes the task that sends it. This task waits for the blocked thread, and no other
/// thread takes it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_blocks_in_the_middle_of_a_call_holds_up_no_other() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let (blocks, is_blocked) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let blocked = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            let mut call = Box::pin(limiter.exists());
            assert!(poll_once(&mut call).is_none());
            blocks.send(()).unwrap();
            may_go_on.recv().unwrap();
            call.await
        }
    });
    is_blocked.await.unwrap();
    assert!(limiter.exists().await.unwrap());
    go_on.send(()).unwrap();
    assert!(blocked.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_with_their_client() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    drop((client, limiter));
    loop {
        let mut list = redis::cmd("CLIENT");
        let list: String = list.arg("LIST").query_async(&mut raw).await.unwrap();
        if list.lines().count() == 1 {
            break;
        }
        tokio::time::sleep(crate::load::ms(5)).await;
    }
}
