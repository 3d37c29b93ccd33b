//! Requests that have two calls in flight at once.

use super::super::LONGEST_HOLD_UP;
use super::echo::LARGE;
use super::*;

/// Makes `count` large requests: the first is a direct call, and the next two are the calls of one
/// flusher each.
async fn ask_large(requests: &Requests, count: u32) -> Vec<Asking> {
    let mut asked = Vec::new();
    for place in 1..=count {
        asked.push(requests.ask(LARGE + place).await);
    }
    asked
}

fn large<const N: usize>(places: [u32; N]) -> Vec<u32> {
    places.map(|place| LARGE + place).to_vec()
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_while_both_calls_are_in_flight_share_the_next() {
    let requests = Requests::taking(TAKES);
    let asked = ask_large(&requests, 5).await;
    assert_eq!(requests.made(), [large([1]), large([2]), large([3])]);
    for (place, asked) in (1..).zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), LARGE + place);
    }
    assert_eq!(requests.made()[3..], [large([4, 5])]);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn while_one_call_is_silent_the_other_flusher_and_a_new_one_go_on() {
    let requests = Requests::taking(FOREVER);
    let mut silent = ask_large(&requests, 2).await;
    sleep(LONGEST_HOLD_UP / 2).await;
    *requests.0.calls.takes.lock().unwrap() = LONGEST_HOLD_UP;
    let mut asked = vec![requests.ask(LARGE + 3).await, requests.ask(LARGE + 4).await];
    assert_eq!(requests.made(), [large([1]), large([2]), large([3])]);
    sleep(LONGEST_HOLD_UP / 2).await;
    run_until_stalled().await;
    assert_eq!(requests.made()[3..], [large([4])]);
    asked.push(requests.ask(LARGE + 5).await);
    assert_eq!(
        requests.made().len(),
        4,
        "two flushers have a call in flight"
    );
    drop_request(silent.remove(1)).await;
    assert_eq!(requests.abandoned(), [large([2])]);
    for (place, asked) in (3..).zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), LARGE + place);
    }
    assert_eq!(requests.made()[4..], [large([5])]);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn while_both_calls_are_silent_two_others_are_in_flight() {
    let requests = Requests::taking(FOREVER);
    let mut asked = ask_large(&requests, 5).await;
    sleep(LONGEST_HOLD_UP).await;
    run_until_stalled().await;
    assert_eq!(requests.made()[3..], [large([4, 5])]);
    for place in [6, 7, 8] {
        asked.push(requests.ask(LARGE + place).await);
    }
    assert_eq!(requests.made()[4..], [large([6])]);
    for asked in asked {
        asked.await.unwrap().unwrap_err();
    }
    requests.end().await;
}

#[test]
fn a_runtime_that_shuts_down_abandons_both_and_pending_calls_are_repeated() {
    let requests = Requests::taking(FOREVER);
    let mut made = shutdown::shut_down_with(&requests, [1, 2, 3, 4].map(|place| LARGE + place));
    assert_eq!(requests.made(), [large([1]), large([2]), large([3])]);
    let mut abandoned = requests.abandoned();
    abandoned.sort();
    assert_eq!(abandoned, [large([2]), large([3])]);
    shutdown::runtime().block_on(async {
        for request in &mut made[1..] {
            assert!(poll_once(request.as_mut()).is_pending());
        }
        run_until_stalled().await;
    });
    let again: Vec<_> = requests.made()[3..].concat();
    assert_eq!(again, large([2, 3, 4]));
    drop(made);
    assert!(requests.0.is_idle());
}
