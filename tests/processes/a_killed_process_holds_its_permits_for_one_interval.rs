//! Processes that hold permits and wait for more are killed at random moments: what they held is back one interval later,
//! and a process that lives is served all the time.

use std::time::Duration;

use redisson_rate_limiter::{RRateLimiter, Rate, RedissonClient};
use tokio::time::sleep;

use crate::child::Task;
use crate::parent::ChildProcess;
use crate::scaled;
use crate::seeded::Seeded;
use crate::state::State;
use crate::support::Server;

const INTERVAL: Duration = Duration::from_millis(100);
const RATE: u64 = 60;
/// How many processes live at a time, beside the one that is not killed.
const VICTIMS: usize = 2;

#[tokio::test]
async fn after_many_kills_all_permits_are_there() {
    let random = Seeded::new();
    let mut moments = random.branch(0);
    let server = Server::start();
    let mut redis = server.connection().await;
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let rate = Rate::overall(RATE, INTERVAL);
    client.rate_limiter("a").set_rate(rate).await.unwrap();
    let state = State::of("a", RATE);
    let task = |number, waits| Task {
        url: server.url(),
        number,
        response_timeout: Duration::from_secs(60),
        limiters: vec!["a".into()],
        steps: 1_000_000,
        waits,
    };

    let survivor = Task {
        steps: 100,
        ..task(0, scaled(20))
    };
    let mut survivor = ChildProcess::start(&survivor, &random).await;
    survivor.go().await;
    let mut victims = Vec::new();
    for number in 0..scaled(20) {
        let mut victim = ChildProcess::start(&task(number + 1, 1_000_000), &random).await;
        victim.go().await;
        victims.push(victim);
        sleep(Duration::from_millis(moments.below(100))).await;
        state.used(&mut redis).await;
        if victims.len() > VICTIMS {
            let which = moments.below(victims.len() as u64) as usize;
            victims.swap_remove(which).kill().await;
            state.used(&mut redis).await;
        }
    }
    let ledgers = survivor.ledgers().await;
    println!("the survivor: {ledgers:?}, {random}");
    for victim in victims {
        victim.kill().await;
    }
    survivor.kill().await;
    state.used(&mut redis).await;
    state.assert_is_whole_after(INTERVAL, &server).await;
}
