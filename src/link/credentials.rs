//! Credentials of a connection.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::box_future::BoxFuture;

/// A user name and a password, or a password alone.
///
/// ```
/// use redisson_rate_limiter::Credentials;
///
/// let credentials = Credentials::new("worker", "s3cret");
/// assert_eq!(format!("{credentials:?}"), r#"Credentials { username: Some("worker"), .. }"#);
/// ```
#[derive(Clone)]
pub struct Credentials {
    pub(super) username: Option<String>,
    pub(super) password: String,
}

impl Credentials {
    /// Logs in as a user of the server's ACL.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let credentials = Credentials::new("worker", "s3cret");
    /// assert!(!format!("{credentials:?}").contains("s3cret"));
    /// # Ok(()) }
    /// ```
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: Some(username.into()),
            password: password.into(),
        }
    }

    /// Logs in as the default user.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let credentials = Credentials::password("s3cret");
    /// assert_eq!(format!("{credentials:?}"), "Credentials { username: None, .. }");
    /// # Ok(()) }
    /// ```
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            username: None,
            password: password.into(),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

type CredentialsFuture = BoxFuture<'static, Result<Credentials, RedisError>>;

/// Provides the credentials of each new connection.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Fn() -> CredentialsFuture + Send + Sync>);

impl Provider {
    pub(crate) fn new<F, A, E>(provide: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let answer = provide();
            Box::pin(async move {
                answer.await.map_err(|error| {
                    let error = error.into().to_string();
                    (ErrorKind::Io, "the credentials provider failed", error).into()
                })
            })
        }))
    }

    pub(super) async fn credentials(&self) -> Result<Credentials, RedisError> {
        (self.0)().await
    }
}
