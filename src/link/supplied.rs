//! The route over a connection that the application supplies, with what is known of its server.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::address::Endpoint;
use super::failure::{self, Failure, timed_out};
use super::given::Given;
use super::known_scripts::KnownScripts;
use super::limits::Limits;
use super::one_server::OneServer;
use super::request::Message;
use super::resolver::Resolver;
use super::round_trip::{self, Pace, RoundTrip};
use super::server_link::Reached;
use super::settings::Settings;
use crate::breaker::{Breaker, Breakers};

pub(super) struct Supplied {
    connection: Arc<dyn Given>,
    one_server: Arc<OneServer>,
    scripts: KnownScripts,
    breaker: Arc<Breaker>,
    round_trip: RoundTrip,
    response_timeout: Duration,
}

impl Supplied {
    pub(super) fn new(
        connection: impl Given,
        response_timeout: Duration,
        breakers: &Arc<Breakers>,
    ) -> Self {
        let server = "the application's connection".to_owned();
        Self {
            connection: Arc::new(connection),
            one_server: Arc::default(),
            scripts: KnownScripts::default(),
            breaker: Breaker::new(server, response_timeout, Arc::clone(breakers)),
            round_trip: RoundTrip::default(),
            response_timeout,
        }
    }

    pub(super) fn is_one_server(&self, key: &str) -> bool {
        let connection = || Arc::clone(&self.connection);
        self.one_server.has_all_keys(key, connection)
    }

    pub(super) fn refuses_several_keys(&self) {
        self.one_server.is_refused();
    }

    pub(super) fn node_of(&self, _key: &str) -> Option<Endpoint> {
        None
    }

    pub(super) fn way_to(&self, _node: Option<&Endpoint>) -> Option<(Arc<Resolver>, &Settings)> {
        None
    }

    pub(super) async fn ready(&self, _key: &str, _deadline: Instant) -> Result<Pace, Failure> {
        Ok(Pace {
            silence_limit: round_trip::LONGEST,
            ..self.round_trip.pace()
        })
    }

    pub(super) fn pace(&self, _key: &[u8]) -> Option<Pace> {
        Some(self.round_trip.pace())
    }

    pub(super) fn breaker(&self, _key: &str) -> Option<Arc<Breaker>> {
        Some(Arc::clone(&self.breaker))
    }

    pub(super) fn breakers(&self) -> Vec<Arc<Breaker>> {
        vec![Arc::clone(&self.breaker)]
    }

    pub(super) fn servers(&self) -> Result<Vec<Reached>, Failure> {
        Ok(vec![Reached::only(&self.breaker)])
    }

    /// Sends a message, and waits for its answer until the deadline, whatever the connection's own
    /// timeouts are. What cannot be answered by then is not sent.
    pub(super) async fn send(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        Handle::try_current().map_err(|_| Failure::NoRuntime)?;
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
