//! Redis goes away under a lease, for good or for a while, with its data or without.

use std::num::NonZeroU32;
use std::time::Duration;

use redis::InfoDict;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{FailurePolicy, LimiterOptions, LocalShare, Rate, RedissonClient};
use tokio::time::{sleep, timeout};

use crate::clients::PATIENCE;
use crate::fixture::{Fixture, HOUR, all};
use crate::keys;
use crate::parties::{INTERVAL, Parties, RATE, until_leased};
use crate::proxy::Proxy;
use crate::seeded::Seeded;
use crate::support::{KEEPS_DATA, Server};
use crate::uses::most_in_a_window;

/// How the server goes away for a while.
#[derive(Debug, Clone, Copy)]
enum Outage {
    /// It is killed and started again with its data.
    Killed,
    /// The connections are closed, and new ones refused.
    Cut,
    /// The connections are silent, and new ones refused.
    Frozen,
}

const OUTAGES: [Outage; 3] = [Outage::Killed, Outage::Cut, Outage::Frozen];

impl Outage {
    async fn begin(self, server: &Server, proxy: &Proxy) {
        match self {
            Self::Killed => server.signal("KILL"),
            Self::Cut => {
                proxy.refuse_new(true);
                let mut raw = server.connection().await;
                for kind in ["normal", "pubsub"] {
                    let mut kill = redis::cmd("CLIENT");
                    kill.arg("KILL").arg("TYPE").arg(kind);
                    kill.exec_async(&mut raw).await.unwrap();
                }
            }
            Self::Frozen => {
                proxy.refuse_new(true);
                proxy.freeze();
            }
        }
    }

    fn end(self, server: &mut Server, proxy: &Proxy) {
        match self {
            Self::Killed => server.start_again(),
            Self::Cut | Self::Frozen => proxy.refuse_new(false),
        }
    }
}

#[tokio::test]
async fn a_lease_is_used_through_an_outage_and_settled_once_after_it() {
    for (outage, ends_within) in OUTAGES.map(|it| [(it, false), (it, true)]).concat() {
        println!("{outage:?}, the lease ends within: {ends_within}");
        let mut server = Server::start_with(&KEEPS_DATA);
        let proxy = Proxy::to(server.port()).await;
        let mut fixture = Fixture::new(&proxy.url(), &server.url(), 10_000).await;
        fixture.lease(20).await;
        outage.begin(&server, &proxy).await;
        fixture.take(8).await;
        if ends_within {
            fixture.leased = fixture.plain.clone();
        }
        outage.end(&mut server, &proxy);
        if !ends_within {
            fixture.take(8).await;
            fixture.leased = fixture.plain.clone();
        }
        fixture.until_left(10_000 - fixture.taken).await;
    }
}

#[tokio::test]
async fn a_client_that_is_closed_in_an_outage_says_when_its_lease_is_back() {
    let mut server = Server::start_with(&KEEPS_DATA);
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    server.signal("KILL");
    let longer_than_a_call = Duration::from_secs(4);
    assert!(!fixture.client.close(longer_than_a_call).await);
    server.start_again();
    assert!(fixture.client.close(PATIENCE).await);
    let (left, used) = fixture.state(&server).await;
    assert_eq!((left, used as u64), (10_000 - used, fixture.taken));
}

#[tokio::test]
async fn a_lease_that_ends_while_the_disk_is_full_is_settled_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let kept = ["--dir", folder.path().to_str().unwrap()];
    let server = Server::start_with(&[&kept[..], &["--save", "3600", "1"]].concat());
    let mut raw = server.connection().await;
    let mut fixture = Fixture::new(&server.url(), &server.url(), 1_000).await;
    fixture.lease(20).await;
    folder.close().unwrap(); // nothing can be written there, as on a full disk
    redis::cmd("BGSAVE").exec_async(&mut raw).await.unwrap();
    let has_failed = async |raw: &mut MultiplexedConnection| {
        let info = redis::cmd("INFO").arg("persistence").query_async(raw).await;
        let info: InfoDict = info.unwrap();
        let status: Option<String> = info.get("rdb_last_bgsave_status");
        status.as_deref() == Some("err")
    };
    while !has_failed(&mut raw).await {
        sleep(Duration::from_millis(1)).await;
    }

    let refused = keys::errors(&mut raw, "MISCONF").await;
    fixture.leased = fixture.plain.clone();
    while keys::errors(&mut raw, "MISCONF").await == refused {
        sleep(Duration::from_millis(1)).await;
    }
    let mut writes_again = redis::cmd("CONFIG");
    writes_again.arg("SET").arg("stop-writes-on-bgsave-error");
    writes_again.arg("no").exec_async(&mut raw).await.unwrap();
    fixture.until_left(1_000 - fixture.taken).await;
}

