//! Calls that share none with others, polled on one runtime and then on another one.

use redisson_rate_limiter::{
    Error, FailurePolicy, LimiterOptions, LocalShare, Rate, RedissonClient,
};

use crate::by_hand::{Pending, poll_once};
use crate::fixture::{Fixture, HOUR, ms, runtime};
use crate::runtimes::{NEVER, elsewhere};

/// How a call ends whose first runtime is idle, and so never reads the answer.
#[derive(Clone, Copy)]
enum Ends {
    MadeAgain,
    Indeterminate,
    DecidedByThePolicy,
}

/// One that may have changed something is not made again.
pub fn a_call_that_shares_none_ends_when_another_runtime_polls_it(fixture: Fixture) {
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
