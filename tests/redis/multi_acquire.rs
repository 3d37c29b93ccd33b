//! While many acquires are in flight, further ones on other limiters share a call, and each gets
//! its own answer.

use redisson_rate_limiter::{Decision, Error, Granted, Rate, RateLimiter, RedissonClient};

use crate::by_hand::{Pending, poll_once};
use crate::clients::{patient, steady};
use crate::fixture::{Fixture, HOUR, ms};
use crate::keys;
use crate::multi_check::until_shared;
use crate::proxy::{Command, Fate, Proxy};
use crate::stopped_time::StoppedTime;

/// Acquires share calls once this many are in flight.
const MANY: usize = 16;

/// `MANY` acquires of a client, each polled once and left alone, on limiters without a rate.
fn left_alone(idle: &[RateLimiter]) -> Vec<Pending<'_, redisson_rate_limiter::Result<bool>>> {
    let acquires = idle.iter().map(|limiter| {
        let mut acquire = Box::pin(limiter.try_acquire(1));
        assert!(poll_once(&mut acquire).is_none());
        acquire as Pending<'_, _>
    });
    acquires.collect()
}

/// Waits until the proxy has seen the calls of the acquires that are left alone.
async fn until_sent(proxy: &Proxy) {
    let mut sent = 0;
    while sent < MANY {
        sent += script_calls(&proxy.take_seen()).len();
        tokio::task::yield_now().await;
    }
}

fn idle(client: &RedissonClient) -> Vec<RateLimiter> {
    (0..MANY)
        .map(|i| client.rate_limiter(&format!("idle:{i}")))
        .collect()
}

/// Limiters with these permits an hour, that the client knows.
async fn limiters(client: &RedissonClient, permits: &[u64]) -> Vec<RateLimiter> {
    let mut limiters = Vec::new();
    for (i, &permits) in permits.iter().enumerate() {
        let limiter = client.rate_limiter(&format!("l:{i}"));
        limiter
            .set_rate(Rate::overall(permits, HOUR))
            .await
            .unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        limiter.release(1).await.unwrap();
        limiters.push(limiter);
    }
    limiters
}

/// Asks all at the same time.
async fn all_at_once(
    limiters: &[RateLimiter],
    permits: u32,
) -> Vec<redisson_rate_limiter::Result<bool>> {
    let tasks: Vec<_> = limiters
        .iter()
        .cloned()
        .map(|limiter| tokio::spawn(async move { limiter.try_acquire(permits).await }))
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn script_calls(seen: &[Command]) -> Vec<&Command> {
    let scripts = ["EVALSHA", "EVAL"];
    seen.iter()
        .filter(|command| scripts.contains(&command.name().as_str()))
        .collect()
}

fn keys_of(call: &Command) -> usize {
    std::str::from_utf8(&call.0[2]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn few_acquires_go_one_by_one_and_the_rest_share_a_call_with_own_answers() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), fixture.builder()).await;
    until_shared(&client, &proxy).await;
    let permits: Vec<u64> = (0..20).map(|i| i % 3 + 1).collect();
    let limiters = limiters(&client, &permits).await;
    let idle = idle(&client);
    proxy.take_seen();
    let left_alone = left_alone(&idle);

    let answers = all_at_once(&limiters, 2).await;
    for (permits, answer) in permits.iter().zip(answers) {
        match (permits, answer) {
            (1, Err(Error::ExceedsLimit { limit: 1, .. })) | (2 | 3, Ok(true)) => {}
            (permits, answer) => panic!("2 of {permits}: {answer:?}"),
        }
    }
    for acquire in left_alone {
        assert!(matches!(acquire.await, Err(Error::NotInitialized { .. })));
    }
    let seen = proxy.take_seen();
    let mut calls: Vec<usize> = script_calls(&seen).into_iter().map(keys_of).collect();
    calls.sort_unstable();
    // The shared call was sent twice, because the server did not have its script.
    assert_eq!(calls, [&[3; MANY][..], &[60, 60]].concat());

    let answers = all_at_once(&limiters, 1).await;
    for (permits, answer) in permits.iter().zip(answers) {
        assert_eq!(answer.unwrap(), permits % 2 == 1, "1 of {permits} less 2");
    }
}

