//! What is sent over a connection: a command, or the call of a script.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

/// A command on its way to a server.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) command: &'a Cmd,
    /// Sent to a node of a cluster that the command's slot is moving to.
    pub(super) asking: bool,
}

impl Outgoing<'_> {
    pub(super) async fn send(
        self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Value, RedisError> {
        if !self.asking {
            return connection.send_packed_command(self.command).await;
        }
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(self.command.clone());
        let mut answers = connection.send_packed_commands(&both, 0, 2).await?;
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
    /// The same call with the script's text, which is thousands of bytes.
    pub(crate) by_source: &'a (dyn Fn() -> Cmd + Sync),
}

/// What is to be sent.
#[derive(Clone, Copy)]
pub(crate) enum Message<'a> {
    Command(&'a Cmd),
    Script(ScriptCall<'a>),
}

impl Message<'_> {
    /// A command that names the keys.
    #[cfg(feature = "cluster")]
    pub(super) fn command(&self) -> &Cmd {
        match self {
            Self::Command(command) => command,
            Self::Script(script) => script.by_hash,
        }
    }
}
