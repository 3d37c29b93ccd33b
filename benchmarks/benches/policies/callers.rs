//! 256 callers on one key that ask again as soon as they have an answer, through a limiter, and
//! each with a bare call of the script by hand over one connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Limiter, RedissonClient};
use tokio::task::JoinSet;

use crate::compared::Compared;
use crate::subject::{ByHand, Subject};

pub const CALLERS: u64 = 256;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(250);
/// More than anybody takes in a round.
const LIMIT: u32 = 1_000_000;

/// Decisions a second.
pub async fn measure(
    redis: &MultiplexedConnection,
    client: &RedissonClient,
    subject: &Subject,
) -> Compared {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        crate::scripts::forget_all(&mut redis.clone()).await;
        let limiter = subject.limiter(client, LIMIT);
        let end = Instant::now() + ROUND;
        let callers = (0..CALLERS).map(|_| ask(Arc::clone(&limiter), end));
        let ours = decisions_a_second(callers).await;

        crate::scripts::forget_all(&mut redis.clone()).await;
        let script = Arc::new(subject.by_hand("key", LIMIT));
        let end = Instant::now() + ROUND;
        let callers =
            (0..CALLERS).map(|caller| call(Arc::clone(&script), redis.clone(), caller, end));
        rounds.push([ours, decisions_a_second(callers).await]);
    }
    Compared::of(&rounds)
}

async fn decisions_a_second<C>(callers: impl Iterator<Item = C>) -> f64
where
    C: Future<Output = u64> + Send + 'static,
{
    let start = Instant::now();
    let asking: JoinSet<u64> = callers.collect();
    let decisions: u64 = asking.join_all().await.into_iter().sum();
    decisions as f64 / start.elapsed().as_secs_f64()
}

async fn ask(limiter: Arc<dyn Limiter>, end: Instant) -> u64 {
    let mut decisions = 0;
    while Instant::now() < end {
        let decision = limiter
            .check_without_waiting("key", 1)
            .await
            .expect("a decision");
        assert!(decision.is_granted());
        decisions += 1;
    }
    decisions
}

async fn call(
    script: Arc<ByHand>,
    mut redis: MultiplexedConnection,
    caller: u64,
    end: Instant,
) -> u64 {
    let mut decisions = 0;
    while Instant::now() < end {
        let request = script.request((caller << 32) | decisions);
        let answer: Vec<i64> = request.query_async(&mut redis).await.expect("an answer");
        assert_eq!(answer[0], 1);
        decisions += 1;
    }
    decisions
}