#[tokio::test]
async fn a_shared_call_carries_lists_and_limiters_with_a_rate_for_each_client() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), fixture.builder()).await;
    until_shared(&client, &proxy).await;
    let limiters = limiters(&client, &[5, 9, 2]).await;
    let per_client = Rate::per_client(3, HOUR);
    limiters[0].set_rate(per_client).await.unwrap();
    assert!(limiters[0].try_acquire(1).await.unwrap()); // the client knows the type again
    let idle = idle(&client);
    let left_alone = left_alone(&idle);
    proxy.take_seen();

    // Three at a time on each limiter: the first is sent alone, the others follow as a list.
    let mut asked = Vec::new();
    for (i, permits) in [(0, 1), (1, 4), (2, 1)] {
        asked.extend((0..3).map(|_| (limiters[i].clone(), permits)));
    }
    let tasks: Vec<_> = asked
        .into_iter()
        .map(|(limiter, permits)| {
            tokio::spawn(async move { limiter.try_acquire(permits).await.unwrap() })
        })
        .collect();
    let mut granted = Vec::new();
    for task in tasks {
        granted.push(task.await.unwrap());
    }
    let expected = [true, true, false, true, true, false, true, true, false];
    assert_eq!(granted, expected);
    let seen = proxy.take_seen();
    let mut calls: Vec<usize> = script_calls(&seen)
        .into_iter()
        .map(keys_of)
        .filter(|&keys| keys > 3)
        .collect();
    // One call with a single request and a list for each limiter, sent by hash and by text: by text
    // at once where time is short.
    calls.dedup();
    assert_eq!(calls, [21]);
    drop(left_alone);

    let own = |key: &str| format!("{{l:0}}:{key}:client");
    let left_and_used = [
        (own("value"), own("permits"), (Some(0), 3)),
        ("{l:1}:value".into(), "{l:1}:permits".into(), (Some(1), 8)),
        ("{l:2}:value".into(), "{l:2}:permits".into(), (Some(0), 2)),
    ];
    for (value, permits, expected) in left_and_used {
        let found = keys::left_and_used(&mut fixture.raw, &value, &permits).await;
        assert_eq!(found, expected, "{value}");
    }
}

#[tokio::test]
async fn an_error_of_one_limiter_does_not_affect_the_others_of_its_call() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    until_shared(&client, &proxy).await;
    let limiters = limiters(&client, &[5, 5, 5, 5]).await;
    limiters[0].delete().await.unwrap();
    fixture.run(&["SET", "{l:2}:permits", "no zset"]).await;
    let idle = idle(&client);
    let _left_alone = left_alone(&idle);
    let answers = all_at_once(&limiters, 5).await;
    assert!(matches!(&answers[0], Err(Error::NotInitialized { name }) if name == "l:0"));
    assert!(matches!(answers[1], Ok(true)));
    assert!(matches!(&answers[2], Err(Error::BadState { name, .. }) if name == "l:2"));
    assert!(matches!(answers[3], Ok(true)));
}

#[tokio::test]
async fn a_call_that_is_refused_for_one_key_is_made_by_each_alone() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().await;
    let all = limiters(&client, &[5; 6]).await;
    let rules = ["on", ">password", "+@all", "~idle*", "~{idle*", "~before:*"];
    let mut command = [&["ACL", "SETUSER", "worker"], &rules[..]].concat();
    let allowed: Vec<String> = [0, 1, 2, 4, 5]
        .iter()
        .flat_map(|i| [format!("~l:{i}"), format!("~{{l:{i}}}*")])
        .collect();
    command.extend(allowed.iter().map(String::as_str));
    fixture.run(&command).await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let url = format!("redis://worker:password@127.0.0.1:{}", proxy.port());
    let client = fixture.builder().connect(&url).await.unwrap();
    until_shared(&client, &proxy).await;
    let limiters: Vec<_> = (0..all.len())
        .map(|i| client.rate_limiter(&format!("l:{i}")))
        .collect();
    assert!(limiters[0].try_acquire(1).await.unwrap());
    let idle = idle(&client);
    let _left_alone = left_alone(&idle);
    for (i, answer) in all_at_once(&limiters, 2).await.into_iter().enumerate() {
        if i == 3 {
            assert!(matches!(answer, Err(Error::PermissionDenied { .. })));
        } else {
            assert!(answer.unwrap(), "{i}");
        }
    }
    for (i, limiter) in all.iter().enumerate() {
        let left = limiter.available_permits().await.unwrap();
        let taken = [3, 2, 2, 0, 2, 2][i];
        assert_eq!(left, 5 - taken, "{i}");
    }
}

