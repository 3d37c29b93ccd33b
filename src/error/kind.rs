//! The kinds of errors, for labels.

use std::fmt;

use super::Error;

/// The kind of an [`Error`], whose [text](Self::as_str) is a label of metrics or logs.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// let error = limiter.try_acquire(1).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotInitialized);
/// assert_eq!(error.kind().as_str(), "not_initialized");
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::NotInitialized`].
    NotInitialized,
    /// [`Error::ExceedsLimit`].
    ExceedsLimit,
    /// [`Error::QueueFull`].
    QueueFull,
    /// [`Error::Closed`].
    Closed,
    /// [`Error::ReservationExpired`].
    ReservationExpired,
    /// [`Error::ExpiresTooSoon`].
    ExpiresTooSoon,
    /// [`Error::InvalidArgument`], or [`Error::UnknownUrlParameter`].
    InvalidArgument,
    /// [`Error::InvalidName`].
    InvalidName,
    /// [`Error::InvalidRule`], or [`Error::InvalidRules`].
    InvalidRule,
    /// [`Error::Indeterminate`].
    Indeterminate,
    /// [`Error::StoreUnavailable`].
    StoreUnavailable,
    /// [`Error::NoRuntime`].
    NoRuntime,
    /// [`Error::AuthenticationFailed`].
    AuthenticationFailed,
    /// [`Error::PermissionDenied`].
    PermissionDenied,
    /// [`Error::BadState`].
    BadState,
    /// [`Error::Redis`].
    Redis,
}

impl ErrorKind {
    /// The variant's name in snake case, such as `store_unavailable`. Later versions do not change
    /// it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotInitialized => "not_initialized",
            Self::ExceedsLimit => "exceeds_limit",
            Self::QueueFull => "queue_full",
            Self::Closed => "closed",
            Self::ReservationExpired => "reservation_expired",
            Self::ExpiresTooSoon => "expires_too_soon",
            Self::InvalidArgument => "invalid_argument",
            Self::InvalidName => "invalid_name",
            Self::InvalidRule => "invalid_rule",
            Self::Indeterminate => "indeterminate",
            Self::StoreUnavailable => "store_unavailable",
            Self::NoRuntime => "no_runtime",
            Self::AuthenticationFailed => "authentication_failed",
            Self::PermissionDenied => "permission_denied",
            Self::BadState => "bad_state",
            Self::Redis => "redis",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// The kind of this error, without what it contains.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotInitialized { .. } => ErrorKind::NotInitialized,
            Self::ExceedsLimit { .. } => ErrorKind::ExceedsLimit,
            Self::QueueFull { .. } => ErrorKind::QueueFull,
            Self::Closed => ErrorKind::Closed,
            Self::ReservationExpired { .. } => ErrorKind::ReservationExpired,
            Self::ExpiresTooSoon { .. } => ErrorKind::ExpiresTooSoon,
            Self::InvalidArgument { .. } | Self::UnknownUrlParameter { .. } => {
                ErrorKind::InvalidArgument
            }
            Self::InvalidName { .. } => ErrorKind::InvalidName,
            Self::InvalidRule { .. } | Self::InvalidRules { .. } => ErrorKind::InvalidRule,
            Self::Indeterminate { .. } => ErrorKind::Indeterminate,
            Self::StoreUnavailable { .. } => ErrorKind::StoreUnavailable,
            Self::NoRuntime => ErrorKind::NoRuntime,
            Self::AuthenticationFailed { .. } => ErrorKind::AuthenticationFailed,
            Self::PermissionDenied { .. } => ErrorKind::PermissionDenied,
            Self::BadState { .. } => ErrorKind::BadState,
            Self::Redis { .. } => ErrorKind::Redis,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// One of each variant.
    fn errors() -> Vec<Error> {
        let (name, source) = (String::new, || Arc::new(fmt::Error));
        vec![
            Error::NotInitialized { name: name() },
            Error::ExceedsLimit {
                name: name(),
                requested: 2,
                limit: 1,
            },
            Error::QueueFull {
                name: name(),
                waiters: 1,
            },
            Error::Closed,
            Error::ReservationExpired { name: name() },
            Error::ExpiresTooSoon { name: name() },
            Error::InvalidArgument {
                argument: "",
                reason: "",
            },
            Error::InvalidName {
                name: name(),
                reason: "",
            },
            Error::InvalidRule {
                rule: name(),
                reason: String::new(),
            },
            Error::Indeterminate { source: None },
            Error::not_sent(),
            Error::NoRuntime,
            Error::AuthenticationFailed { source: source() },
            Error::PermissionDenied { source: source() },
            Error::BadState {
                name: name(),
                source: None,
            },
            Error::Redis { source: source() },
        ]
    }

    #[test]
    fn the_label_of_an_error_is_the_name_of_its_variant_in_snake_case() {
        let labels = "not_initialized exceeds_limit queue_full closed reservation_expired expires_too_soon invalid_argument invalid_name invalid_rule indeterminate \
                      store_unavailable no_runtime authentication_failed permission_denied bad_state redis";
        let errors = errors();
        assert_eq!(labels.split_whitespace().count(), errors.len());
        for (error, label) in errors.iter().zip(labels.split_whitespace()) {
            assert_eq!(error.kind().as_str(), label);
            assert_eq!(error.kind().to_string(), label);
            let words = label.split('_').map(|word| {
                let (first, rest) = word.split_at(1);
                first.to_uppercase() + rest
            });
            let variant: String = words.collect();
            assert_eq!(format!("{:?}", error.kind()), variant);
            let printed = format!("{error:?}");
            assert_eq!(printed.split([' ', '{']).next(), Some(&*variant));
        }
    }
}
