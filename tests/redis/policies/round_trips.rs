//! A decision costs one round trip: the first one of a key, one that changes its rate, one of
//! several limiters.

use redisson_rate_limiter::{
    Decision, Error, FixedWindow, Granted, Rate, RedissonClient, TokenBucket,
};

use crate::clients::steady;
use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::keys;
use crate::proxy::{Fate, Proxy};
use crate::stopped_time::StoppedTime;

const KEY: &str = "nft:turbo:limit:testLock997";

/// A client behind a proxy, over a connection that stays.
async fn behind(proxy: &Proxy, fixture: &Fixture) -> RedissonClient {
    prepared(steady(&proxy.url(), fixture.builder()).await, proxy).await
}

/// A client behind a proxy whose connections may be lost.
async fn reconnecting_behind(proxy: &Proxy, fixture: &Fixture) -> RedissonClient {
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    prepared(client, proxy).await
}

/// Prepares a client: it knows the server's time, and the server knows the script.
async fn prepared(client: RedissonClient, proxy: &Proxy) -> RedissonClient {
    let rate = Rate::overall(1, HOUR);
    let other = client.keyed_rate_limiter("other:", rate).unwrap();
    assert!(other.check("k", 1).await.unwrap().is_granted());
    other.rate_limiter("k").delete().await.unwrap();
    proxy.take_seen();
    client
}

#[tokio::test]
async fn the_first_request_of_a_key_sets_its_limiter_up_as_redisson_has_it() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = behind(&proxy, &fixture).await;
    let rate = Rate::overall(3, 10 * SECOND);
    let limiter = client.keyed_rate_limiter("nft:turbo:limit:", rate).unwrap();
    for expected in [true, true, true, false] {
        let decision = limiter.check("testLock997", 1).await.unwrap();
        assert_eq!(decision.is_granted(), expected);
        fixture.at(1_001);
    }
    assert_eq!(proxy.take_call_names(), ["EVALSHA"; 4]);

    let (value, permits) = (format!("{{{KEY}}}:value"), format!("{{{KEY}}}:permits"));
    let mut all = [KEY.to_owned(), value.clone(), permits.clone()];
    all.sort();
    assert_eq!(keys::names(&mut fixture.raw).await, all);
    let fields: Vec<String> = redis::cmd("HMGET")
        .arg(KEY)
        .arg(&["rate", "interval", "type", "keepAliveTime"])
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    assert_eq!(fields, ["3", "10000", "0", "10000"]);
    let grants = keys::grants(&mut fixture.raw, &permits).await;
    assert_eq!(grants, [(1_000, 1), (1_001, 1), (1_001, 1)]);
    assert_eq!(
        keys::left_and_used(&mut fixture.raw, &value, &permits).await,
        (Some(0), 3)
    );
    for (_, time_to_live) in keys::everything(&mut fixture.raw).await.values() {
        assert!(*time_to_live > 0);
    }
}

#[tokio::test]
async fn a_changed_rate_is_written_in_the_round_trip_of_the_next_request() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = behind(&proxy, &fixture).await;
    let limiter = client
        .keyed_rate_limiter("k:", Rate::overall(3, HOUR))
        .unwrap();
    assert!(limiter.check("a", 3).await.unwrap().is_granted());
    limiter.set_rate(Rate::overall(5, HOUR)).unwrap();
    assert!(limiter.check("a", 2).await.unwrap().is_granted());
    assert_eq!(proxy.take_call_names(), ["EVALSHA"; 2]);
    let rate: String = redis::cmd("HGET")
        .arg("k:a")
        .arg("rate")
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    assert_eq!(rate, "5");
}

#[tokio::test]
async fn a_limiter_of_redisson_gets_the_new_rate_and_keeps_its_keep_alive() {
    let mut fixture = Fixture::start().await;
    fixture
        .run(&[
            "HSET",
            "k:a",
            "rate",
            "3",
            "interval",
            "1000",
            "type",
            "0",
            "keepAliveTime",
            "0",
        ])
        .await;
    fixture.run(&["SET", "{k:a}:value", "1"]).await;
    let member = keys::member(&[7; 8], 2);
    fixture
        .run_bytes(&[b"ZADD", b"{k:a}:permits", b"900", &member])
        .await;
    let client = fixture.client().await;
    let limiter = client
        .keyed_rate_limiter("k:", Rate::overall(10, 2 * SECOND))
        .unwrap();
    let decision = limiter.check("a", 8).await.unwrap();
    assert!(matches!(
        decision,
        Decision::Granted(Granted {
            limit: 10,
            remaining: 0,
            ..
        })
    ));
    assert_eq!(
        keys::grants(&mut fixture.raw, "{k:a}:permits").await,
        [(900, 2), (1_000, 8)]
    );
    for (_, time_to_live) in keys::everything(&mut fixture.raw).await.values() {
        assert_eq!(*time_to_live, -1);
    }
}