#[tokio::test]
async fn a_shared_call_whose_answer_was_lost_took_once_for_each() {
    for fate in [Fate::CutBeforeAnswer, Fate::CutBeforeServer] {
        let fixture = Fixture::start().await;
        let proxy = Proxy::to(fixture.server.port()).await;
        let builder = fixture.builder().response_timeout(ms(10_000));
        let client = builder.connect(&proxy.url()).await.unwrap();
        until_shared(&client, &proxy).await;
        let limiters = limiters(&client, &[3; 8]).await;
        let idle = idle(&client);
        // This loads the script into the server.
        let first = left_alone(&idle);
        assert!(all_at_once(&limiters[..1], 1).await[0].as_ref().unwrap());
        limiters[0].release(1).await.unwrap();
        for acquire in first {
            assert!(acquire.await.is_err());
        }

        proxy.take_seen();
        let _second = left_alone(&idle);
        until_sent(&proxy).await; // what is cut next is the shared call
        proxy.next("EVALSHA", fate);
        for answer in all_at_once(&limiters, 2).await {
            assert!(answer.unwrap(), "{fate:?}: 2 of 3 are there once");
        }
        for limiter in &limiters {
            assert_eq!(limiter.available_permits().await.unwrap(), 1, "{fate:?}");
        }
    }
}

#[tokio::test]
async fn a_shared_call_that_comes_late_takes_nothing() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let patient = patient(&fixture.server.url()).await;
    let known = limiters(&patient, &[3; 4]).await;
    let builder = RedissonClient::builder().response_timeout(ms(150));
    let client = steady(&proxy.url(), builder).await;
    until_shared(&client, &proxy).await;
    let mut limiters = Vec::new();
    for other in &known {
        let limiter = client.rate_limiter(other.name());
        while limiter.try_acquire(1).await.is_err() {} // it knows the limiter now
        other.set_rate(Rate::overall(3, HOUR)).await.unwrap();
        limiters.push(limiter);
    }
    let idle = idle(&client);
    proxy.take_seen();
    // The time of the calls passes once they are sent, however long the machine takes to do so.
    let time = StoppedTime::stop();
    let _left_alone = left_alone(&idle);
    until_sent(&proxy).await;
    proxy.next("EVALSHA", Fate::Held);
    let (answers, held) = tokio::join!(all_at_once(&limiters, 2), async {
        let held = proxy.held().await;
        time.resume();
        held
    });
    for answer in answers {
        assert!(matches!(answer, Err(Error::Indeterminate { .. })));
    }
    assert_eq!(keys_of(&held.command), 12);
    keys::deadline_passed(&mut fixture.raw).await;
    held.let_through().await;
    for limiter in &known {
        assert_eq!(limiter.available_permits().await.unwrap(), 3);
    }
}

#[tokio::test]
async fn grants_of_a_shared_call_can_be_given_back_one_by_one() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    until_shared(&client, &proxy).await;
    let limiters = limiters(&client, &[5; 4]).await;
    let idle = idle(&client);
    let _left_alone = left_alone(&idle);
    let tasks: Vec<_> = limiters
        .iter()
        .cloned()
        .map(|limiter| tokio::spawn(async move { limiter.check(4).await.unwrap() }))
        .collect();
    let mut grants = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Decision::Granted(Granted {
                grant,
                remaining: 1,
                limit: 5,
                ..
            }) => grants.push(grant),
            other => panic!("{other:?}"),
        }
    }
    for (limiter, grant) in limiters.iter().zip(grants) {
        assert_eq!(limiter.refund(grant).await.unwrap(), 4);
        assert_eq!(limiter.available_permits().await.unwrap(), 5);
    }
}
