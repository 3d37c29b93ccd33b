//! What happens to requests whose runtime shuts down.

use tokio::runtime::{Builder, Runtime};

use super::*;

pub(super) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

pub(super) type Request = Pin<Box<dyn Future<Output = Result<u32>>>>;

/// Makes requests on a runtime, one after the other, and shuts it down.
pub(super) fn shut_down_with<const IS_REPEATABLE: bool, const N: usize>(
    requests: &Requests<IS_REPEATABLE>,
    costs: [u32; N],
) -> [Request; N] {
    let runtime = runtime();
    let made = runtime.block_on(async {
        let mut made = Vec::new();
        for cost in costs {
            let batcher = Arc::clone(&requests.0);
            let mut request: Request = Box::pin(async move { batcher.ask(&(), &cost).await });
            assert!(poll_once(request.as_mut()).is_pending());
            run_until_stalled().await;
            made.push(request);
        }
        made
    });
    made.try_into().ok().unwrap()
}

/// Three requests: the first is a direct call, the second is in flight in the flusher's call, the
/// third is pending.
fn shut_down<const IS_REPEATABLE: bool>(requests: &Requests<IS_REPEATABLE>) -> [Request; 3] {
    let made = shut_down_with(requests, [1, 2, 3]);
    assert_eq!(requests.made(), [[1], [2]]);
    made
}

#[test]
fn the_flushers_call_is_abandoned_and_its_requests_are_made_again() {
    let requests = Requests::taking(FOREVER);
    let [direct, mut in_flight, _pending] = shut_down(&requests);
    assert_eq!(requests.abandoned(), [[2]]);
    runtime().block_on(async {
        assert!(poll_once(in_flight.as_mut()).is_pending());
    });
    assert_eq!(requests.made(), [[1], [2], [2]]);
    drop(direct);
    assert_eq!(requests.abandoned(), [[2], [1]]);
}

#[test]
fn a_pending_request_was_not_sent_and_is_made_even_if_unrepeatable() {
    let requests = Requests::unrepeatable(FOREVER);
    let [_direct, _in_flight, mut pending] = shut_down(&requests);
    runtime().block_on(async {
        assert!(poll_once(pending.as_mut()).is_pending());
        assert_eq!(requests.made(), [[1], [2], [3]], "at once");
    });
}

#[test]
fn an_unrepeatable_request_in_flight_learns_whether_it_may_have_run() {
    for is_reachable in [false, true] {
        let requests = Requests::unrepeatable(FOREVER);
        requests.0.calls.is_reachable.send_replace(is_reachable);
        let [_direct, in_flight, _pending] = shut_down(&requests);
        let error = runtime().block_on(in_flight).unwrap_err();
        let is_right = match error {
            Error::Indeterminate { .. } => is_reachable,
            Error::StoreUnavailable { .. } => !is_reachable,
            _ => false,
        };
        assert!(is_right, "{is_reachable}: {error:?}");
        assert_eq!(requests.made(), [[1], [2]]);
    }
}

#[test]
fn on_an_idle_runtime_an_unrepeatable_request_learns_if_it_may_have_run() {
    for is_reachable in [false, true] {
        let requests = Requests::unrepeatable(FOREVER);
        requests.0.calls.is_reachable.send_replace(is_reachable);
        let idle = runtime();
        let made = idle.block_on(async {
            let mut made: Vec<Request> = Vec::new();
            for cost in 1..=3 {
                let batcher = Arc::clone(&requests.0);
                made.push(Box::pin(async move { batcher.ask(&(), &cost).await }));
                assert!(poll_once(made.last_mut().unwrap().as_mut()).is_pending());
                run_until_stalled().await;
            }
            made
        });
        for (request, was_sent) in made.into_iter().zip([is_reachable, is_reachable, false]) {
            let error = runtime().block_on(request).unwrap_err();
            let may_have_run = matches!(error, Error::Indeterminate { .. });
            assert_eq!(may_have_run, was_sent, "{error:?}");
            assert!(may_have_run || matches!(error, Error::StoreUnavailable { .. }));
        }
        assert_eq!(requests.made(), [[1], [2]]);
    }
}
