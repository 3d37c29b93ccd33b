//! Calls that are not shared with others, polled on one runtime and then on another one.

use redisson_rate_limiter::{
    Error, FailurePolicy, LimiterOptions, LocalShare, Rate, RedissonClient,
};
use tokio::runtime::Runtime;

use crate::by_hand::{Pending, poll_once};
use crate::fixture::{Fixture, HOUR, ms, runtime};
use crate::runtimes::{NEVER, elsewhere};
use crate::turn::{Bucket, bucket, is_used};

/// How a call ends whose first runtime is idle, and so never reads the answer.
#[derive(Clone, Copy)]
enum Ends {
    MadeAgain,
    Indeterminate,
    DecidedByThePolicy,
}

/// A call that may have changed something is not made again.
pub fn an_unshared_call_ends_when_another_runtime_polls_it(fixture: Fixture) {
    use Ends::{DecidedByThePolicy, Indeterminate, MadeAgain};
    let local = FailurePolicy::Local(LocalShare::one_of(2.try_into().unwrap()));
    let calls = [
        ("check_all", local, DecidedByThePolicy),
        ("check_all", FailurePolicy::Error, Indeterminate),
        ("config", FailurePolicy::Error, MadeAgain),
        ("available_permits", FailurePolicy::Error, MadeAgain),
        ("set_rate", FailurePolicy::Error, Indeterminate),
        ("release", FailurePolicy::Error, Indeterminate),
        ("delete", FailurePolicy::Error, Indeterminate),
    ];
    let cases = calls.iter().flat_map(|it| [(it, false), (it, true)]);
    for ((name, policy, ends), is_shut_down) in cases {
        let name = *name;
        let first = runtime();
        let has_an_answer = is_shut_down || matches!(ends, MadeAgain);
        let time = if has_an_answer { NEVER } else { ms(500) };
        let call = first.block_on(async {
            let builder = RedissonClient::builder().response_timeout(time);
            let builder = builder
                .default_options(LimiterOptions::new().failure_policy(policy.clone()))
                .wait_for_server(NEVER);
            let client = fixture.connect(builder).await;
            let limiter = client.rate_limiter(fixture.name());
            let rate = Rate::overall(5, HOUR);
            while limiter.set_rate(rate).await.is_err() {}
            let mut call: Pending<'_, Result<bool, Error>> = Box::pin(async move {
                let mut is_by_policy = false;
                match name {
                    "check_all" => {
                        let decision = client.check_all([limiter.charge(1)?]).await?;
                        is_by_policy = decision.is_by_failure_policy();
                    }
                    "config" => assert!(limiter.config().await?.is_some()),
                    "available_permits" => assert_eq!(limiter.available_permits().await?, 5),
                    "set_rate" => limiter.set_rate(rate).await?,
                    "release" => limiter.release(1).await?,
                    _ => assert!(limiter.delete().await?),
                }
                Ok(is_by_policy)
            });
            match poll_once(&mut call) {
                Some(answer) => {
                    assert!(!answer.unwrap()); // in memory
                    None
                }
                None => Some(call),
            }
        });
        assert_eq!(call.is_none(), fixture.is_in_memory(), "{name}");
        let kept = (!is_shut_down).then_some(first);
        if let Some(call) = call {
            let answer = elsewhere(move || call).recv_timeout(2 * NEVER);
            let answer = answer.unwrap_or_else(|_| panic!("{name} never ends"));
            match (is_shut_down, ends) {
                (_, DecidedByThePolicy) => assert!(answer.unwrap()),
                // The connection ended before it was sent.
                (true, _) | (_, MadeAgain) => match answer {
                    Ok(is_by_policy) => assert!(!is_by_policy),
                    Err(error) => panic!("{name}: {error}"),
                },
                (_, Indeterminate) => assert!(
                    matches!(answer, Err(Error::Indeterminate { .. })),
                    "{name}: {answer:?}"
                ),
            }
        }
        drop(kept);
    }
}

/// A bucket that is in use, and the runtime that its client was connected on.
fn on_a_runtime(fixture: &Fixture, period: std::time::Duration) -> (Runtime, Bucket) {
    let first = runtime();
    let bucket = first.block_on(async {
        let bucket = bucket(&fixture.client("client").await, fixture, period);
        is_used(&bucket, "a").await;
        bucket
    });
    (first, bucket)
}

pub fn a_request_has_its_turn_where_another_runtime_polls_it(fixture: Fixture) {
    for is_shut_down in [false, true] {
        let (first, bucket) = on_a_runtime(&fixture, ms(300));
        let waiting = first.block_on(async {
            let limiter = bucket.clone();
            let mut check: Pending<'_, _> =
                Box::pin(async move { limiter.check("a", 1).await.unwrap() });
            let left = bucket.peek("a", 1).await.unwrap().remaining();
            let mut answer = None;
            while answer.is_none() && bucket.peek("a", 1).await.unwrap().remaining() == left {
                answer = poll_once(&mut check);
            }
            for _ in 0..50 {
                tokio::task::yield_now().await;
                answer = answer.or_else(|| poll_once(&mut check));
            }
            answer.is_none().then_some(check) // on a slow machine it has had its turn
        });
        let kept = (!is_shut_down).then_some(first);
        if let Some(check) = waiting {
            let answer = elsewhere(move || check).recv_timeout(NEVER);
            assert!(answer.expect("it has its turn").is_granted());
        }
        drop(kept);
        let _ = elsewhere(move || async move { bucket.reset("a").await }).recv_timeout(NEVER);
    }
}

pub fn outside_of_a_runtime_a_request_that_has_to_wait_is_an_error(fixture: Fixture) {
    let (_first, bucket) = on_a_runtime(&fixture, HOUR);
    let mut check = Box::pin(bucket.check("a", 1));
    let answer = poll_once(&mut check).expect("it does not wait");
    assert!(matches!(answer, Err(Error::NoRuntime)), "{answer:?}");
}
