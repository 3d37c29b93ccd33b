//! A connection of redis-rs that the application supplies. Its own retries and timeouts stay in
//! force.

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};

use crate::box_future::BoxFuture;

/// Any connection of redis-rs that many callers can share.
pub(crate) trait SendsCommands: Send + Sync + 'static {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SendsCommands for C {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}

/// A connection over which nothing comes back.
#[cfg(test)]
pub(crate) struct Silent;

#[cfg(test)]
impl SendsCommands for Silent {
    fn send<'a>(&'a self, _command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(std::future::pending())
    }
}
