//! A request takes at most the response timeout, even if other calls are in flight or nothing comes
//! back.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{Error, FixedWindow, Rate, RedissonClient, Result};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::by_hand::poll_once;
use crate::in_memory::{HOUR, SECOND, ms};
use crate::silent::Silent;
use crate::support::Server;

const TIMEOUT: Duration = SECOND;

fn client(silent: &Silent) -> RedissonClient {
    let builder = RedissonClient::builder().response_timeout(TIMEOUT);
    builder.connection(silent.clone()).unwrap()
}

/// A client that knows the server's time.
fn silent_client() -> RedissonClient {
    client(&Silent::but_for_the_time(ms(0)))
}

/// Makes requests, each a number of ms after the first, and asserts that each takes exactly its
/// response timeout and may have been executed.
async fn assert_each_has_its_own_deadline<F>(request: impl Fn() -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut requests = JoinSet::new();
    for after in [0, 0, 0, 100, 250, 250, 500, 999, 1_000, 1_001, 1_500, 2_700] {
        let request = request();
        requests.spawn(async move {
            sleep(ms(after)).await;
            let start = Instant::now();
            (after, request.await, start.elapsed())
        });
    }
    while let Some(request) = requests.join_next().await {
        let (after, result, took) = request.unwrap();
        assert_eq!(took, TIMEOUT, "after {after} ms: {result:?}");
        let is_indeterminate = matches!(result, Err(Error::Indeterminate { .. }));
        assert!(is_indeterminate, "after {after} ms: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_on_a_limiter_whose_calls_stand_still_has_its_own_deadline() {
    let limiter = silent_client().rate_limiter("limiter");
    assert_each_has_its_own_deadline(|| {
        let limiter = limiter.clone();
        async move { limiter.try_acquire(1).await.map(drop) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_request_on_a_target_whose_calls_stand_still_has_its_own_deadline() {
    let client = silent_client();
    let policy = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let policy = Arc::new(policy);
    assert_each_has_its_own_deadline(|| {
        let policy = Arc::clone(&policy);
        async move { policy.check("key", 1).await.map(drop) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_no_call_carried_in_time_were_not_sent() {
    let limiter = silent_client().rate_limiter("limiter");
    let mut requests = Vec::new();
    for _ in 0..5 {
        let limiter = limiter.clone();
        // A call contains one such request. Half a second after the second one, which is not
        // answered, the third is made.
        requests.push(tokio::spawn(async move {
            let start = Instant::now();
            let result = limiter.try_acquire(1 << 31).await;
            (result, start.elapsed())
        }));
        tokio::task::yield_now().await; // it is made before the next one
    }
    for (place, request) in requests.into_iter().enumerate() {
        let (result, took) = request.await.unwrap();
        assert_eq!(took, TIMEOUT, "{place}: {result:?}");
        let is_right = match place {
            0..=2 => matches!(result, Err(Error::Indeterminate { .. })),
            _ => matches!(result, Err(Error::StoreUnavailable { .. })),
        };
        assert!(is_right, "{place}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_first_call_takes_one_response_timeout_with_reading_the_time() {
    // After 600 ms it knows that no answer would come in what is left.
    for (tells_after, takes, is_sent) in [
        (0, TIMEOUT, true),
        (450, TIMEOUT, true),
        (600, ms(600), false),
        (1_100, TIMEOUT, false),
    ] {
        let silent = Silent::but_for_the_time(ms(tells_after));
        let limiter = client(&silent).rate_limiter("limiter");
        let start = Instant::now();
        let result = limiter.try_acquire(1).await;
        assert_eq!(start.elapsed(), takes, "{tells_after}: {result:?}");
        assert_eq!(silent.scripts() > 0, is_sent);
        let is_right = match is_sent {
            true => matches!(result, Err(Error::Indeterminate { .. })),
            false => matches!(result, Err(Error::StoreUnavailable { .. })),
        };
        assert!(is_right, "{tells_after}: {result:?}");
    }
}

#[tokio::test]
async fn the_first_call_to_a_stopped_server_takes_at_most_one_response_timeout() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(3 * TIMEOUT);
    let builder = builder.wait_for_server(60 * SECOND);
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter("limiter");
    server.signal("STOP");
    tokio::time::pause(); // nothing arrives any more
    let start = Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let limiter = limiter.clone();
        requests.spawn(async move { limiter.try_acquire(1).await });
    }
    for result in requests.join_all().await {
        result.unwrap_err();
    }
    // Tokio's timers may be late by a millisecond.
    assert!(
        start.elapsed() <= 3 * TIMEOUT + ms(1),
        "{:?}",
        start.elapsed()
    );
}

/// Its runtime is idle, so it is made again on another one, behind later requests.
#[test]
fn a_request_that_moves_to_another_runtime_keeps_its_deadline() {
    let runtime = || {
        Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let limiter = silent_client().rate_limiter("limiter");
    let (first, second) = (runtime(), runtime());
    let mut moved = Box::pin(limiter.try_acquire(1 << 31));
    let start = first.block_on(async {
        let start = Instant::now();
        assert!(poll_once(&mut moved).is_none());
        start
    });
    second.block_on(async {
        // The same moment on both runtimes, or later on this one.
        let late = (start + ms(800)).saturating_duration_since(Instant::now());
        sleep(late).await;
        let mut younger: Vec<_> = (0..3)
            .map(|_| Box::pin(limiter.try_acquire(1 << 31)))
            .collect();
        for younger in &mut younger {
            assert!(poll_once(younger).is_none());
        }
        let result = moved.await;
        assert!(
            matches!(result, Err(Error::Indeterminate { .. })),
            "{result:?}"
        );
        assert!(start.elapsed() < ms(1_500), "{:?}", start.elapsed());
    });
}

#[tokio::test]
async fn the_longest_response_timeout_is_accepted_for_any_connection() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(Duration::MAX);
    let given = builder.connection(server.connection().await).unwrap();
    let builder = RedissonClient::builder().response_timeout(Duration::MAX);
    let connected = builder.connect(&server.url()).await.unwrap();
    for (name, client) in [("given", given), ("connected", connected)] {
        let limiter = client.rate_limiter(name);
        limiter.set_rate(Rate::overall(100, HOUR)).await.unwrap();
        let mut requests = JoinSet::new();
        for _ in 0..20 {
            let limiter = limiter.clone();
            requests.spawn(async move {
                limiter.acquire(1).await.unwrap();
                limiter.try_acquire(1).await.unwrap()
            });
        }
        assert_eq!(requests.join_all().await, [true; 20]);
        let policy = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
        assert!(policy.check("key", 1).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_stalled_calls_waits_at_most_one_response_timeout() {
    let limiter = silent_client().rate_limiter("limiter");
    let mut waiters = JoinSet::new();
    for after in [
        0, 0, 100, 250, 499, 501, 700, 999, 1_000, 1_001, 1_500, 2_700,
    ] {
        let limiter = limiter.clone();
        waiters.spawn(async move {
            sleep(ms(after)).await;
            let start = Instant::now();
            (after, limiter.acquire(1).await, start.elapsed())
        });
    }
    while let Some(waiter) = waiters.join_next().await {
        let (after, result, took) = waiter.unwrap();
        assert!(took <= TIMEOUT, "after {after} ms: {took:?} {result:?}");
        assert!(result.is_err(), "after {after} ms");
    }
}
