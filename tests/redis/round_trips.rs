//! One command per call, and a script's source only if the server does not know it.

use std::time::SystemTime;

use redisson_rate_limiter::{Decision, FixedWindow, Granted, PermitsInUse, Rate};

use crate::clients::{builder, patient, steady};
use crate::fixture::{Fixture, HOUR, NAME};
use crate::proxy::Proxy;

#[tokio::test]
async fn a_known_script_is_called_by_its_hash_and_nothing_else_is_sent() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    let limiter = client.rate_limiter(NAME);
    limiter
        .try_set_rate(Rate::overall(100, HOUR))
        .await
        .unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    proxy.take_seen();
    for _ in 0..10 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    limiter.acquire(1).await.unwrap();
    assert!(limiter.try_acquire_timeout(1, HOUR).await.unwrap());
    assert_eq!(proxy.take_call_names(), ["EVALSHA"; 12]);
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_once_and_then_known() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    let limiter = client.rate_limiter(NAME);
    limiter
        .try_set_rate(Rate::overall(100, HOUR))
        .await
        .unwrap();
    proxy.take_seen();
    assert!(limiter.try_acquire(1).await.unwrap());
    // The client asks once for the server's clock, which it needs for the deadline.
    assert_eq!(proxy.take_call_names(), ["TIME", "EVALSHA", "EVAL"]);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(proxy.take_call_names(), ["EVALSHA"]);

    fixture.run(&["SCRIPT", "FLUSH"]).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(proxy.take_call_names(), ["EVALSHA", "EVAL", "EVALSHA"]);
    assert_eq!(limiter.available_permits().await.unwrap(), 96);
}

#[tokio::test]
async fn of_many_calls_that_find_a_script_unknown_one_sends_its_source() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    let policy = FixedWindow::new(1, HOUR);
    let limiter = client.policy_limiter(policy).unwrap();
    let asking: Vec<_> = (0..256)
        .map(|target| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&format!("t{target}"), 1).await })
        })
        .collect();
    for asking in asking {
        assert!(asking.await.unwrap().unwrap().is_granted());
    }
    let names = proxy.take_call_names();
    let script = |command: &&String| *command == "EVAL";
    assert_eq!(names.iter().filter(script).count(), 1);
}

#[tokio::test]
async fn a_limiter_whose_type_a_peer_changed_takes_a_second_round_trip_once() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    let limiter = client.rate_limiter(NAME);
    let peer = fixture.limiter().await;
    peer.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    for rate in [Rate::per_client(5, HOUR), Rate::overall(7, HOUR)] {
        peer.set_rate(rate).await.unwrap();
        proxy.take_seen();
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(proxy.take_call_names(), ["EVALSHA", "EVALSHA"]);
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(proxy.take_call_names(), ["EVALSHA"]);
        let left = limiter.available_permits().await.unwrap();
        assert_eq!(left as u64, rate.permits() - 2);
    }
}

#[tokio::test]
async fn a_client_that_set_the_rate_itself_or_read_it_knows_the_type() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    let limiter = client.rate_limiter(NAME);
    let rate = Rate::per_client(10, HOUR);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    assert!(limiter.try_acquire(1).await.unwrap());
    proxy.take_seen();
    let (overall, peer) = (Rate::overall(10, HOUR), fixture.limiter().await);
    for step in 0..3 {
        peer.set_rate(overall).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        match step {
            0 => limiter.set_rate(rate).await.unwrap(),
            1 => assert!(limiter.update_rate(rate, PermitsInUse::Keep).await.unwrap()),
            _ => {
                peer.set_rate(rate).await.unwrap();
                assert_eq!(limiter.config().await.unwrap(), Some(rate));
            }
        }
        proxy.take_seen();
        assert!(limiter.try_acquire(1).await.unwrap());
        assert_eq!(proxy.take_call_names(), ["EVALSHA"], "{step}");
    }
}

#[tokio::test]
async fn a_new_handle_for_each_request_knows_what_the_last_one_knew() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder().client_id("client")).await;
    let peer = fixture.limiter().await;
    let rate = Rate::per_client(1_000_000, HOUR);
    peer.set_rate(rate).await.unwrap();
    // There are so many that a client audits them only from time to time.
    let (value, permits) = ("{limiter}:value:client", "{limiter}:permits:client");
    fixture.fill(value, permits, 50_000, 950_000).await;
    fixture.prevent_audits().await;

    let acquire = async || assert!(client.rate_limiter(NAME).try_acquire(1).await.unwrap());
    acquire().await;
    fixture.audit_prevented().await;
    proxy.take_seen();
    acquire().await;
    let seen = proxy.take_calls();
    assert_eq!(seen.len(), 1, "it knows the type: {seen:?}");
    assert_eq!(
        seen[0].script_argument(3),
        b"1000000",
        "and the permits left"
    );
}

#[tokio::test]
async fn every_method_is_one_command() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    let limiter = client.rate_limiter(NAME);
    let rate = Rate::overall(100, HOUR);
    // The first round loads the scripts into the server.
    for round in 0..2 {
        limiter.delete().await.unwrap();
        limiter.try_set_rate(rate).await.unwrap();
        limiter.set_rate(rate).await.unwrap();
        limiter
            .set_rate_with(rate, PermitsInUse::Keep)
            .await
            .unwrap();
        limiter
            .update_rate(rate, PermitsInUse::Reset)
            .await
            .unwrap();
        limiter.config().await.unwrap();
        let Decision::Granted(Granted { grant, .. }) = limiter.check(1).await.unwrap() else {
            panic!("it was denied");
        };
        limiter.refund(grant).await.unwrap();
        limiter.release(1).await.unwrap();
        limiter.available_permits().await.unwrap();
        limiter.exists().await.unwrap();
        limiter.expire(HOUR).await.unwrap();
        limiter.expire_at(SystemTime::now() + HOUR).await.unwrap();
        limiter.expire_if_set(HOUR).await.unwrap();
        limiter.clear_expire().await.unwrap();
        limiter.remain_time_to_live().await.unwrap();
        let names = proxy.take_call_names();
        if round == 1 {
            let expected = [
                "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA", "HMGET", "EVALSHA",
                "EVALSHA", "EVALSHA", "EVALSHA", "PTTL", "EVALSHA", "EVALSHA", "EVALSHA",
                "EVALSHA", "PTTL",
            ];
            assert_eq!(names, expected);
        }
    }
}

#[tokio::test]
async fn naming_a_limiter_sends_nothing() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = steady(&proxy.url(), builder()).await;
    proxy.take_seen();
    for i in 0..100 {
        client.rate_limiter(&i.to_string());
    }
    client.rate_limiter(NAME).exists().await.unwrap();
    assert_eq!(proxy.take_call_names(), ["PTTL"]);
}

#[tokio::test]
async fn a_client_asks_for_the_servers_clock_only_when_it_connects() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = patient(&proxy.url()).await.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(100, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let names = proxy.take_names();
    let count = |name| names.iter().filter(|it| *it == name).count();
    // Each connection begins with these two.
    assert_eq!(count("TIME"), count("CLIENT"), "{names:?}");
}
