//! What a client tells its handler of events about calls, remembered denials and clocks.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{
    FixedWindow, LimiterOptions, PermitsInUse, Rate, RedissonClient, RedissonClientBuilder,
};
use tokio::task::JoinSet;

use crate::clients::{builder, steady};
use crate::fixture::{Fixture, HOUR, NAME};
use crate::keys::{self, member};
use crate::proxy::{Fate, Proxy};
use crate::told::{Call, Told};

/// A call for this many requests that was answered at the first attempt.
const fn answered(script: &'static str, requests: u32) -> Call {
    Call {
        script,
        requests,
        attempt: 1,
        is_answered: true,
    }
}

/// A client over one connection, so that no attempt is made twice.
async fn client(fixture: &Fixture, builder: RedissonClientBuilder) -> (Told, RedissonClient) {
    let told = Told::default();
    let client = steady(&fixture.server.url(), told.by(builder)).await;
    (told, client)
}

#[tokio::test]
async fn each_call_is_reported_with_its_script_and_number_of_requests() {
    let fixture = Fixture::start().await;
    let (told, client) = client(&fixture, builder()).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(9, HOUR)).await.unwrap();
    let grant = limiter.check(2).await.unwrap().into_grant().unwrap();
    assert_eq!(limiter.refund(grant).await.unwrap(), 2);
    let fixed = client.policy_limiter(FixedWindow::new(9, HOUR)).unwrap();
    assert!(fixed.check("alice", 1).await.unwrap().is_granted());
    assert!(fixed.peek("alice", 1).await.unwrap().is_granted());
    let charges = [limiter.charge(1).unwrap(), fixed.charge("bob", 1).unwrap()];
    assert!(client.check_all(charges).await.unwrap().is_granted());
    let expected = [
        answered("set_rate", 0),
        answered("acquire", 1),
        answered("refund", 0),
        answered("policies/fixed_window", 1),
        answered("joint", 0),
        answered("joint", 1),
    ];
    assert_eq!(told.take_calls(), expected);
}

#[tokio::test]
async fn each_of_many_requests_is_reported_in_one_call() {
    let fixture = Fixture::start().await;
    let (told, client) = client(&fixture, builder()).await;
    let client = Arc::new(client);
    let keyed = client.keyed_rate_limiter("keyed:", Rate::overall(9, HOUR));
    let keyed = keyed.unwrap();
    assert!(keyed.try_acquire("0", 1).await.unwrap());
    told.take_calls();
    let mut asking = JoinSet::new();
    for place in 0..400 {
        let keyed = keyed.clone();
        // Half of them on one limiter.
        let key = if place % 2 == 0 { 0 } else { place };
        asking.spawn(async move { keyed.check(&key.to_string(), 1).await.map(drop) });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap().unwrap();
    }
    let calls = told.take_calls();
    let requests: u32 = calls.iter().map(|call| call.requests).sum();
    assert_eq!(requests, 400, "{calls:?}");
    let shares = |script| {
        let mut of_script = calls.iter().filter(|call| call.script == script);
        of_script.any(|call| call.requests > 1)
    };
    assert!(shares("acquire") || shares("multi_acquire"), "{calls:?}");
    assert!(calls.len() < 400 && calls.iter().all(|it| it.is_answered && it.attempt == 1));
    let ended = told.take_requests();
    assert_eq!(ended.len(), 401); // and the one before
}

#[tokio::test]
async fn a_call_that_is_sent_again_is_reported_as_another_attempt() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let told = Told::default();
    let client = told.by(builder()).connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(9, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    told.take_calls();
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    assert!(limiter.try_acquire(1).await.unwrap());
    let calls = told.take_calls();
    // On a busy machine, answers may be late, too.
    let last = calls.len() as u32;
    let expected = (1..=last).map(|attempt| Call {
        attempt,
        is_answered: attempt == last,
        ..answered("acquire", 1)
    });
    assert!(last > 1 && calls.iter().copied().eq(expected), "{calls:?}");
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
}

#[tokio::test]
async fn a_remembered_denial_is_reported_as_such_and_makes_no_call() {
    let fixture = Fixture::start().await;
    let remembering = LimiterOptions::new().remember_denials(HOUR);
    let (told, client) = client(&fixture, builder().default_options(remembering)).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    told.take_calls();
    told.take_requests();
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.check(1).await.unwrap().is_granted());
    assert!(told.take_calls().is_empty());
    let expected = [
        format!("*{NAME} 1: denied by remembered"),
        format!("*{NAME} 1 denied: denied by remembered"),
    ];
    assert_eq!(told.take_requests(), expected);
}

#[tokio::test]
async fn a_peers_clock_that_is_ahead_is_reported_with_the_difference() {
    let mut fixture = Fixture::start().await;
    let (told, client) = client(&fixture, builder()).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let minute_ahead = keys::time(&mut fixture.raw).await + 60_000;
    fixture.add(minute_ahead, &member(&[7; 16], 1)).await;
    let before = keys::time(&mut fixture.raw).await;
    for rate in [10, 11] {
        // A new rate makes the client audit the grants again.
        let rate = Rate::overall(rate, HOUR);
        limiter
            .set_rate_with(rate, PermitsInUse::Keep)
            .await
            .unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    let after = keys::time(&mut fixture.raw).await;
    let ahead = |now: i64| Duration::from_millis((minute_ahead - now).unsigned_abs());
    let told = told.take_clocks();
    assert!(!told.is_empty());
    let expected = ahead(after)..=ahead(before);
    assert!(told.iter().all(|it| expected.contains(it)), "{told:?}");
}