#[tokio::test]
async fn through_outages_no_window_exceeds_the_rate_and_nothing_is_lost() {
    let mut random = Seeded::new();
    println!("{random}");
    let mut server = Server::start_with(&KEEPS_DATA);
    let proxy = Proxy::to(server.port()).await;
    let parties = Parties::start(&server, [&proxy.url(), &server.url()]).await;
    for outage in [OUTAGES, OUTAGES].concat() {
        until_leased(&mut server.connection().await).await;
        outage.begin(&server, &proxy).await;
        sleep(Duration::from_millis(random.below(150))).await;
        outage.end(&mut server, &proxy);
        parties.press().await;
    }
    let used = parties.uses();
    assert!(used.len() > 2 * RATE as usize, "{} were used", used.len());
    let most = most_in_a_window(used, INTERVAL);
    assert!(most <= RATE as usize, "{most} in a window");
    parties.end_whole(&server, RATE, INTERVAL).await;
}

/// Makes the server lose its data, and returns the permits that all grants held.
async fn lose_data(raw: &mut MultiplexedConnection) -> u64 {
    let mut lose = redis::pipe();
    lose.atomic().zrange("{limiter}:permits", 0, -1);
    lose.cmd("FLUSHALL").ignore();
    let (members,): (Vec<Vec<u8>>,) = lose.query_async(raw).await.unwrap();
    let permits = |it: Vec<u8>| u32::from_le_bytes(it[it.len() - 4..].try_into().unwrap());
    members.into_iter().map(permits).map(u64::from).sum()
}

#[tokio::test]
async fn a_server_that_lost_its_data_counts_nothing_of_an_earlier_lease() {
    for ends_within in [false, true] {
        let mut server = Server::start();
        let mut fixture = Fixture::new(&server.url(), &server.url(), 1_000).await;
        fixture.lease(20).await;
        let leased = lose_data(&mut server.connection().await).await - fixture.taken;
        server.signal("KILL");
        fixture.take(8).await;
        if ends_within {
            fixture.leased = fixture.plain.clone();
        }
        server.start_again();
        fixture
            .plain
            .set_rate(Rate::overall(1_000, HOUR))
            .await
            .unwrap();
        // The lease was taken from the lost limiter, so its rest goes back to none.
        let left = if ends_within { 0 } else { leased - 8 };
        assert_eq!(all(&fixture.leased).await, 1_000 + left);
        assert!(fixture.client.close(PATIENCE).await);
        let (value, grants) = fixture.state(&server).await;
        assert_eq!((value, grants), (0, 1_000));
    }
}

#[tokio::test]
async fn a_lease_grants_in_an_outage_until_it_is_used_up() {
    let server = Server::start();
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
    let client = RedissonClient::builder()
        .default_options(options)
        .connect(&server.url())
        .await
        .unwrap();
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    let in_leases = fixture.in_leases().await;
    server.signal("KILL");
    drop(server);
    for _ in 0..in_leases - 2 {
        let decision = fixture.leased.check(1).await.unwrap();
        assert!(decision.is_granted() && !decision.is_by_failure_policy());
    }
    while fixture.client.health().is_healthy() {
        let _ = fixture.client.rate_limiter("other").check(1).await;
    }
    fixture.leased.acquire(1).await.unwrap();
    assert!(fixture.leased.try_acquire(1).await.unwrap());
    let decision = fixture.leased.check(1).await.unwrap();
    assert!(!decision.is_granted() && decision.is_by_failure_policy());
}

#[tokio::test]
async fn what_was_leased_before_an_outage_counts_toward_the_local_share() {
    let server = Server::start();
    let all_of_it = FailurePolicy::Local(LocalShare::one_of(NonZeroU32::MIN));
    let client = RedissonClient::builder()
        .default_options(LimiterOptions::new().failure_policy(all_of_it))
        .connect(&server.url())
        .await
        .unwrap();
    let mut fixture = Fixture::over(client, &server.url(), 1_000).await;
    fixture.lease(20).await;
    server.signal("KILL");
    drop(server);
    let (mut leased, mut local) = (0, 0);
    loop {
        let decision = fixture.leased.check(1).await.unwrap();
        match (decision.is_granted(), decision.is_by_failure_policy()) {
            (true, false) => leased += 1,
            (true, true) => local += 1,
            (false, _) => break,
        }
    }
    assert!(leased >= 20, "{leased}");
    assert_eq!(fixture.taken + leased + local, 1_000);
}

#[tokio::test]
async fn in_an_outage_those_in_the_queue_are_served_by_the_lease_in_their_order() {
    let server = Server::start();
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Wait);
    let client = RedissonClient::builder()
        .default_options(options)
        .connect(&server.url())
        .await
        .unwrap();
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    server.signal("KILL");
    drop(server);
    let other = fixture.client.rate_limiter("other");
    while fixture.client.health().is_healthy() {
        let _ = timeout(Duration::from_millis(1), other.try_acquire(1)).await;
    }
    let mut first = Box::pin(fixture.leased.acquire(5_000));
    let mut second = Box::pin(fixture.leased.acquire(1));
    let at_once = Duration::from_millis(30);
    assert!(timeout(at_once, &mut first).await.is_err());
    assert!(timeout(at_once, &mut second).await.is_err(), "it is behind");
    drop(first);
    timeout(Duration::from_secs(20), second)
        .await
        .expect("the lease has it")
        .unwrap();
}
