//! Turns a server's refusal of a call into the limiter's error.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::Error;
use crate::keys::SEVERAL_SLOTS;
use crate::link::failure;

/// The error of a call that the server has refused. `sent_before` says whether an earlier attempt
/// may have run.
pub(super) fn of_call(name: &str, error: RedisError, sent_before: bool) -> Error {
    match of_answer(name, error) {
        // These errors say that the keys hold no limiter now, so what an earlier attempt took is
        // gone.
        error @ (Error::NotInitialized { .. } | Error::BadState { .. }) => error,
        error if sent_before => Error::Indeterminate {
            source: Some(Arc::new(error)),
        },
        error => error,
    }
}

/// The error of a refused call on the limiter of this name, which is empty for an application's own
/// command.
pub(super) fn of_answer(name: &str, error: RedisError) -> Error {
    let text = error.detail().unwrap_or_default();
    let code = error.code().unwrap_or_default();
    if code == "UNINITIALIZED" {
        Error::not_initialized(name)
    } else if code == "BADSTATE" || code == "WRONGTYPE" || text.contains("WRONGTYPE") {
        // Before Redis 7, the code of Redis's own error inside a script is in its text.
        Error::BadState {
            name: name.to_owned(),
            source: Some(Arc::new(error)),
        }
    } else {
        let spans_slots = error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot);
        match failure::of_answer(error) {
            Error::Redis { .. } if spans_slots && !name.is_empty() => Error::InvalidName {
                name: name.to_owned(),
                reason: SEVERAL_SLOTS,
            },
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    #[test]
    fn a_refused_retry_may_have_run_unless_the_limiter_is_gone() {
        let refused = |code: &str, sent_before| {
            let error = make_extension_error(code.to_owned(), None);
            of_call("limiter", error, sent_before)
        };
        let denied = refused("NOPERM", false);
        assert!(matches!(denied, Error::PermissionDenied { .. }));
        match refused("NOPERM", true) {
            Error::Indeterminate {
                source: Some(cause),
            } => {
                let cause = cause.downcast_ref::<Error>();
                assert!(matches!(cause, Some(Error::PermissionDenied { .. })));
            }
            other => panic!("{other:?}"),
        }
        let gone = refused("UNINITIALIZED", true);
        assert!(matches!(gone, Error::NotInitialized { .. }));
    }
}