#[tokio::test]
async fn a_keyed_request_whose_answer_was_lost_is_granted_what_it_took() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = reconnecting_behind(&proxy, &fixture).await;
    let limiter = client
        .keyed_rate_limiter("k:", Rate::overall(5, HOUR))
        .unwrap();
    for remaining in [2, 0] {
        proxy.next("EVALSHA", Fate::CutBeforeAnswer);
        // After the request too little is left for it to be granted again.
        let cost = if remaining == 2 { 3 } else { 2 };
        let decision = limiter.check("a", cost).await.unwrap();
        let Decision::Granted(Granted { grant, .. }) = decision else {
            panic!("it was denied");
        };
        assert_eq!(grant.permits(), cost);
        let left_and_used =
            keys::left_and_used(&mut fixture.raw, "{k:a}:value", "{k:a}:permits").await;
        assert_eq!(left_and_used, (Some(remaining), 5 - remaining));
    }
}

#[tokio::test]
async fn a_request_of_another_limiter_whose_answer_was_lost_is_not_sent_again() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = reconnecting_behind(&proxy, &fixture).await;
    let limiter = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    assert!(limiter.check("bucket", 1).await.unwrap().is_granted());
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    let lost = limiter.check("bucket", 3).await;
    assert!(matches!(lost, Err(Error::Indeterminate { .. })), "{lost:?}");
    let tokens: i64 = redis::cmd("HGET")
        .arg("bucket")
        .arg("tokens")
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    assert_eq!(tokens, 6);
    // A request that did not reach the server is sent again.
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    let decision = limiter.check("bucket", 1).await;
    match decision {
        // The connection was cut, and whether it had been sent is not known here.
        Err(Error::Indeterminate { .. }) => {}
        other => assert!(other.unwrap().is_granted()),
    }
}

#[tokio::test]
async fn a_call_that_the_server_gets_after_its_deadline_charges_nobody() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let bucket = TokenBucket::per_second(1).with_capacity(10);
    let patient = fixture
        .client()
        .await
        .policy_limiter(bucket.clone())
        .unwrap();
    assert!(patient.check("bucket", 1).await.unwrap().is_granted());
    let builder = fixture.builder().response_timeout(ms(200));
    let limiter = steady(&proxy.url(), builder)
        .await
        .policy_limiter(bucket)
        .unwrap();
    while limiter.check("another", 1).await.is_err() {}
    proxy.next("EVALSHA", Fate::Held);
    let time = StoppedTime::stop();
    let (late, held) = tokio::join!(limiter.check("bucket", 3), async {
        let held = proxy.held().await;
        time.resume();
        held
    });
    assert!(matches!(late, Err(Error::Indeterminate { .. })), "{late:?}");
    keys::deadline_passed(&mut fixture.raw).await;
    held.let_through().await;
    let tokens: i64 = redis::cmd("HGET")
        .arg("bucket")
        .arg("tokens")
        .query_async(&mut fixture.raw)
        .await
        .unwrap();
    assert_eq!(tokens, 9);
}

#[tokio::test]
async fn several_limiters_decide_in_one_round_trip() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = behind(&proxy, &fixture).await;
    let user = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let address = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    let application = client.rate_limiter("application");
    application.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    let ask = async || {
        let charges = [
            user.charge("user", 1).unwrap(),
            address.charge("address", 1).unwrap(),
            application.charge(1).unwrap(),
        ];
        client.check_all(charges).await.unwrap().is_granted()
    };
    assert!(ask().await);
    proxy.take_seen();
    for expected in [true, true, false] {
        assert_eq!(ask().await, expected);
    }
    assert_eq!(proxy.take_call_names(), ["EVALSHA"; 3]);
    assert_eq!(application.available_permits().await.unwrap(), 2);
}
