//! The messages by which a client tells others that permits came free, and the connection that they
//! arrive by.

use std::collections::HashMap;

use redis::FromRedisValue;
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient, Result};
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, JoinSet};

use crate::by_hand::poll_once;
use crate::fixture::{Fixture, HOUR, NAME, VALUE, ms};
use crate::keys;
use crate::monitor::Monitor;
use crate::stopped_time::{StoppedTime, at_once, run_until_stalled, until};

const CHANNEL: &str = "{limiter}:freed";

/// Another client, of the user `worker` with these rules.
async fn worker(fixture: &mut Fixture, rules: &[&str]) -> RedissonClient {
    let mut command = vec!["ACL", "SETUSER", "worker", "on", ">password", "~*"];
    command.extend(rules);
    fixture.run(&command).await;
    let port = fixture.server.port();
    let url = format!("redis://worker:password@127.0.0.1:{port}");
    fixture
        .builder()
        .client_id("worker")
        .connect(&url)
        .await
        .unwrap()
}

fn wait(client: &RedissonClient, name: &str) -> JoinHandle<Result<()>> {
    let limiter = client.rate_limiter(name);
    tokio::spawn(async move { limiter.acquire(1).await })
}

async fn ask<T: FromRedisValue>(fixture: &Fixture, words: &[&str]) -> T {
    let mut raw = fixture.raw.clone();
    let mut command = redis::Cmd::new();
    command.arg(words).query_async(&mut raw).await.unwrap()
}

async fn until_subscribed(fixture: &Fixture, number: u64) {
    until("so many have subscribed", async || {
        let words = ["PUBSUB", "SHARDNUMSUB", CHANNEL];
        let (_, subscribers): (String, u64) = ask(fixture, &words).await;
        subscribers == number
    })
    .await;
}

async fn connections(fixture: &Fixture) -> usize {
    let list: String = ask(fixture, &["CLIENT", "LIST"]).await;
    list.lines().count()
}

/// The limiter with no permit of ten left, as a client with the id `client` sees it.
async fn used(fixture: &Fixture) -> RateLimiter {
    let limiter = fixture.with(Rate::overall(10, HOUR)).await;
    assert!(limiter.try_acquire(10).await.unwrap());
    limiter
}

async fn waiting_client(fixture: &Fixture) -> RedissonClient {
    let builder = fixture.builder().client_id("waiting");
    builder.connect(&fixture.server.url()).await.unwrap()
}

#[tokio::test]
async fn a_message_is_sent_where_somebody_waits_and_nowhere_else() {
    let fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let mut monitor = Monitor::of(&fixture.server).await;
    limiter.release(3).await.unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(5).await.unwrap());
    let ran = monitor.commands(&fixture.server).await;
    assert!(!ran.iter().any(|it| it.contains("publish")), "{ran:?}");

    let _waiting = wait(&waiting_client(&fixture).await, NAME);
    until_subscribed(&fixture, 1).await;
    monitor.commands(&fixture.server).await;
    limiter.release(3).await.unwrap();
    let ran = monitor.commands_and_arguments(&fixture.server).await;
    let sent: Vec<_> = ran.iter().filter(|it| it[0].contains("publish")).collect();
    assert_eq!(sent, [&["lua spublish", CHANNEL, "3 client"]]);
}

#[tokio::test]
async fn what_a_client_frees_its_own_waiters_ask_for_once() {
    let fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    limiter.release(1).await.unwrap(); // the server knows the script
    assert!(limiter.try_acquire(1).await.unwrap());
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    until_subscribed(&fixture, 1).await;
    let _stopped = StoppedTime::stop();
    run_until_stalled(&limiter).await;
    let before = keys::calls(&mut fixture.raw.clone(), "evalsha").await;
    // The first call leaves one permit to others for a while.
    limiter.release(1).await.unwrap();
    until("it is told", async || {
        keys::calls(&mut fixture.raw.clone(), "spublish").await == 1
    })
    .await;
    run_until_stalled(&limiter).await;
    let calls = keys::calls(&mut fixture.raw.clone(), "evalsha").await;
    assert_eq!(calls, before + 2); // the release, and one for the waiter
    assert!(!waiter.is_finished());
}

