//! What an error of redis-rs means for the call that met it.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::Error;

/// What is known of a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It never reached a server: it may be sent again.
    NotSent,
    /// The server said it did not run it, and that this will pass: it may be sent again.
    NotRun,
    /// It may have run: only a call that can be told from its own repetition may be sent again.
    Lost,
    /// The server answered; sending it again would change nothing.
    Refused,
}

pub(super) fn classify(error: &RedisError) -> Failure {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::ReadOnly,
        ) => Failure::NotRun,
        ErrorKind::ClusterConnectionNotFound => Failure::NotSent,
        ErrorKind::Io if error.is_connection_refusal() => Failure::NotSent,
        ErrorKind::Io | ErrorKind::Parse => Failure::Lost,
        _ => Failure::Refused,
    }
}

/// The error of a connection that was never made.
pub(super) fn of_connecting(error: RedisError) -> Error {
    match classify(&error) {
        Failure::Refused => of_answer("", error),
        _ => Error::StoreUnavailable {
            source: Arc::new(error),
        },
    }
}

/// The error that a server's refusal becomes.
pub(super) fn of_answer(name: &str, error: RedisError) -> Error {
    let name = name.to_owned();
    let text = error.detail().unwrap_or_default();
    let code = error.code().unwrap_or_default();
    // Before Redis 7 the code of an error inside a script stands in its text.
    let says = |word: &str| code == word || text.contains(word);
    if code == "UNINITIALIZED" {
        Error::NotInitialized { name }
    } else if code == "BADSTATE" || says("WRONGTYPE") {
        Error::BadState {
            name,
            source: Some(Arc::new(error)),
        }
    } else if error.kind() == ErrorKind::AuthenticationFailed || says("WRONGPASS") || says("NOAUTH")
    {
        Error::AuthenticationFailed {
            source: Arc::new(error),
        }
    } else if says("NOPERM") || text.contains("can't run this command") {
        Error::PermissionDenied {
            source: Arc::new(error),
        }
    } else if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) {
        Error::InvalidName {
            name,
            reason: "its braces would spread its keys over several slots of the cluster",
        }
    } else {
        Error::Redis {
            source: Arc::new(error),
        }
    }
}
