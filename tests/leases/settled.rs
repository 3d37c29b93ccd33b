//! A lease is settled late, while others release what it granted, or again and again.

use std::time::Duration;

use redisson_rate_limiter::{Lease, Rate, RateLimiter};
use tokio::time::{Instant, sleep};

use crate::clients::{builder, patient, steady};
use crate::fixture::Fixture;
use crate::keys;
use crate::parties::until_leased;
use crate::proxy::{Command, Fate, Proxy};
use crate::seeded::Seeded;
use crate::state::State;
use crate::support::Server;
use crate::uses::{Uses, most_in_a_window};

const RATE: u64 = 60;
const INTERVAL: Duration = ms(200);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Uses all permits that there are.
async fn use_all(uses: &Uses, limiter: &RateLimiter) {
    while uses
        .note(1, async { limiter.try_acquire(1).await.unwrap() })
        .await
    {}
}

#[tokio::test]
async fn what_others_release_before_a_late_settle_is_in_no_window_twice() {
    let (server, mut random) = (Server::start(), Seeded::new());
    println!("{random}");
    let mut proxy = Proxy::to(server.port()).await;
    let mut redis = server.connection().await;
    let client = steady(&proxy.url(), builder()).await;
    let plain = patient(&server.url()).await.rate_limiter("limiter");
    plain.set_rate(Rate::overall(RATE, INTERVAL)).await.unwrap();
    let uses = Uses::default();
    for _ in 0..8 {
        sleep(INTERVAL).await; // nothing is in use
        let leased = client.rate_limiter("limiter");
        let leased = leased.leased(Lease::up_to(INTERVAL / 2));
        let taking = async {
            loop {
                uses.note(1, async { leased.try_acquire(1).await.unwrap() })
                    .await;
                sleep(ms(5)).await;
            }
        };
        tokio::select! {
            () = taking => {}
            () = until_leased(&mut redis) => {}
        }
        // Some are granted for another process, which releases them: more than were taken before the lease.
        let mut unused = 0;
        for _ in 0..8 {
            unused += u32::from(leased.try_acquire(1).await.unwrap());
        }
        proxy.next("EVALSHA", Fate::Held);
        drop(leased);
        // Another call, so that there is one if the lease was used up; what is behind it waits too.
        let other = client.rate_limiter("limiter");
        let other = tokio::spawn(async move { other.available_permits().await });
        let mut held = Some(proxy.held().await);
        sleep(INTERVAL / 5 + ms(random.below(40))).await;
        use_all(&uses, &plain).await;
        plain.release(unused).await.unwrap();
        let (released, settled_after) = (Instant::now(), ms(random.below(200)));
        while released.elapsed() < INTERVAL * 3 / 2 {
            use_all(&uses, &plain).await;
            if released.elapsed() >= settled_after
                && let Some(held) = held.take()
            {
                held.let_through().await;
            }
            sleep(ms(5)).await;
        }
        other.await.unwrap().unwrap();
    }
    assert!(uses.len() > 10 * RATE as usize, "{} were used", uses.len());
    let most = most_in_a_window(uses.all(), INTERVAL);
    assert!(most <= RATE as usize, "{most} in a window");
    let state = State::of("limiter", RATE);
    state.used(&mut redis).await;
    state.assert_is_whole_after(INTERVAL, &server).await;
    state.used(&mut redis).await;
}

/// The calls that settle leases: of the scripts with six keys, the one with eight arguments.
fn settles(seen: Vec<Command>) -> Vec<Command> {
    let is_settle = |it: &Command| it.name() == "EVALSHA" && it.0[2] == b"6" && it.0.len() == 17;
    seen.into_iter().filter(is_settle).collect()
}

#[tokio::test]
async fn a_settle_that_arrives_again_and_again_changes_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut redis = server.connection().await;
    let mut fixture = Fixture::new(&proxy.url(), &server.url(), 10_000).await;
    fixture.lease(20).await;
    fixture.take(3).await;
    proxy.take_seen();
    for _ in 0..2 {
        proxy.next("EVALSHA", Fate::Twice);
    }
    fixture.lease_anew();
    fixture.until_left(10_000 - fixture.taken).await;
    let copies = settles(proxy.take_seen());
    assert!(!copies.is_empty());
    let mut arrive_again = async || {
        let before = keys::everything(&mut redis).await;
        for copy in &copies {
            let mut again = redis::Cmd::new();
            again.arg(&copy.0);
            let back: i64 = again.query_async(&mut redis).await.unwrap();
            assert_eq!(back, 0);
        }
        assert_eq!(keys::everything(&mut redis).await, before);
    };
    arrive_again().await;
    fixture.lease(20).await; // others are out
    arrive_again().await;
    fixture.leased = fixture.plain.clone();
    fixture.until_left(10_000 - fixture.taken).await;
    arrive_again().await;
    fixture.plain.release(3).await.unwrap();
    arrive_again().await;
    fixture.until_left(10_003 - fixture.taken).await;
}