#[tokio::test]
async fn permits_reclaimed_of_a_call_whose_runtime_ended_are_announced() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, HOUR)).await;
    assert!(limiter.try_acquire(1).await.unwrap()); // the server knows the script
    // Waits for more permits than come back, so that it stays subscribed.
    let waiting = waiting_client(&fixture).await.rate_limiter(NAME);
    let waiter = tokio::spawn(async move { waiting.acquire(10).await });
    until_subscribed(&fixture, 1).await;
    let builder = fixture
        .builder()
        .client_id("lost")
        .response_timeout(ms(500));
    let client = builder.connect(&fixture.server.url()).await.unwrap();
    let redis = redis::Client::open(fixture.server.url()).unwrap();
    std::thread::spawn({
        let limiter = client.rate_limiter(NAME);
        move || {
            let own = Builder::new_current_thread().enable_all().build().unwrap();
            own.block_on(async {
                limiter.exists().await.unwrap();
                let mut raw = redis.get_multiplexed_async_connection().await.unwrap();
                let mut request = Box::pin(limiter.acquire(9));
                assert!(poll_once(&mut request).is_none());
                let mut left = String::new();
                while left != "0" {
                    left = redis::cmd("GET")
                        .arg(VALUE)
                        .query_async(&mut raw)
                        .await
                        .unwrap();
                }
            });
        }
    })
    .join()
    .unwrap();
    until("it is told", async || {
        keys::calls(&mut fixture.raw.clone(), "spublish").await == 1
    })
    .await;
    assert_eq!(fixture.value().await.as_deref(), Some("9"));
    waiter.abort();
}

