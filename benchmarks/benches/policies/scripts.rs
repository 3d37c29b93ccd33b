//! The server's time for a script of ours and for the one by hand, in rounds that take turns.

use benchmarks::scripts::{ScriptsRun, reset};
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Limiter, RedissonClient};

use crate::compared::Compared;
use crate::subject::Subject;

/// Microseconds a call.
pub struct Scripts {
    pub granted: Compared,
    pub denied: Compared,
}

const ROUNDS: usize = 15;
const TARGETS: u64 = 5;
/// Requests that fill a target, and as many that are denied.
const LIMIT: u32 = 100;

pub async fn measure(
    redis: &mut MultiplexedConnection,
    client: &RedissonClient,
    subject: &Subject,
) -> Scripts {
    let limiter = subject.limiter(client, LIMIT);
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        forget_all(redis).await;
        let mut ours = [0.0; 2];
        // The first one loads the script.
        let _ = limiter.check("first", 1).await.expect("a decision");
        for of in [0, 1] {
            reset(redis).await;
            for target in 0..TARGETS {
                fill(&*limiter, &format!("user:{target}"), of == 0).await;
            }
            ours[of] = micros_a_call(redis).await;
        }
        forget_all(redis).await;
        for of in [0, 1] {
            reset(redis).await;
            for target in 0..TARGETS {
                let script = subject.by_hand(&format!("user:{target}"), LIMIT);
                for place in 0..LIMIT {
                    let request = script.request(u64::from(place));
                    let answer: Vec<i64> = request.query_async(redis).await.expect("an answer");
                    assert!(answer[0] == 1 || of == 1, "{}", subject.name);
                }
            }
            rounds[of].push([ours[of], micros_a_call(redis).await]);
        }
    }
    let [granted, denied] = rounds.map(|rounds| Compared::of(&rounds));
    Scripts { granted, denied }
}

async fn fill(limiter: &dyn Limiter, key: &str, is_granted: bool) {
    for _ in 0..LIMIT {
        let decision = limiter
            .check_without_waiting(key, 1)
            .await
            .expect("a decision");
        // A token may have come in since.
        assert!(decision.is_granted() || !is_granted, "{limiter:?}");
    }
}

pub async fn forget_all(redis: &mut MultiplexedConnection) {
    let forgotten: redis::RedisResult<()> = redis::cmd("FLUSHALL").query_async(redis).await;
    forgotten.expect("an empty server");
}

async fn micros_a_call(redis: &mut MultiplexedConnection) -> f64 {
    ScriptsRun::read(redis).await.micros_a_call()
}
