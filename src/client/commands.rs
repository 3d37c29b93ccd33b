//! Commands of the application's own, over the client's connections.

use std::fmt;
use std::sync::Arc;

use redis::{Cmd, Value};

use super::RedissonClient;
use crate::error::{Error, Result};
use crate::limiters::Registry;
use crate::link::Reached;
use crate::store::redis::RedisStore;

/// A server that a client is connected to, on a cluster a primary: for commands to each of them,
/// such as `SCAN` and `INFO`. From [`RedissonClient::servers`].
#[derive(Clone)]
pub struct Server {
    registry: Arc<Registry>,
    reached: Arc<Reached>,
}

/// What a server answers to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// Nothing, such as the value of a key that does not exist.
    Nil,
    /// A number.
    Integer(i64),
    /// A text, or other bytes.
    Bytes(Vec<u8>),
    /// A list. The list of a map alternates keys and values.
    Array(Vec<Reply>),
    /// An error in a list.
    Error(String),
}

/// With the feature `redis`, which is on by default.
impl RedissonClient {
    /// Sends a command that this crate has no method for, over the client's own connections: on a
    /// cluster to the node that has its keys. It is for tools that look at the keys and servers; no
    /// limiter needs it. A client in memory has no server.
    ///
    /// A command that did not reach the server is sent again; one that may have run is not.
    ///
    /// ```no_run
    /// # use redisson_rate_limiter::*;
    /// # async fn inspect(client: RedissonClient) -> Result<()> {
    /// let limiter = client.rate_limiter("orders:api");
    /// let [_, _, _, permits, _] = limiter.keys();
    /// if let Reply::Integer(grants) = client.command(["ZCARD", permits]).await? {
    ///     println!("{grants} grants are stored");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::StoreUnavailable`]; [`Error::Indeterminate`] (sent, but not answered);
    /// [`Error::AuthenticationFailed`]; [`Error::PermissionDenied`]; [`Error::BadState`] (the key
    /// has another type); [`Error::Redis`] for any other error that the server answers with;
    /// [`Error::NoRuntime`]; [`Error::InvalidArgument`] in memory.
    ///
    /// # Cancel safety
    /// The command may run although the future is dropped.
    pub async fn command<W: AsRef<[u8]>>(
        &self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Reply> {
        let command = command(words);
        let answer = store(&self.0)?.command(&command).await?;
        Ok(answer.into())
    }

    /// The servers that the client uses, on a cluster its primaries. Sends nothing. A client in
    /// memory has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// assert!(RedissonClient::in_memory().servers()?.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside a tokio runtime.
    pub fn servers(&self) -> Result<Vec<Server>> {
        let Some(store) = self.0.store.redis() else {
            return Ok(Vec::new());
        };
        let reached = store.servers()?.into_iter().map(|reached| Server {
            registry: Arc::clone(&self.0),
            reached: Arc::new(reached),
        });
        Ok(reached.collect())
    }
}

impl Server {
    /// The server's address, or the addresses of its Sentinels, without credentials.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.reached.name
    }

    /// Sends a command to this server; otherwise like [`RedissonClient::command`].
    ///
    /// ```no_run
    /// # use redisson_rate_limiter::*;
    /// # async fn inspect(client: RedissonClient) -> Result<()> {
    /// for server in client.servers()? {
    ///     println!("{}: {:?} keys", server.address(), server.command(["DBSIZE"]).await?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::command`].
    ///
    /// # Cancel safety
    /// As [`RedissonClient::command`].
    pub async fn command<W: AsRef<[u8]>>(
        &self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Reply> {
        let command = command(words);
        let store = store(&self.registry)?;
        Ok(store.command_on(&self.reached, &command).await?.into())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

fn store(registry: &Registry) -> Result<&RedisStore> {
    registry.store.redis().ok_or(Error::InvalidArgument {
        argument: "command",
        reason: "needs a server, and the client is in memory",
    })
}

fn command<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        let all = |values: Vec<Value>| Self::Array(values.into_iter().map(Self::from).collect());
        let text = |text: String| Self::Bytes(text.into_bytes());
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::Boolean(is_so) => Self::Integer(is_so.into()),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::Okay => text("OK".to_owned()),
            Value::SimpleString(said) | Value::VerbatimString { text: said, .. } => text(said),
            Value::Double(number) => text(number.to_string()),
            Value::Array(values) | Value::Set(values) => all(values),
            Value::Map(pairs) => all(pairs.into_iter().flat_map(|(key, it)| [key, it]).collect()),
            Value::Attribute { data, .. } => (*data).into(),
            Value::ServerError(error) => Self::Error(error.to_string()),
            other => text(format!("{other:?}")),
        }
    }
}
