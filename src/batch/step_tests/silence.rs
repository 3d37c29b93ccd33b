//! A call that is not answered: how long it holds up others.

use super::super::LONGEST_HOLD_UP;
use super::*;

const A_MOMENT: Duration = Duration::from_millis(1);

/// Two calls that are never answered, and a request behind them. Later calls are answered.
async fn behind_silent_calls(requests: &Requests) -> [Asking; 3] {
    let asked = [
        requests.ask(1).await,
        requests.ask(2).await,
        requests.ask(3).await,
    ];
    *requests.0.calls.takes.lock().unwrap() = TAKES;
    assert_eq!(requests.made(), [[1], [2]]);
    asked
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_call_holds_up_the_next_for_a_time_and_no_later_ones() {
    let requests = Requests::taking(FOREVER);
    let [direct, silent, behind] = behind_silent_calls(&requests).await;
    sleep(LONGEST_HOLD_UP - A_MOMENT).await;
    assert_eq!(requests.made(), [[1], [2]]);
    sleep(A_MOMENT).await;
    run_until_stalled().await;
    assert_eq!(requests.made(), [[1], [2], [3]]);
    assert_eq!(behind.await.unwrap().unwrap(), 3);
    let later = requests.ask(4).await;
    assert_eq!(requests.made(), [[1], [2], [3], [4]]);
    assert_eq!(later.await.unwrap().unwrap(), 4);
    for silent in [direct, silent] {
        let error = silent.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Indeterminate { .. }), "{error:?}");
    }
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_holds_up_no_other_is_abandoned_when_its_caller_leaves() {
    let requests = Requests::taking(FOREVER);
    let [_direct, silent, behind] = behind_silent_calls(&requests).await;
    assert_eq!(behind.await.unwrap().unwrap(), 3);
    drop_request(silent).await;
    assert_eq!(requests.abandoned(), [[2]]);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_unsent_call_holds_up_the_next_which_could_not_be_sent_either() {
    let requests = Requests::taking(FOREVER);
    requests.0.calls.is_reachable.send_replace(false);
    let _asked = behind_silent_calls(&requests).await;
    sleep(TIMEOUT - A_MOMENT).await;
    assert_eq!(requests.made(), [[1], [2]]);
    requests.end().await;
}

#[tokio::test(start_paused = true)]
async fn however_long_a_call_is_silent_one_other_is_in_flight_at_a_time() {
    let requests = Requests::taking(FOREVER);
    *requests.0.calls.timeout.lock().unwrap() = 4 * TIMEOUT;
    let [_direct, _silent, _behind] = behind_silent_calls(&requests).await;
    sleep(3 * TIMEOUT).await;
    *requests.0.calls.takes.lock().unwrap() = TIMEOUT;
    for cost in 4..=6 {
        requests.ask(cost).await;
    }
    assert_eq!(requests.made(), [[1], [2], [3], [4]]);
    requests.end().await;
}
