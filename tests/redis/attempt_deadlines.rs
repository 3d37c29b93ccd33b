//! Each attempt of a call has its own deadline, and the next one waits for it: in whatever order
//! they arrive, one of them takes the permits.

use redisson_rate_limiter::{Decision, Granted, Rate, RateLimiter};

use crate::fixture::{Fixture, HOUR, NAME};
use crate::keys;
use crate::proxy::{Command, Fate, Proxy};

/// A limiter behind a proxy, whose client has made its first calls.
async fn behind(proxy: &Proxy, fixture: &Fixture, rate: u64) -> RateLimiter {
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter.release(1).await.unwrap();
    proxy.take_seen();
    limiter
}

/// The script calls among what was sent.
fn calls(proxy: &Proxy) -> Vec<Command> {
    let mut seen = proxy.take_seen();
    seen.retain(|command| command.name() == "EVALSHA");
    seen
}

async fn permits_out(fixture: &mut Fixture) -> u32 {
    let grants = fixture.grants().await;
    grants.iter().map(|(_, permits)| permits).sum()
}

const ASKED: [u32; 10] = [1, 7, 4, 9, 3, 3, 2, 8, 1, 1];
/// From 20: 1, 7, 4 leave 8; 9 does not fit; 3, 3, 2 do, and then there is nothing.
const GRANTED: [bool; 10] = [
    true, true, true, false, true, true, true, false, false, false,
];

/// Requests that come together, in one call behind one that is held up.
fn ask(limiter: &RateLimiter) -> Vec<tokio::task::JoinHandle<bool>> {
    let ask = |permits| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.try_acquire(permits).await.unwrap() })
    };
    ASKED.into_iter().map(ask).collect()
}

async fn answers(tasks: Vec<tokio::task::JoinHandle<bool>>) -> Vec<bool> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn a_list_whose_first_attempt_arrives_after_its_retry_is_taken_once() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 20).await;
    proxy.next("EVALSHA", Fate::Held); // the first one's own call
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    proxy.next("EVALSHA", Fate::Held);
    let tasks = ask(&limiter);
    proxy.held().await.let_through().await;
    let retry = proxy.held().await;
    let first = calls(&proxy).remove(1);
    retry.let_through().await; // it may not decide yet
    assert_eq!(permits_out(&mut fixture).await, 1);
    fixture.deliver(&first).await;
    assert_eq!(permits_out(&mut fixture).await, 20);
    assert_eq!(answers(tasks).await, GRANTED);
    assert_eq!(permits_out(&mut fixture).await, 20);
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
}

/// All that the server holds, without the keys of calls, which expire with the attempts.
async fn lasting(fixture: &mut Fixture) -> keys::Everything {
    let mut everything = fixture.everything().await;
    everything.retain(|name, _| !name.ends_with(b":call"));
    everything
}

#[tokio::test]
async fn an_attempt_that_arrives_after_the_call_was_decided_takes_nothing() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 20).await;
    proxy.next("EVALSHA", Fate::Held);
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    let tasks = ask(&limiter);
    proxy.held().await.let_through().await;
    assert_eq!(answers(tasks).await, GRANTED);
    let attempts = calls(&proxy);
    limiter.release(15).await.unwrap(); // so that there is something to take
    let before = lasting(&mut fixture).await;
    for attempt in &attempts[1..] {
        fixture.deliver(attempt).await;
    }
    assert_eq!(lasting(&mut fixture).await, before);
}

#[tokio::test]
async fn a_retry_that_arrives_after_its_grant_was_refunded_takes_nothing() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    proxy.next("EVALSHA", Fate::Held);
    proxy.next("EVALSHA", Fate::Held);
    let (decision, (_first, retry)) = tokio::join!(limiter.check(2), async {
        let first = proxy.held().await;
        fixture.deliver(&first.command).await;
        (first, proxy.held().await)
    });
    let Decision::Granted(Granted { grant, .. }) = decision.unwrap() else {
        panic!("denied");
    };
    assert_eq!(limiter.refund(grant).await.unwrap(), 2);
    fixture.deliver(&retry.command).await;
    assert_eq!(permits_out(&mut fixture).await, 0);
    assert_eq!(fixture.value().await.as_deref(), Some("5"));
}

#[tokio::test]
async fn a_request_whose_grant_a_release_shrank_before_the_answer_is_granted() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    let peer = fixture.limiter().await;
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    proxy.next("EVALSHA", Fate::Held);
    let (decision, ()) = tokio::join!(limiter.check(5), async {
        let retry = proxy.held().await;
        peer.release(2).await.unwrap();
        retry.let_through().await;
    });
    let Decision::Granted(Granted { grant, .. }) = decision.unwrap() else {
        panic!("it was denied, and holds permits");
    };
    assert_eq!(fixture.grants().await, [(1_000, 3)]);
    assert_eq!(limiter.refund(grant).await.unwrap(), 3);
    assert_eq!(fixture.value().await.as_deref(), Some("5"));
}

#[tokio::test]
async fn the_requests_of_a_list_hold_all_that_a_release_left_of_its_grant() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 20).await;
    let peer = fixture.limiter().await;
    proxy.next("EVALSHA", Fate::Held);
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    proxy.next("EVALSHA", Fate::Held);
    let tasks = ask(&limiter);
    proxy.held().await.let_through().await;
    let retry = proxy.held().await;
    peer.release(3).await.unwrap(); // the first one's 1, and 2 of the list's 19
    assert_eq!(permits_out(&mut fixture).await, 17);
    retry.let_through().await;
    let granted = answers(tasks).await;
    let held: u32 = granted
        .iter()
        .zip(ASKED)
        .map(|(&granted, permits)| if granted { permits } else { 0 })
        .sum();
    // Besides the first request, whose permit was released, these requests hold all that is in use.
    assert!(held > 17, "{granted:?}");
    for (after, before) in granted.iter().zip(GRANTED) {
        assert!(before || !after, "{granted:?}: what was denied is granted");
    }
}

#[tokio::test]
async fn an_answer_that_takes_longer_than_an_attempt_may_costs_no_permit() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    for _ in 0..2 {
        proxy.next("EVALSHA", Fate::Held);
    }
    let (answer, ()) = tokio::join!(limiter.try_acquire(3), async {
        let first = proxy.held().await;
        let retry = proxy.held().await; // the first one's time is over
        first.let_through().await;
        retry.let_through().await;
    });
    assert!(answer.unwrap());
    assert_eq!(fixture.grants().await, [(1_000, 3)]);
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
}
