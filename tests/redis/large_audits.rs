//! If a limiter has too many grants to sum in a call, an audit in pages finds what a peer's retry or release did to the
//! permits left, whatever clients do in the meantime.

use std::time::Duration;

use redisson_rate_limiter::{Decision, Granted, Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::keys;
use crate::monitor::Monitor;
use crate::stage::{AUDIT, HOUR, NAME, PERMITS, Stage, VALUE};

const GRANTS: u32 = 1_800;
const RATE: u64 = 5_000;

/// A limiter by the server's clock with `GRANTS` grants, and so many permits left.
async fn limiter(stage: &mut Stage, left: u32) -> RateLimiter {
    let limiter = client(stage).await;
    limiter
        .try_set_rate(Rate::overall(RATE, HOUR))
        .await
        .unwrap();
    stage.fill(VALUE, PERMITS, GRANTS, left).await;
    limiter
}

/// Of a client of its own.
async fn client(stage: &Stage) -> RateLimiter {
    let client = RedissonClient::connect(&stage.server.url()).await.unwrap();
    client.rate_limiter(NAME)
}

/// Waits until an audit has ended.
async fn audited(stage: &mut Stage) {
    let started = Instant::now();
    loop {
        let mut ended = redis::cmd("LINDEX");
        ended.arg(AUDIT).arg(0);
        let ended: Option<Vec<u8>> = ended.query_async(&mut stage.raw).await.unwrap();
        if ended.is_some_and(|id| id.is_empty()) {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "no audit ended"
        );
        sleep(Duration::from_millis(5)).await;
    }
}

/// The permits left and those of all grants.
async fn all_permits(stage: &mut Stage) -> i64 {
    let left: i64 = stage.value().await.unwrap().parse().unwrap();
    let grants = stage.grants().await;
    left + grants
        .iter()
        .map(|(_, permits)| i64::from(*permits))
        .sum::<i64>()
}

#[tokio::test]
async fn permits_lost_by_a_peers_retry_are_found_again() {
    let mut stage = Stage::set().await;
    let limiter = limiter(&mut stage, RATE as u32 - GRANTS - 7).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    audited(&mut stage).await;
    assert_eq!(all_permits(&mut stage).await, RATE as i64);
    assert_eq!(
        stage.value().await,
        Some((RATE - u64::from(GRANTS) - 1).to_string())
    );
}

#[tokio::test]
async fn what_a_peer_released_leaves_the_oldest_grants_in_pages() {
    let mut stage = Stage::set().await;
    let left = RATE as u32 - GRANTS + 700;
    let limiter = limiter(&mut stage, left).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    while stage.grants().await.len() > GRANTS as usize + 1 - 700 {
        sleep(Duration::from_millis(5)).await;
    }
    while stage.value().await != Some((left - 1).to_string()) {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(all_permits(&mut stage).await, RATE as i64);
}

#[tokio::test]
async fn a_lost_value_is_as_if_nothing_were_left_until_the_audit() {
    let mut stage = Stage::set().await;
    let limiter = limiter(&mut stage, 0).await;
    assert!(limiter.expire(HOUR).await.unwrap());
    stage.run(&["DEL", VALUE]).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    audited(&mut stage).await;
    assert_eq!(
        limiter.available_permits().await.unwrap(),
        RATE - u64::from(GRANTS)
    );
    assert!(stage.expires(VALUE).await > 0);
}

#[tokio::test]
async fn what_clients_do_during_an_audit_is_no_drift() {
    const REFUNDED: u32 = 90;
    let mut stage = Stage::set().await;
    let limiter = client(&stage).await;
    limiter
        .try_set_rate(Rate::overall(RATE, HOUR))
        .await
        .unwrap();
    let mut grants = Vec::new();
    for _ in 0..REFUNDED {
        let Decision::Granted(Granted { grant, .. }) = limiter.check(3).await.unwrap() else {
            panic!("it was denied");
        };
        grants.push(grant);
    }
    // There are so many older grants that these are not on the first page, which an audit reads again at its end.
    const OLDER: u32 = 600;
    let score = keys::time(&mut stage.raw).await - 60_000;
    for i in 0..OLDER {
        let member = keys::member(&u128::from(i).to_le_bytes(), 1);
        stage.add(score, &member).await;
    }
    let lost = 9;
    let left = RATE as u32 - 3 * REFUNDED - OLDER - GRANTS - lost;
    stage.fill(VALUE, PERMITS, GRANTS, left).await;
    let other = client(&stage).await;
    assert!(other.try_acquire(1).await.unwrap());
    while keys::calls(&mut stage.raw, "ltrim").await < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    // The first two pages are read. Then grants of the second one expire, and new ones are made.
    while let Some(grant) = grants.pop() {
        assert_eq!(limiter.refund(grant).await.unwrap(), 3);
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    audited(&mut stage).await;
    assert_eq!(all_permits(&mut stage).await, RATE as i64);
    assert_eq!(
        keys::calls(&mut stage.raw, "rpush").await,
        1,
        "one audit was enough"
    );
}

#[tokio::test]
async fn one_client_at_a_time_audits_a_limiter() {
    let mut stage = Stage::set().await;
    drop(limiter(&mut stage, RATE as u32 - GRANTS).await);
    let mut monitor = Monitor::of(&stage.server).await;
    let mut acquires = JoinSet::new();
    for _ in 0..20 {
        let limiter = client(&stage).await;
        acquires.spawn(async move {
            assert!(limiter.try_acquire(1).await.unwrap());
            limiter // whose client would end with it
        });
    }
    let _limiters = acquires.join_all().await;
    audited(&mut stage).await;
    let commands = monitor.commands_and_arguments(&stage.server).await;
    let pages = commands.iter().filter(|words| words[0] == "lua ltrim");
    assert_eq!(
        pages.count(),
        GRANTS as usize / 500 + 1,
        "each is read once"
    );
    let all = all_permits(&mut stage).await;
    assert_eq!(all, RATE as i64);
    assert_eq!(
        keys::calls(&mut stage.raw, "incrby").await,
        0,
        "nothing was set right"
    );
}
