//! A connection of redis-rs that the application supplies. Its own retries and timeouts stay in
//! force.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::failure::{self, Failure, timed_out};
use super::known_scripts::KnownScripts;
use super::request::Message;
use super::retry::Limits;
use super::round_trip::RoundTrip;

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

/// Such a connection, with what is known of its server.
pub(super) struct Over<'a> {
    pub(super) connection: &'a dyn Given,
    pub(super) scripts: &'a KnownScripts,
    pub(super) round_trip: &'a RoundTrip,
    pub(super) response_timeout: Duration,
}

impl Over<'_> {
    /// Sends a message, and waits for its answer until the deadline, whatever the connection's own
    /// timeouts are. What cannot be answered by then is not sent.
    pub(super) async fn send(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let fits = |until| self.round_trip.fits(until, self.response_timeout);
        if !fits(limits.deadline) {
            return Err(Failure::NotSent(timed_out()));
        }
        let script = match message {
            Message::Command(command) => return self.call(command, limits).await,
            Message::Script(script) => script,
        };
        let fits_twice = self.round_trip.fits_twice(limits.valid_until);
        let mut sending = self.scripts.begin(script, fits_twice);
        loop {
            let text = sending.text();
            let command = text.as_ref().unwrap_or(script.by_hash);
            let result = self.call(command, limits).await;
            if let Some(result) = sending.after(result, fits(limits.valid_until)) {
                return result;
            }
        }
    }

    async fn call(&self, command: &Cmd, limits: Limits) -> Result<Value, Failure> {
        let start = Instant::now();
        let answer = timeout_at(limits.deadline, self.connection.send(command)).await;
        let Ok(answer) = answer else {
            return Err(Failure::Lost(None));
        };
        let answer = answer.and_then(failure::extract_error);
        let answer = answer.map_err(Failure::from);
        if failure::is_answered(&answer) {
            self.round_trip.learn(start.elapsed());
        }
        answer
    }
}
