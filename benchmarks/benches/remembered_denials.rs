//! Denials that are remembered: 256 callers of one limiter, mostly denied, against asking Redis for
//! each. The goal is 5,000,000 decisions a second, and no more calls than one in `AT_MOST`.
//!
//! `cargo bench -p benchmarks --bench remembered_denials`. It starts a `redis-server` of its own.

use std::time::{Duration, Instant};

use benchmarks::scripts::ScriptsRun;
use compat_tests::Server;
use redisson_rate_limiter::{LimiterOptions, Rate, RateLimiter, RedissonClient};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const CALLERS: usize = 256;
const AT_MOST: Duration = Duration::from_millis(100);
const RUN: Duration = Duration::from_secs(5);

fn main() {
    let server = Server::start();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        for at_most in [Duration::ZERO, AT_MOST] {
            let client = RedissonClient::connect(&server.url()).await.unwrap();
            let limiter = client.rate_limiter("logins").with_options(LimiterOptions::new().remember_denials(at_most));
            let rate = Rate::overall(1, Duration::from_secs(3_600));
            limiter.set_rate(rate).await.unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            let before = scripts_run(&server).await;
            let (decisions, time) = count_denials(&limiter).await;
            let calls = scripts_run(&server).await - before;
            let a_second = decisions as f64 / time.as_secs_f64();
            println!(
                "remember_denials({at_most:?}): {a_second:.0} decisions/s, {calls} calls in {time:.1?}"
            );
        }
    });
}

/// How many decisions all callers get, in which time.
async fn count_denials(limiter: &RateLimiter) -> (u64, Duration) {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let mut decisions = 0;
            while start.elapsed() < RUN {
                for _ in 0..100 {
                    assert!(!limiter.try_acquire(1).await.unwrap());
                }
                decisions += 100;
                tokio::task::yield_now().await;
            }
            decisions
        });
    }
    let decisions: Vec<u64> = callers.join_all().await;
    (decisions.iter().sum(), start.elapsed())
}

async fn scripts_run(server: &Server) -> u64 {
    ScriptsRun::read(&mut server.connection().await).await.calls
}
