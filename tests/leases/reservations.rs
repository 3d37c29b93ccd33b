//! Processes that hold reservations are killed, or stopped and continued: before the permits are
//! usable, then, and after.

use std::time::Duration;

use redisson_rate_limiter::Rate;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clients::patient;
use crate::process::{ChildProcess, Task};
use crate::state::State;
use crate::support::Server;
use crate::uses::{Uses, micros, most_in_a_window};

const RATE: u64 = 100;
const INTERVAL: Duration = Duration::from_millis(600);

/// What happens to a process.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Killed,
    Stopped(Duration),
}

#[tokio::test]
async fn reservations_of_killed_and_stopped_processes_keep_to_the_rate() {
    let server = Server::start();
    let limiter = patient(&server.url()).await.rate_limiter("limiter");
    limiter
        .set_rate(Rate::overall(RATE, INTERVAL))
        .await
        .unwrap();
    let task = Task {
        url: server.url(),
        lease: 60,
        pause: 3_000,
        waits: false,
        reserves: 0,
    };
    // All at once, so that each reservation is for later.
    let uses = Uses::default();
    let all = async { limiter.try_acquire(RATE as u32).await.unwrap() };
    assert!(uses.note(RATE as u32, all).await);
    let mut others = [60, 0].map(|lease| {
        ChildProcess::start(&Task {
            lease,
            ..task.clone()
        })
    });
    let mut victims = JoinSet::new();
    for fate in [
        Fate::Killed,
        Fate::Stopped(INTERVAL / 2),
        Fate::Stopped(3 * INTERVAL),
    ] {
        for late in [None, Some(0), Some(5_000), Some(100_000)] {
            let reserving = Task {
                reserves: 8,
                pause: 200_000,
                ..task.clone()
            };
            victims.spawn(async move {
                let mut victim = ChildProcess::start(&reserving);
                let usable_at = victim.reserved().await;
                if let Some(late) = late {
                    let until = usable_at + late - micros();
                    sleep(Duration::from_micros(until.max(0) as u64)).await;
                }
                if let Fate::Stopped(time) = fate {
                    victim.signal("STOP");
                    sleep(time).await;
                    victim.signal("CONT");
                    sleep(INTERVAL / 4).await; // it goes on
                }
                victim.kill().await
            });
        }
    }
    let reserved = victims.join_all().await.concat();
    assert!(!reserved.is_empty(), "no reservation was used");
    uses.add(reserved);
    others[0].until_used(2 * RATE as usize + 1).await;
    for other in others {
        uses.add(other.kill().await);
    }
    assert!(uses.len() > 2 * RATE as usize, "{} were used", uses.len());
    let most = most_in_a_window(uses.all(), INTERVAL);
    assert!(most <= RATE as usize, "{most} in a window");
    let state = State::of("limiter", RATE);
    state.assert_is_whole_after(INTERVAL, &server).await;
    state.used(&mut server.connection().await).await;
}