#[tokio::test]
async fn a_limiter_that_is_made_anew_while_not_connected_serves_a_waiter() {
    let mut fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let waiter = wait(&waiting_client(&fixture).await, NAME);
    until_subscribed(&fixture, 1).await;
    let _stopped = StoppedTime::stop();
    fixture.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    at_once(waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_user_without_channels_or_their_commands_frees_permits_unlogged() {
    let mut fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let waiting = waiting_client(&fixture).await;
    for rules in [
        &["+@all", "resetchannels"][..],
        &["+@all", "-@pubsub", "allchannels"],
    ] {
        let worker = worker(&mut fixture, rules).await.rate_limiter(NAME);
        fixture.run(&["ACL", "LOG", "RESET"]).await;
        let refused = keys::errors(&mut fixture.raw, "NOPERM").await;
        let waiter = wait(&waiting, NAME);
        until_subscribed(&fixture, 1).await;
        worker.release(1).await.unwrap();
        waiter.await.unwrap().unwrap(); // it asks again by itself
        let log: Vec<redis::Value> = fixture.ask(&["ACL", "LOG"]).await;
        assert_eq!(log, [], "{rules:?}");
        assert_eq!(keys::errors(&mut fixture.raw, "NOPERM").await, refused);
        assert_eq!(limiter.available_permits().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_client_that_may_not_subscribe_tries_once_and_waits_without_messages() {
    let mut fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let worker = worker(&mut fixture, &["+@all", "resetchannels"]).await;
    fixture.run(&["ACL", "LOG", "RESET"]).await;
    for _ in 0..3 {
        let waiter = wait(&worker, NAME);
        until("it waits", async || worker.waiters() == 1).await;
        limiter.release(1).await.unwrap();
        waiter.await.unwrap().unwrap();
    }
    let log: Vec<HashMap<String, redis::Value>> = fixture.ask(&["ACL", "LOG"]).await;
    let denied: Vec<_> = log
        .into_iter()
        .map(|mut entry| entry.remove("count"))
        .collect();
    assert_eq!(denied, [Some(redis::Value::Int(1))]);
}

#[tokio::test]
async fn a_flood_of_messages_costs_one_call_and_the_next_one_takes_effect() {
    let fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let waiting = waiting_client(&fixture).await;
    let waiter = wait(&waiting, NAME);
    until_subscribed(&fixture, 1).await;
    let _stopped = StoppedTime::stop();
    run_until_stalled(&limiter).await; // the waiter may have asked by itself just before
    let before = keys::calls(&mut fixture.raw.clone(), "evalsha").await;
    for _ in 0..100 {
        let mut flood = redis::pipe();
        for message in [
            "",
            "x",
            "9 x",
            "-1 x",
            "99999999999999999999 x",
            "9",
            "9  ",
            "\u{1}",
        ] {
            flood.cmd("SPUBLISH").arg(CHANNEL).arg(message);
        }
        let _: redis::Value = flood.query_async(&mut fixture.raw.clone()).await.unwrap();
    }
    // Behind the flood, over the same connection.
    limiter.release(10).await.unwrap();
    until("it asked", async || {
        keys::calls(&mut fixture.raw.clone(), "evalsha").await == before + 2
    })
    .await;
    // The pause after a call in vain begins when its answer is read. Without a message, the waiter
    // would ask much later.
    for _ in 0..20 {
        run_until_stalled(&limiter).await;
        tokio::time::advance(ms(11)).await;
    }
    at_once(waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lost_connection_for_messages_is_made_anew_and_nothing_is_missed() {
    let mut fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let waiter = wait(&waiting_client(&fixture).await, NAME);
    until_subscribed(&fixture, 1).await;
    let stopped = StoppedTime::stop();
    fixture.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    limiter.release(10).await.unwrap();
    at_once(waiter).await.unwrap().unwrap();
    stopped.resume();
}

#[tokio::test]
async fn a_client_that_is_dropped_leaves_no_connection_for_messages() {
    let fixture = Fixture::start().await;
    let _limiter = used(&fixture).await;
    let before = connections(&fixture).await;
    let client = waiting_client(&fixture).await;
    let waiter = wait(&client, NAME);
    until_subscribed(&fixture, 1).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    drop(client);
    until("it is gone", async || connections(&fixture).await == before).await;
}

#[tokio::test]
async fn closing_the_client_ends_its_connection_for_messages() {
    let fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let client = waiting_client(&fixture).await;
    client.ping().await.unwrap();
    let before = connections(&fixture).await;
    let waiter = wait(&client, NAME);
    until_subscribed(&fixture, 1).await;
    assert_eq!(connections(&fixture).await, before + 1);
    let _stopped = StoppedTime::stop();
    assert!(client.close(HOUR).await);
    assert!(waiter.await.unwrap().is_err());
    until_subscribed(&fixture, 0).await;
    until("it is gone", async || connections(&fixture).await == before).await;
    limiter.release(1).await.unwrap();
}

#[tokio::test]
async fn a_connection_for_messages_ends_some_time_after_the_last_waiter() {
    let fixture = Fixture::start().await;
    let limiter = used(&fixture).await;
    let client = waiting_client(&fixture).await;
    client.ping().await.unwrap();
    let before = connections(&fixture).await;
    let waiter = wait(&client, NAME);
    until_subscribed(&fixture, 1).await;
    limiter.release(10).await.unwrap();
    waiter.await.unwrap().unwrap();
    until("it is gone", async || connections(&fixture).await == before).await;
    // The next waiter has another connection.
    assert!(limiter.try_acquire(9).await.unwrap());
    let waiter = wait(&client, NAME);
    until_subscribed(&fixture, 1).await;
    limiter.release(10).await.unwrap();
    waiter.await.unwrap().unwrap();
}

#[tokio::test]
async fn of_thousands_of_limiters_with_waiters_each_is_told() {
    const LIMITERS: usize = 2_000;
    let fixture = Fixture::start().await;
    let (other, client) = (fixture.client().await, waiting_client(&fixture).await);
    let names: Vec<_> = (0..LIMITERS)
        .map(|number| format!("limiter:{number}"))
        .collect();
    let mut prepared = JoinSet::new();
    for name in &names {
        let limiter = other.rate_limiter(name);
        prepared.spawn(async move {
            limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
            assert!(limiter.try_acquire(10).await.unwrap());
        });
    }
    prepared.join_all().await;
    let waiters: Vec<_> = names.iter().map(|name| wait(&client, name)).collect();
    until("all have subscribed", async || {
        let all: Vec<String> = ask(&fixture, &["PUBSUB", "SHARDCHANNELS"]).await;
        all.len() == LIMITERS
    })
    .await;
    let _stopped = StoppedTime::stop();
    for (name, waiter) in names.iter().zip(waiters).step_by(19) {
        other.rate_limiter(name).release(10).await.unwrap();
        at_once(waiter).await.unwrap().unwrap();
    }
}
