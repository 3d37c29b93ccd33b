//! A keyed limiter beside RRateLimiters that the caller has at hand, in rounds that alternate. All
//! run the same script. A keyed limiter always has a keep alive, which takes the server two more
//! commands, so it is compared with one that has the same.

use std::{sync::Arc, time::Duration};

use benchmarks::median;
use compat_tests::Server;
use redisson_rate_limiter::{Limiter, Rate, RedissonClient, Result};

use crate::measure::{CALLERS, ROUND, round};
use crate::subject::Named;

const ROUNDS: usize = 15;
/// How many times as much a keyed limiter may take.
const GOAL: f64 = 1.15;
const SECOND: Duration = Duration::from_secs(1);
/// More than anybody asks for in a second.
const PLENTY: u64 = 10_000_000;

/// Prints whether the goal is met, for a single caller and for many.
pub async fn print(server: &Server) {
    let [plain, kept, keyed] = limiters(server).await.expect("limiters");
    for callers in [1, CALLERS] {
        let of_all = async |limiter: &Arc<dyn Limiter>| {
            round(&vec![Arc::clone(limiter); callers], ROUND).await
        };
        let (mut of_plain, mut of_kept, mut speeds) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let speed = of_all(&keyed).await;
            speeds.push(speed);
            of_kept.push(of_all(&kept).await / speed);
            of_plain.push(of_all(&plain).await / speed);
        }
        let [of_kept, of_plain, speed] = [of_kept, of_plain, speeds].map(median);
        let is_met = if of_kept <= GOAL { "met" } else { "missed" };
        println!(
            "Goal: KeyedRateLimiter within {GOAL} of an RRateLimiter with the same keep alive, {callers} callers: {is_met}, \
             {of_kept:.2} times ({speed:.0}/s); {of_plain:.2} times one without keep alive"
        );
    }
}

/// Each of another name: a handle on the same limiter would keep its queue for the keyed one.
async fn limiters(server: &Server) -> Result<[Arc<dyn Limiter>; 3]> {
    let client = RedissonClient::connect(&server.url()).await?;
    let rate = Rate::overall(PLENTY, SECOND);
    let kept_rate = rate.keep_alive(60 * SECOND);
    let [plain, kept] = ["plain", "kept"].map(|name| client.rate_limiter(name));
    plain.set_rate(rate).await?;
    kept.set_rate(kept_rate).await?;
    let keyed = client.keyed_rate_limiter("", kept_rate)?;
    Ok([
        Arc::new(Named(plain)),
        Arc::new(Named(kept)),
        Arc::new(keyed),
    ])
}
