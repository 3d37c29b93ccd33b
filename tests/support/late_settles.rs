//! Leases that are settled late, after others have released what they granted.

use std::time::Duration;

use redisson_rate_limiter::{Lease, Rate, RateLimiter};
use tokio::time::{Instant, sleep};

use crate::clients::{builder, patient, steady};
use crate::parties::until_leased;
use crate::proxy::{Fate, Proxy};
use crate::state::State;
use crate::support::Server;
use crate::uses::{Uses, most_in_a_window};

const RATE: u64 = 60;
const INTERVAL: Duration = ms(200);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Uses all permits that there are, at once: on a busy machine they may come back as fast as they
/// are taken one by one.
async fn use_all(uses: &Uses, limiter: &RateLimiter) {
    let all = limiter.available_permits().await.unwrap() as u32;
    if all > 0 {
        let taking = async { limiter.try_acquire(all).await.unwrap() };
        uses.note(all, taking).await;
    }
}

/// Releases what leases granted while the leases are over and not settled, and lets others use all
/// permits that there are.
pub async fn late_settles(server: &Server, release: impl AsyncFn(u32)) {
    let mut proxy = Proxy::to(server.port()).await;
    let mut redis = server.connection().await;
    let client = steady(&proxy.url(), builder()).await;
    let plain = patient(&server.url()).await.rate_limiter("limiter");
    plain.set_rate(Rate::overall(RATE, INTERVAL)).await.unwrap();
    let mut round = 0;
    while round < 8 {
        sleep(INTERVAL).await; // nothing is in use
        let uses = Uses::default();
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
        // Some are granted for another process, which releases them: more than were taken before
        // the lease.
        let (mut unused, taken) = (0, Instant::now());
        for _ in 0..8 {
            unused += u32::from(leased.try_acquire(1).await.unwrap());
        }
        proxy.next("EVALSHA", Fate::Held);
        drop(leased);
        // Another call, so that there is one if the lease was used up; what is behind it waits too.
        let other = client.rate_limiter("limiter");
        let other = tokio::spawn(async move { other.available_permits().await });
        let mut held = Some(proxy.held().await);
        sleep(INTERVAL / 5 + ms(5 * round)).await;
        use_all(&uses, &plain).await;
        release(unused).await;
        let is_in_time = taken.elapsed() < INTERVAL; // else it has released others', as what was taken was back already
        let (released, settled_after) = (Instant::now(), ms(25 * round));
        while released.elapsed() < INTERVAL * 3 / 2 {
            use_all(&uses, &plain).await;
            if released.elapsed() >= settled_after
                && let Some(held) = held.take()
            {
                held.let_through().await;
            }
            sleep(ms(5)).await;
        }
        // If this process was stopped for long, the time was over first.
        if let Some(held) = held.take() {
            held.let_through().await;
        }
        other.await.unwrap().unwrap();
        if is_in_time {
            assert!(uses.len() > RATE as usize, "{} were used", uses.len());
            let most = most_in_a_window(uses.all(), INTERVAL);
            assert!(most <= RATE as usize, "{most} in a window");
            round += 1;
        }
    }
    let state = State::of("limiter", RATE);
    state.used(&mut redis).await;
    state.assert_is_whole_after(INTERVAL, server).await;
    state.used(&mut redis).await;
}
