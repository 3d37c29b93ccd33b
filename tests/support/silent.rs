//! A connection over which no answer comes back, and that has no timeout.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value};
use tokio::time::sleep;

#[derive(Clone)]
pub struct Silent {
    tells_the_time_after: Option<Duration>,
    scripts: Arc<AtomicUsize>,
}

impl Silent {
    pub fn altogether() -> Self {
        Self {
            tells_the_time_after: None,
            scripts: Arc::default(),
        }
    }

    /// Answers with the server's time, after a while, and with nothing else.
    pub fn but_for_the_time(after: Duration) -> Self {
        Self {
            tells_the_time_after: Some(after),
            ..Self::altogether()
        }
    }

    /// How many scripts were sent.
    pub fn scripts(&self) -> usize {
        self.scripts.load(Ordering::Relaxed)
    }
}

impl ConnectionLike for Silent {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            if command.get_packed_command().ends_with(b"TIME\r\n") {
                if let Some(after) = self.tells_the_time_after {
                    sleep(after).await;
                    let part = |text: &str| Value::BulkString(text.as_bytes().to_vec());
                    return Ok(Value::Array(vec![part("1700000000"), part("0")]));
                }
            } else {
                self.scripts.fetch_add(1, Ordering::Relaxed);
            }
            pending().await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _pipeline: &'a Pipeline,
        _offset: usize,
        _count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(pending())
    }

    fn get_db(&self) -> i64 {
        0
    }
}
