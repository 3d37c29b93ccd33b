//! A connection of redis-rs that the application supplies. Its own retries and timeouts stay in force.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::round_trip::RoundTrip;
use crate::store::redis::failure::{self, Failure, timed_out};
use crate::store::redis::retry::Limits;

type Answer<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// Any connection of redis-rs that many callers can share.
pub(crate) trait Given: Send + Sync + 'static {
    fn send<'a>(&'a self, command: &'a Cmd) -> Answer<'a>;
}

pub(super) struct Cloned<C>(pub(super) C);

impl<C> Given for Cloned<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send<'a>(&'a self, command: &'a Cmd) -> Answer<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}

/// A connection over which nothing comes back.
#[cfg(test)]
pub(crate) struct Silent;

#[cfg(test)]
impl Given for Silent {
    fn send<'a>(&'a self, _command: &'a Cmd) -> Answer<'a> {
        Box::pin(std::future::pending())
    }
}

/// Sends a command, and waits for its answer until the deadline, whatever the connection's own timeouts are. What cannot
/// be answered by then is not sent.
pub(super) async fn send(
    connection: &dyn Given,
    command: &Cmd,
    limits: Limits,
    round_trip: &RoundTrip,
    response_timeout: Duration,
) -> Result<Value, Failure> {
    if !round_trip.fits(limits.deadline, response_timeout) {
        return Err(Failure::NotSent(timed_out()));
    }
    let start = Instant::now();
    let Ok(answer) = timeout_at(limits.deadline, connection.send(command)).await else {
        return Err(Failure::Lost(None));
    };
    let answer = answer.and_then(failure::extract_error);
    let answer = answer.map_err(Failure::from);
    if failure::is_answered(&answer) {
        round_trip.learn(start.elapsed());
    }
    answer
}
