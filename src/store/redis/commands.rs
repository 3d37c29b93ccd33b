//! Commands of the application's own.

use redis::{Cmd, Value};

use super::client::RedisStore;
use crate::error::{Error, Result};
use crate::link::limits::Repeat;
use crate::link::{Message, Reached};

impl RedisStore {
    /// The servers, on a cluster the primaries.
    pub(crate) fn servers(&self) -> Result<Vec<Reached>> {
        self.connection.servers().map_err(|_| Error::NoRuntime)
    }

    /// Sends a command to the server that has its keys, at most once.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value> {
        let mut attempts = self.attempts("", self.deadline(), Repeat::Never);
        let message = Message::Command(command);
        attempts
            .run(|limits| self.connection.send(message, limits))
            .await
    }

    /// Sends a command to one server, at most once.
    pub(crate) async fn command_on(&self, server: &Reached, command: &Cmd) -> Result<Value> {
        self.ask(server, command, self.deadline(), Repeat::Never)
            .await
    }
}
