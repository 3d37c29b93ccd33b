//! The algorithm step by step, on the test's own clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use compat_tests::{
    Server,
    dump::{self, Content, Member},
    redisson::{self, Version},
};
use redisson_rate_limiter::{Clock, Decision, Denied, Rate, RedissonClient};

/// A client whose clock shows what the test sets.
async fn client(server: &Server) -> (RedissonClient, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(0));
    let clock = Clock::from_fn({
        let now = Arc::clone(&now);
        move || now.load(Ordering::Relaxed)
    });
    let client = RedissonClient::builder().clock(clock);
    (client.connect(&server.url()).await.unwrap(), now)
}

#[tokio::test]
async fn the_worked_example_holds_on_the_applications_clock() {
    let server = Server::start();
    let (client, now) = client(&server).await;
    let limiter = client.rate_limiter("n");
    let rate = Rate::overall(5, Duration::from_millis(1000));
    assert!(limiter.try_set_rate(rate).await.unwrap());

    now.store(1000, Ordering::Relaxed);
    assert!(limiter.try_acquire(1).await.unwrap());
    now.store(1100, Ordering::Relaxed);
    assert!(limiter.try_acquire(2).await.unwrap());
    now.store(1200, Ordering::Relaxed);
    let Decision::Denied(Denied {
        retry_after,
        remaining,
        ..
    }) = limiter.check(3).await.unwrap()
    else {
        panic!("only 2 are left")
    };
    assert_eq!((retry_after, remaining), (Duration::from_millis(800), 2));
    now.store(2100, Ordering::Relaxed);
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(limiter.available_permits().await.unwrap(), 4);

    let state = dump::read(&mut server.connection().await, "n", &[])
        .await
        .normal()
        .overall;
    assert_eq!(state.value.unwrap().data, "4");
    let left = Member {
        score: 2100.0,
        content: Content::Grant {
            random_len: 16,
            permits: 1,
        },
    };
    assert_eq!(state.permits.unwrap().data, [left]);
}

#[tokio::test]
async fn three_permits_in_ten_seconds_come_back_on_the_applications_clock() {
    const NAME: &str = "nft:turbo:limit:testLock997";
    let server = Server::start();
    let (client, now) = client(&server).await;
    let limiter = client.rate_limiter(NAME);
    let rate = Rate::overall(3, Duration::from_secs(10));
    assert!(limiter.try_set_rate(rate).await.unwrap());

    now.store(1_700_000_000_000, Ordering::Relaxed);
    for granted in [true, true, true, false] {
        assert_eq!(limiter.try_acquire(1).await.unwrap(), granted);
    }
    now.fetch_add(9_999, Ordering::Relaxed);
    assert!(!limiter.try_acquire(1).await.unwrap());
    now.fetch_add(1, Ordering::Relaxed);
    assert!(limiter.try_acquire(1).await.unwrap());

    let mut redis = server.connection().await;
    let mut keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut redis)
        .await
        .unwrap();
    keys.sort();
    let [permits, value] = ["permits", "value"].map(|kind| format!("{{{NAME}}}:{kind}"));
    assert_eq!(keys, [NAME.to_owned(), permits, value]);
    let hash: BTreeMap<String, String> = redis::cmd("HGETALL")
        .arg(NAME)
        .query_async(&mut redis)
        .await
        .unwrap();
    let fields = [
        ("rate", "3"),
        ("interval", "10000"),
        ("type", "0"),
        ("keepAliveTime", "0"),
    ];
    assert_eq!(
        hash,
        fields
            .map(|(field, value)| (field.into(), value.into()))
            .into()
    );

    let [java] = redisson::clients(Version::V4_7_0, &server.url()).await;
    let config = java.limiter(NAME).config().await.unwrap();
    assert_eq!((config.rate, config.interval), (3, 10_000));
}
