//! Requests that share calls, and a connection that loses an answer.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::{
    Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use redisson_rate_limiter::{RateLimiter, Result};
use tokio::task::JoinSet;

/// All ask at the same time: the first ones send their calls, and the others share the next.
pub async fn many_callers(limiter: &RateLimiter, callers: usize) -> Result<()> {
    each_of_many(&vec![limiter.clone(); callers]).await
}

pub async fn each_of_many(limiters: &[RateLimiter]) -> Result<()> {
    let mut asking = JoinSet::new();
    for limiter in limiters {
        let limiter = limiter.clone();
        asking.spawn(async move { limiter.try_acquire(1).await });
    }
    let answers = asking.join_all().await;
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

/// Loses the answer to the next script.
#[derive(Clone)]
pub struct Losing {
    pub redis: MultiplexedConnection,
    pub next: Arc<AtomicBool>,
}

impl ConnectionLike for Losing {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let answer = self.redis.req_packed_command(command).await?;
            let name = command.args_iter().next();
            let is_script = matches!(name, Some(redis::Arg::Simple(b"EVALSHA" | b"EVAL")));
            if is_script && self.next.swap(false, Ordering::Relaxed) {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
            }
            Ok(answer)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.redis.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.redis.get_db()
    }
}
