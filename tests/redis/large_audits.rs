//! If a limiter has too many grants to sum in a call, an audit in pages finds what a peer's retry
//! or release did to the permits left, whatever clients do in the meantime.

use std::time::Duration;

use redisson_rate_limiter::{Decision, Granted, Rate, RateLimiter};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clients::{builder, steady};
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, VALUE};
use crate::keys;
use crate::monitor::Monitor;

const GRANTS: u32 = 1_800;
const RATE: u64 = 5_000;

/// A limiter by the server's clock with `GRANTS` grants and this many permits left.
async fn limiter(fixture: &mut Fixture, left: u32) -> RateLimiter {
    let limiter = client(fixture).await;
    limiter
        .try_set_rate(Rate::overall(RATE, HOUR))
        .await
        .unwrap();
    fixture.fill(VALUE, PERMITS, GRANTS, left).await;
    limiter
}

/// The limiter, of a new client.
async fn client(fixture: &Fixture) -> RateLimiter {
    let client = steady(&fixture.server.url(), builder()).await;
    client.rate_limiter(NAME)
}

/// Waits until an audit has ended: no other step uses this command.
async fn audited(fixture: &mut Fixture) {
    while keys::calls(&mut fixture.raw, "lset").await == 0 {
        sleep(Duration::from_millis(5)).await;
    }
}

/// The permits left and those of all grants.
async fn all_permits(fixture: &mut Fixture) -> i64 {
    let left: i64 = fixture.value().await.unwrap().parse().unwrap();
    let grants = fixture.grants().await;
    left + grants
        .iter()
        .map(|(_, permits)| i64::from(*permits))
        .sum::<i64>()
}

#[tokio::test]
async fn permits_lost_by_a_peers_retry_are_found_again() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&mut fixture, RATE as u32 - GRANTS - 7).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    audited(&mut fixture).await;
    assert_eq!(all_permits(&mut fixture).await, RATE as i64);
    assert_eq!(
        fixture.value().await,
        Some((RATE - u64::from(GRANTS) - 1).to_string())
    );
}

#[tokio::test]
async fn what_a_peer_released_leaves_the_oldest_grants_in_pages() {
    let mut fixture = Fixture::start().await;
    let left = RATE as u32 - GRANTS + 700;
    let limiter = limiter(&mut fixture, left).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    while fixture.grants().await.len() > GRANTS as usize + 1 - 700 {
        sleep(Duration::from_millis(5)).await;
    }
    while fixture.value().await != Some((left - 1).to_string()) {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(all_permits(&mut fixture).await, RATE as i64);
}

#[tokio::test]
async fn a_peers_release_before_the_audit_makes_available_at_most_the_rate() {
    let mut fixture = Fixture::start().await;
    fixture.prevent_audits().await;
    let limiter = limiter(&mut fixture, RATE as u32 - 100).await;
    let expired = keys::time(&mut fixture.raw).await - 2 * HOUR.as_millis() as i64;
    fixture.add(expired, &keys::member(&[7; 16], 300)).await;
    let Decision::Granted(granted) = limiter.check(RATE as u32).await.unwrap() else {
        panic!("it was denied");
    };
    assert_eq!(granted.remaining, 0);
    assert_eq!(fixture.value().await, Some("0".to_owned()));
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_lost_value_is_as_if_nothing_were_left_until_the_audit() {
    let mut fixture = Fixture::start().await;
    let limiter = limiter(&mut fixture, 0).await;
    assert!(limiter.expire(HOUR).await.unwrap());
    fixture.run(&["DEL", VALUE]).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    audited(&mut fixture).await;
    assert_eq!(
        limiter.available_permits().await.unwrap(),
        RATE - u64::from(GRANTS)
    );
    assert!(fixture.expires(VALUE).await > 0);
}

#[tokio::test]
async fn changes_by_clients_during_an_audit_are_no_drift() {
    const REFUNDED: u32 = 90;
    let mut fixture = Fixture::start().await;
    let limiter = client(&fixture).await;
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
    // There are so many older grants that these are not on the first page, which an audit reads
    // again at its end.
    const OLDER: u32 = 600;
    let score = keys::time(&mut fixture.raw).await - 60_000;
    for i in 0..OLDER {
        let member = keys::member(&u128::from(i).to_le_bytes(), 1);
        fixture.add(score, &member).await;
    }
    let lost = 9;
    let left = RATE as u32 - 3 * REFUNDED - OLDER - GRANTS - lost;
    fixture.fill(VALUE, PERMITS, GRANTS, left).await;
    let other = client(&fixture).await;
    assert!(other.try_acquire(1).await.unwrap());
    while keys::calls(&mut fixture.raw, "ltrim").await < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    // The first two pages are read. Then grants of the second one expire, and new ones are made.
    while let Some(grant) = grants.pop() {
        assert_eq!(limiter.refund(grant).await.unwrap(), 3);
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    audited(&mut fixture).await;
    assert_eq!(all_permits(&mut fixture).await, RATE as i64);
    assert_eq!(
        keys::calls(&mut fixture.raw, "rpush").await,
        1,
        "one audit was enough"
    );
}

#[tokio::test]
async fn one_client_at_a_time_audits_a_limiter() {
    let mut fixture = Fixture::start().await;
    drop(limiter(&mut fixture, RATE as u32 - GRANTS).await);
    let mut monitor = Monitor::of(&fixture.server).await;
    let mut acquires = JoinSet::new();
    for _ in 0..20 {
        let limiter = client(&fixture).await;
        acquires.spawn(async move {
            assert!(limiter.try_acquire(1).await.unwrap());
            limiter // whose client would end with it
        });
    }
    let _limiters = acquires.join_all().await;
    audited(&mut fixture).await;
    let commands = monitor.commands_and_arguments(&fixture.server).await;
    // The end of the audit also reads the changes, and may have to be tried again, but it follows
    // no page.
    let page = ["lua zrange", "lua lrange", "lua ltrim"];
    let pages = commands
        .windows(page.len())
        .filter(|run| run.iter().map(|words| words[0].as_str()).eq(page));
    assert_eq!(
        pages.count(),
        GRANTS as usize / 500 + 1,
        "each page is read once"
    );
    let all = all_permits(&mut fixture).await;
    assert_eq!(all, RATE as i64);
    assert_eq!(
        keys::calls(&mut fixture.raw, "incrby").await,
        0,
        "nothing was corrected"
    );
}
