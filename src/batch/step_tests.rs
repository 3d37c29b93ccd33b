//! Requests that share calls, step by step, over a slow store.

mod echo;
mod shutdown;
mod silence;
mod two_flushers;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::*;
use echo::{Asking, Requests, TIMEOUT, run_until_stalled};

async fn drop_request(asking: Asking) {
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
}

const TAKES: Duration = Duration::from_millis(100);
const FOREVER: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_during_a_call_share_the_next_up_to_its_capacity() {
    let requests = Requests::taking(TAKES);
    let mut asked = Vec::new();
    for cost in 1..=6 {
        asked.push(requests.ask(cost).await);
    }
    for (cost, asked) in (1..).zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), cost);
    }
    assert_eq!(requests.made(), [vec![1], vec![2], vec![3, 4, 5], vec![6]]);
    assert!(requests.unclaimed().is_empty());
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_before_the_flusher_runs_start_no_other_flusher() {
    let requests = Requests::taking(TAKES);
    let batcher = &requests.0;
    let mut asked =
        [1, 2, 3, 4, 5].map(|cost| Box::pin(async move { batcher.ask(&(), &cost).await }));
    for request in &mut asked {
        assert!(poll_once(request.as_mut()).is_pending());
    }
    run_until_stalled().await;
    assert_eq!(requests.made(), [vec![1], vec![2, 3, 4]]);
    drop(asked);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_are_answered_together_share_their_next_call() {
    let requests = Requests::taking(TAKES);
    let asked = [1, 2, 3].map(|cost| {
        let batcher = Arc::clone(&requests.0);
        tokio::spawn(async move {
            for _ in 0..3 {
                batcher.ask(&(), &cost).await.unwrap();
            }
        })
    });
    for asked in asked {
        asked.await.unwrap();
    }
    let all = || vec![1, 2, 3];
    assert_eq!(requests.made(), [vec![1], vec![2, 3], all(), all()]);
    // The next request shares with none, so it makes its own call.
    run_until_stalled().await;
    assert!(requests.0.flights().is_empty());
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_callers_share_calls_after_one_round() {
    let requests = Requests::taking(TAKES);
    let asked = [1, 2].map(|cost| {
        let batcher = Arc::clone(&requests.0);
        tokio::spawn(async move {
            for _ in 0..4 {
                batcher.ask(&(), &cost).await.unwrap();
            }
        })
    });
    for asked in asked {
        asked.await.unwrap();
    }
    let both = || vec![1, 2];
    assert_eq!(requests.made(), [vec![1], vec![2], both(), both(), both()]);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_costs_of_one_call_add_up_to_at_most_u32_max() {
    let requests = Requests::taking(TAKES);
    let mut asked = Vec::new();
    for cost in [1, 2, u32::MAX - 1, 1, 1] {
        asked.push(requests.ask(cost).await);
    }
    for asked in asked {
        asked.await.unwrap().unwrap();
    }
    let made = [vec![1], vec![2], vec![u32::MAX - 1, 1], vec![1]];
    assert_eq!(requests.made(), made);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_alone_is_a_direct_call_again_after_all_others_are_done() {
    let requests = Requests::taking(TAKES);
    for cost in [1, 2] {
        let asked = requests.ask(cost).await;
        assert!(requests.0.flights().values().all(|it| it.flushers == 0));
        asked.await.unwrap().unwrap();
        assert!(requests.0.flights().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_direct_call_goes_on_unless_it_was_never_polled() {
    let requests = Requests::taking(TAKES);
    for is_polled in [false, true] {
        let mut direct = Box::pin(requests.0.direct(&1).unwrap());
        if is_polled {
            assert!(poll_once(direct.as_mut()).is_pending());
        }
        drop(direct);
        sleep(2 * TAKES).await;
        let calls = usize::from(is_polled);
        assert_eq!(requests.abandoned().len(), calls);
        assert_eq!(requests.unclaimed().len(), calls);
    }
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pending_request_that_is_dropped_is_not_sent_and_takes_no_room() {
    let requests = Requests::taking(TAKES);
    let mut asked = Vec::new();
    for cost in [1, 2, u32::MAX, 4, 5, 6] {
        asked.push(requests.ask(cost).await);
    }
    drop_request(asked.remove(2)).await;
    // The requests in flight still have their callers.
    assert_eq!(requests.abandoned(), [[0; 0]; 0]);
    for asked in asked {
        asked.await.unwrap().unwrap();
    }
    assert_eq!(requests.made(), [vec![1], vec![2], vec![4, 5, 6]]);
    assert!(requests.unclaimed().is_empty());
    requests.end().await;
}

/// A call in flight that carries three requests, and no other call.
async fn three_in_flight(requests: &Requests) -> Vec<Asking> {
    let mut asked = Vec::new();
    for cost in [1, 2, 3, 4, 5] {
        asked.push(requests.ask(cost).await);
    }
    for asked in asked.drain(..2) {
        asked.await.unwrap().unwrap();
    }
    run_until_stalled().await;
    assert_eq!(requests.made().last().unwrap(), &[3, 4, 5]);
    asked
}

#[tokio::test(start_paused = true)]
async fn a_call_is_abandoned_when_the_last_of_its_callers_leaves_and_not_before() {
    let requests = Requests::taking(TAKES);
    let mut asked = three_in_flight(&requests).await;
    for left in [2, 1] {
        drop_request(asked.remove(0)).await;
        assert!(requests.abandoned().is_empty(), "{left} still wait");
    }
    drop_request(asked.remove(0)).await;
    assert_eq!(requests.abandoned(), [[3, 4, 5]]);
    // The call was executed anyway.
    requests.end().await;
    assert_eq!(requests.unclaimed(), [3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn only_grants_of_callers_that_left_are_unclaimed() {
    let requests = Requests::taking(TAKES);
    let mut asked = three_in_flight(&requests).await;
    drop_request(asked.remove(1)).await;
    for (cost, asked) in [3, 5].into_iter().zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), cost);
    }
    requests.end().await;
    assert_eq!(requests.unclaimed(), [4]);
    assert!(requests.abandoned().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_others_in_flight_or_pending_makes_no_call_of_its_own() {
    let requests = Requests::taking(TAKES);
    let batcher = &requests.0;
    let ask = |cost| Box::pin(async move { batcher.ask(&(), &cost).await });
    let (mut direct, mut pending, mut behind, mut last) = (ask(1), ask(2), ask(3), ask(4));
    assert!(poll_once(direct.as_mut()).is_pending());
    assert!(poll_once(pending.as_mut()).is_pending());
    drop(direct);
    // Nothing is in flight, and one is pending.
    assert!(poll_once(behind.as_mut()).is_pending());
    assert_eq!(requests.made(), [[1]]);
    run_until_stalled().await;
    // Two are in flight, and none is pending.
    assert!(poll_once(last.as_mut()).is_pending());
    assert_eq!(requests.made(), [vec![1], vec![2, 3]]);
    for (cost, asked) in (2..).zip([pending, behind, last]) {
        assert_eq!(asked.await.unwrap(), cost);
    }
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_direct_call_that_is_dropped_is_abandoned_and_its_answer_unclaimed() {
    let requests = Requests::taking(TAKES);
    drop_request(requests.ask(7).await).await;
    assert_eq!(requests.abandoned(), [[7]]);
    assert!(requests.0.flights().is_empty(), "it holds up no other");
    requests.end().await;
    assert_eq!(requests.unclaimed(), [7]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_delivered_and_not_received_is_unclaimed() {
    let requests = Requests::taking(TAKES);
    let direct = requests.ask(1).await;
    let mut unreceived = Box::pin(requests.0.ask(&(), &2));
    assert!(poll_once(unreceived.as_mut()).is_pending());
    run_until_stalled().await;
    sleep(2 * TAKES).await;
    direct.await.unwrap().unwrap();
    assert!(requests.unclaimed().is_empty());
    drop(unreceived);
    assert_eq!(requests.unclaimed(), [2]);
    assert!(requests.abandoned().is_empty());
    requests.end().await;
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_before_its_call_is_sent_was_not_sent() {
    // The first and the second are calls of their own; the next three share one, and each has a
    // deadline of its own.
    let arrivals = [0, 0, 300, 600, 900];
    for (reachable_at, not_sent) in [(5_000, 5), (1_400, 3), (1_000, 2)] {
        let requests = Requests::taking(FOREVER);
        requests.0.calls.is_reachable.send_replace(false);
        let start = Instant::now();
        let mut cost = 0;
        let asking = arrivals.map(|at| {
            let batcher = Arc::clone(&requests.0);
            cost += 1;
            tokio::spawn(async move {
                sleep_until(start + Duration::from_millis(at)).await;
                batcher.ask(&(), &cost).await
            })
        });
        sleep_until(start + Duration::from_millis(reachable_at + 1)).await;
        requests.0.calls.is_reachable.send_replace(true);
        for (place, asking) in asking.into_iter().enumerate() {
            let was_sent = match asking.await.unwrap().unwrap_err() {
                Error::Indeterminate { .. } => true,
                Error::StoreUnavailable { .. } => false,
                other => panic!("{other:?}"),
            };
            assert_eq!(was_sent, place >= not_sent, "{place} at {reachable_at}");
        }
        let sent: Vec<u32> = requests.sent().concat();
        assert_eq!(
            sent,
            Vec::from_iter(not_sent as u32 + 1..=5),
            "{reachable_at}"
        );
        requests.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_call_has_its_deadline_and_unsent_ones_report_it() {
    let requests = Requests::taking(FOREVER);
    let start = Instant::now();
    let mut asked = Vec::new();
    // Two calls are in flight, and more requests are pending than the next calls carry. The calls
    // start at different times.
    let at = [0, 0, 300, 600, 700, 700, 700, 700, 700, 700];
    for (cost, at) in (1..).zip(at) {
        sleep_until(start + Duration::from_millis(at)).await;
        let batcher = Arc::clone(&requests.0);
        asked.push(tokio::spawn(async move {
            let asked_at = Instant::now();
            let result = batcher.ask(&(), &cost).await;
            (result, asked_at.elapsed())
        }));
        run_until_stalled().await;
    }
    for (cost, asked) in (1..).zip(asked) {
        let (result, took) = asked.await.unwrap();
        assert_eq!(took, TIMEOUT, "{cost}");
        let is_sent = requests.made().iter().flatten().any(|sent| *sent == cost);
        assert_eq!(is_sent, cost < 10, "{cost}");
        match result.unwrap_err() {
            Error::Indeterminate { .. } => assert!(is_sent, "{cost}"),
            Error::StoreUnavailable { .. } => assert!(!is_sent, "{cost}"),
            other => panic!("{cost}: {other:?}"),
        }
    }
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_callers_have_left_is_watched_once_until_its_last_deadline() {
    let requests = Requests::taking(TAKES);
    let mut asked = three_in_flight(&requests).await;
    let deadline = Instant::now() + TIMEOUT;
    for _ in 0..2 {
        drop_request(asked.remove(0)).await;
        let overdue = requests.0.calls.overdue.lock().unwrap();
        assert!(
            matches!(&overdue[..], [(call, until)] if call == &[3, 4, 5] && *until <= deadline)
        );
    }
    drop_request(asked.remove(0)).await;
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_no_answer_from_the_others() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the test panics");
        }
    }
    let requests = Requests::taking(TAKES);
    let direct = requests.ask(1).await;
    let mut woken = Box::pin(requests.0.ask(&(), &2));
    let waker = std::task::Waker::from(Arc::new(Panics));
    let poll = woken.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll.is_pending());
    let mut other = Box::pin(requests.0.ask(&(), &3));
    assert!(poll_once(other.as_mut()).is_pending());
    assert_eq!(direct.await.unwrap().unwrap(), 1);
    assert_eq!(other.await.unwrap(), 3);
    assert_eq!(woken.await.unwrap(), 2);
    assert_eq!(requests.made(), [vec![1], vec![2, 3]]);
    requests.end().await;
}
