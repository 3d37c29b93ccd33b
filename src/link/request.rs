//! What is sent over a connection: a command, or the call of a script.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};

use super::failure::closed;
use super::supplied::SendsCommands;

/// Sends commands over a connection of this crate's own, or over one that the application supplies.
pub(super) enum Sender {
    Own(MultiplexedConnection),
    Supplied(Arc<dyn SendsCommands>),
}

impl Sender {
    /// Returns the connection for a task that sends commands in the background.
    pub(super) fn shared(&self) -> Arc<dyn SendsCommands> {
        match self {
            Self::Own(connection) => Arc::new(connection.clone()),
            Self::Supplied(connection) => Arc::clone(connection),
        }
    }

    /// Sends several commands at once. Only the set-up of a connection, a cluster and the
    /// subscriber do that, and none of them uses a supplied connection.
    pub(super) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let Self::Own(connection) = self else {
            return Err(closed());
        };
        let mut connection = connection.clone();
        connection
            .send_packed_commands(commands, 0, commands.len())
            .await
    }
}

/// A command on its way to a server.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) command: &'a Cmd,
    /// Sent to a node of a cluster that the command's slot is moving to.
    pub(super) asking: bool,
}

impl Outgoing<'_> {
    pub(super) async fn send(self, sender: &Sender) -> Result<Value, RedisError> {
        if !self.asking {
            return match sender {
                Sender::Own(connection) => {
                    connection.clone().send_packed_command(self.command).await
                }
                Sender::Supplied(connection) => connection.send(self.command).await,
            };
        }
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(self.command.clone());
        let mut answers = sender.send_all(&both).await?;
        let answer = answers.pop().unwrap_or_default();
        match answers.pop() {
            // Without it the node only redirects the command.
            Some(Value::ServerError(refused)) => Err(refused.into()),
            _ => Ok(answer),
        }
    }
}

/// A call of a script.
#[derive(Clone, Copy)]
pub(crate) struct ScriptCall<'a> {
    /// Which script it is.
    pub(crate) number: usize,
    pub(crate) by_hash: &'a Cmd,
    /// Makes the command with the script's text, which is thousands of bytes, in place of its hash.
    pub(crate) by_source: &'a (dyn Fn() -> Cmd + Sync),
}

/// What is to be sent.
#[derive(Clone, Copy)]
pub(crate) enum Message<'a> {
    Command(&'a Cmd),
    Script(ScriptCall<'a>),
}

impl Message<'_> {
    /// A command with the keys of the message.
    pub(super) fn command(&self) -> &Cmd {
        match self {
            Self::Command(command) => command,
            Self::Script(script) => script.by_hash,
        }
    }
}
