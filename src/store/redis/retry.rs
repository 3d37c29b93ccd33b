//! One call while it is sent, perhaps more than once: when it is retried, and which error ends it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::failure::{self, Failure};
use crate::error::{Error, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// May a call whose answer was lost be sent again?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Safe,
    Never,
}

/// One call while it is sent, perhaps more than once.
pub(super) struct Attempts {
    pub(super) deadline: Instant,
    pause: Duration,
    repeat: Repeat,
    /// Whether an earlier sending may have run.
    pub(super) sent_before: bool,
}

impl Attempts {
    pub(super) fn new(deadline: Instant, repeat: Repeat) -> Self {
        Self {
            deadline,
            pause: FIRST_PAUSE,
            repeat,
            sent_before: false,
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// One attempt: its answer, `None` for another try, or the error that ends the call.
    pub(super) async fn step(
        &mut self,
        name: &str,
        sending: impl Future<Output = RedisResult<Value>>,
    ) -> Result<Option<Value>> {
        match timeout_at(self.deadline, sending).await {
            Ok(result) => self.after(name, result).await,
            Err(_elapsed) => Err(Error::Indeterminate { source: None }),
        }
    }

    /// What follows from an attempt's result.
    pub(super) async fn after<T>(
        &mut self,
        name: &str,
        result: RedisResult<T>,
    ) -> Result<Option<T>> {
        let error = match result {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        match failure::classify(&error) {
            Failure::Refused => return Err(failure::of_answer(name, error)),
            Failure::Lost => {
                self.sent_before = true;
                if self.repeat == Repeat::Never {
                    return Err(self.give_up(error));
                }
            }
            Failure::NotSent | Failure::NotRun => {}
        }
        if self.remaining() <= self.pause {
            return Err(self.give_up(error));
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(None)
    }

    fn give_up(&self, error: RedisError) -> Error {
        let source = Arc::new(error);
        if self.sent_before {
            Error::Indeterminate {
                source: Some(source),
            }
        } else {
            Error::StoreUnavailable { source }
        }
    }
}
