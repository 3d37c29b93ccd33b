//! A connection of redis-rs that the application supplies. Its own retries and timeouts stay in force.

use std::future::Future;
use std::pin::Pin;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};
use tokio::time::timeout_at;

use crate::store::redis::failure::{self, Failure};
use crate::store::redis::retry::Limits;

type Answer<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// Any connection of redis-rs that many callers can share.
pub(crate) trait Given: Send + Sync {
    fn send<'a>(&'a self, command: &'a Cmd) -> Answer<'a>;
}

pub(super) struct Shared<C>(pub(super) C);

impl<C> Given for Shared<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send<'a>(&'a self, command: &'a Cmd) -> Answer<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}

/// Sends a command, and waits for its answer until the deadline, whatever the connection's own timeouts are.
pub(super) async fn send(
    connection: &dyn Given,
    command: &Cmd,
    limits: Limits,
) -> Result<Value, Failure> {
    match timeout_at(limits.deadline, connection.send(command)).await {
        Ok(answer) => Ok(answer.and_then(failure::extract_error)?),
        Err(_elapsed) => Err(Failure::Lost(None)),
    }
}
