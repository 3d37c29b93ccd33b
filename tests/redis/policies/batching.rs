//! Requests on one target share calls, and each gets the answer that it would get alone.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use redisson_rate_limiter::{
    Decision, Denied, Error, FixedWindow, Granted, PolicyLimiter, TokenBucket,
};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::clients::steady;
use crate::fixture::{Fixture, HOUR};
use crate::keys;
use crate::proxy::{Fate, Proxy};

async fn limiter(proxy: &Proxy, fixture: &Fixture, capacity: u32) -> PolicyLimiter<TokenBucket> {
    let client = steady(&proxy.url(), fixture.builder()).await;
    let limiter = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(capacity))
        .unwrap();
    assert!(limiter.check("other", 1).await.unwrap().is_granted());
    proxy.take_seen();
    limiter
}

/// Makes requests of these costs, in order, while the first one's call is held, so that the others
/// arrive together behind it. Returns their answers.
async fn behind_a_held_call(
    proxy: &mut Proxy,
    limiter: &PolicyLimiter<TokenBucket>,
    costs: &[u32],
) -> Vec<Result<Decision, Error>> {
    proxy.next("EVALSHA", Fate::Held);
    let ask = |cost| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check("bucket", cost).await })
    };
    let mut tasks = vec![ask(costs[0])];
    let first = proxy.held().await;
    tasks.extend(costs[1..].iter().copied().map(ask));
    tokio::task::yield_now().await;
    first.let_through().await;
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

async fn tokens(fixture: &mut Fixture) -> i64 {
    let mut command = redis::cmd("HGET");
    command.arg("bucket").arg("tokens");
    command.query_async(&mut fixture.raw).await.unwrap()
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn requests_that_come_during_a_call_share_the_next_in_their_order() {
    let fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = limiter(&proxy, &fixture, 10).await;
    let answers = behind_a_held_call(&mut proxy, &limiter, &[3, 4, 5, 3, 1]).await;
    let answers: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer.unwrap() {
            Decision::Granted(Granted { remaining, .. }) => (true, remaining),
            Decision::Denied(Denied { remaining, .. }) => (false, remaining),
        })
        .collect();
    // After 3 of 10: 4 fits, 5 does not, 3 does, nothing is left.
    assert_eq!(
        answers,
        [(true, 7), (true, 3), (false, 3), (true, 0), (false, 0)]
    );
    assert_eq!(proxy.take_names(), ["EVALSHA"; 2]);
}

#[tokio::test]
async fn a_thousand_callers_cost_few_calls_and_get_no_more_than_there_is() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limiter = client.policy_limiter(FixedWindow::new(300, HOUR)).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let limiter = limiter.clone();
        tasks.spawn(async move { limiter.check("counter", 1).await.unwrap().is_granted() });
    }
    let granted = tasks
        .join_all()
        .await
        .into_iter()
        .filter(|granted| *granted)
        .count();
    assert_eq!(granted, 300);
    let count: i64 = redis::cmd("GET")
        .arg("counter")
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    assert_eq!(count, 300);
    assert!(keys::calls(&mut fixture.raw, "evalsha").await < 100);
}

#[tokio::test]
async fn a_request_that_can_never_be_granted_fails_alone() {
    let fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = limiter(&proxy, &fixture, 10).await;
    let mut answers = behind_a_held_call(&mut proxy, &limiter, &[1, 1, 11, 2]).await;
    assert!(answers.remove(3).unwrap().is_granted());
    let refused = answers.remove(2);
    assert!(matches!(
        refused,
        Err(Error::ExceedsLimit { requested: 11, .. })
    ));
}

#[tokio::test]
async fn a_caller_that_does_not_poll_its_call_holds_nobody_up() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let limiter = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let mut idle = Box::pin(limiter.check("bucket", 1));
    assert!(poll_once(&mut idle).await.is_none());
    for _ in 0..3 {
        assert!(limiter.check("bucket", 1).await.unwrap().is_granted());
    }
    drop(idle);
    assert!(limiter.check("bucket", 1).await.unwrap().is_granted());
}

#[tokio::test]
async fn a_caller_that_gave_up_before_its_call_was_made_is_not_charged() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = limiter(&proxy, &fixture, 10).await;
    proxy.next("EVALSHA", Fate::Held);
    let direct = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.check("bucket", 1).await }
    });
    let held = proxy.held().await;
    let mut dropped = Box::pin(limiter.check("bucket", 5));
    let mut kept = Box::pin(limiter.check("bucket", 2));
    assert!(poll_once(&mut dropped).await.is_none());
    assert!(poll_once(&mut kept).await.is_none());
    drop(dropped);
    held.let_through().await;
    assert!(direct.await.unwrap().unwrap().is_granted());
    assert!(kept.await.unwrap().is_granted());
    assert_eq!(tokens(&mut fixture).await, 7);
}

#[test]
fn a_runtime_that_ends_in_the_middle_holds_nobody_up() {
    let here = Builder::new_current_thread().enable_all().build().unwrap();
    let there = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    here.block_on(async {
        let fixture = Fixture::start().await;
        let mut proxy = Proxy::to(fixture.server.port()).await;
        let limiter = limiter(&proxy, &fixture, 10).await;
        proxy.next("EVALSHA", Fate::Held);
        let ask = || {
            let limiter = limiter.clone();
            async move { limiter.check("bucket", 1).await }
        };
        let direct = tokio::spawn(ask());
        let held = proxy.held().await;
        // The driver is started by the other runtime, and goes with it.
        let (enqueued, is_enqueued) = oneshot::channel();
        let mut other = Box::pin(ask());
        there.spawn(async move {
            assert!(poll_once(&mut other).await.is_none());
            enqueued.send(()).unwrap();
            other.await
        });
        is_enqueued.await.unwrap();
        let mut waiting = Box::pin(ask());
        assert!(poll_once(&mut waiting).await.is_none());
        there.shutdown_background();
        held.let_through().await;
        assert!(direct.await.unwrap().unwrap().is_granted());
        assert!(waiting.await.unwrap().is_granted());
    });
}
