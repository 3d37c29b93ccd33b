//! Everything that can go wrong, each with its own variant.

mod kind;

use std::path::PathBuf;
use std::sync::Arc;

use crate::escaped::Escaped;
pub use kind::ErrorKind;

/// Why a call failed. A lack of permits is not an error but an answer: `false`, or a denial.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// let error = limiter.try_acquire(1).await.unwrap_err();
/// assert!(matches!(error, Error::NotInitialized { .. }));
/// assert_eq!(error.to_string(), "rate limiter `orders:api` is not initialized: it has no rate");
/// # }
/// ```
///
/// Later versions may add variants. The fields of a variant are complete, so that a
/// [`Limiter`](crate::Limiter) of your own can return any of them.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The limiter has no rate, and the handle knows none to create it with: see
    /// [`with_rate`](crate::RateLimiter::with_rate) and
    /// [`try_set_rate`](crate::RateLimiter::try_set_rate). Nothing changed.
    #[doc(alias = "RateLimiter is not initialized")]
    #[error("rate limiter `{}` is not initialized: it has no rate", Escaped(.name))]
    NotInitialized {
        /// The limiter's name in Redis.
        name: String,
    },
    /// More was asked for than the limiter ever has at once, the permits of its rate, its limit or
    /// its capacity: the request could never be granted. Nothing changed.
    #[doc(alias = "Requested permits amount could not exceed defined rate")]
    #[error("a request of {requested} can never be granted: the limit of `{}` is {limit}", Escaped(.name))]
    ExceedsLimit {
        /// The limiter's name in Redis, or the key of the target; of [`Rules`](crate::Rules), the
        /// rule's name.
        name: String,
        /// The permits, or the cost, asked for.
        requested: u32,
        /// The permits of one interval, the limit, or the capacity.
        limit: u64,
    },
    /// As many callers as allowed are already waiting for permits: see
    /// [`max_waiters`](crate::LimiterOptions::max_waiters). Nothing was sent, nothing changed, and
    /// no [`FailurePolicy`](crate::FailurePolicy) applies.
    #[doc(alias = "RejectedExecutionException")]
    #[error("`{}` already has {waiters} waiters", Escaped(.name))]
    QueueFull {
        /// The limiter's name in Redis.
        name: String,
        /// How many callers of this process wait.
        waiters: usize,
    },
    /// The client was [closed](crate::RedissonClient::close). The request took nothing, and no
    /// [`FailurePolicy`](crate::FailurePolicy) applies.
    #[doc(alias = "RedissonShutdownException")]
    #[error("the client is closed")]
    Closed,
    /// The time to use the permits of a [`Reservation`](crate::Reservation) is over. They are given
    /// back.
    #[error("the reservation of permits of `{}` has expired", Escaped(.name))]
    ReservationExpired {
        /// The limiter's name in Redis.
        name: String,
    },
    /// The limiter would expire while permits that are to be
    /// [reserved](crate::RateLimiter::reserve) still count: its keep alive or its time to live is
    /// too short. Nothing was taken.
    #[error("`{}` expires before what is reserved counts no longer", Escaped(.name))]
    ExpiresTooSoon {
        /// The limiter's name in Redis.
        name: String,
    },
    /// An argument is out of its documented range. Nothing was sent.
    #[error("invalid argument: `{argument}` {reason}")]
    InvalidArgument {
        /// The parameter's name.
        argument: &'static str,
        /// What it must be.
        reason: &'static str,
    },
    /// The URL has a parameter behind its `?` that no connection knows: `db` and `protocol` are
    /// known, and at a Unix socket `user` and `pass`. Nothing was sent.
    #[error("the URL has the unknown parameter `{}`", Escaped(.name))]
    UnknownUrlParameter {
        /// The parameter's name.
        name: String,
    },
    /// The limiter's name cannot be used. Nothing was sent.
    #[error("invalid limiter name `{}`: {reason}", Escaped(.name))]
    InvalidName {
        /// The limiter's name after the name mapper.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A configuration of rules cannot be read, or has a mistake: see `RulesConfig`. Nothing was
    /// sent, and the rules in force stay.
    #[error(
        "invalid rules{}{}: {}",
        IfKnown(" file `", .path.as_ref().map(|path| Escaped(path.display())), "`"),
        IfKnown(", line ", .line.as_ref(), ""),
        Escaped(.reason)
    )]
    InvalidRules {
        /// The file that they are from.
        path: Option<PathBuf>,
        /// The line of the mistake, from 1, if it is in one.
        line: Option<usize>,
        /// What is wrong, with the name of the field.
        reason: String,
    },
    /// A [`Rule`](crate::Rule) is invalid, by itself or together with the other rules. Nothing was
    /// sent, and the rules in force stay.
    #[error("invalid rule `{}`: it {}", Escaped(.rule), Escaped(.reason))]
    InvalidRule {
        /// The rule's name, or that of the limiter of its plan.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The call was sent, and no answer came within the response timeout, or only a refusal of a
    /// later attempt: it may have had its effect or not.
    ///
    /// Permits that an acquire took although its answer was lost are given back in the background.
    /// If that fails too, they come back when their window has passed.
    #[error("no answer came: the call may have had its effect")]
    Indeterminate {
        /// The last error, if there was one: the connection's, or that of a later attempt.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// The call had no effect: the store could not be reached, or it refused each attempt for a
    /// reason that passes, such as `LOADING` or `READONLY`.
    ///
    /// The message has the server and the cause, so that [`source`](std::error::Error::source) is
    /// `None`.
    #[error(
        "the store{} could not run the call: {}",
        IfKnown(" (", .server.as_ref().map(Escaped), ")"),
        Escaped(.cause)
    )]
    StoreUnavailable {
        /// The server, such as `127.0.0.1:6379`, if it is known which one has the keys.
        server: Option<Arc<str>>,
        /// The connection's error, or the server's.
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The call was made outside of a tokio runtime. Nothing was sent.
    #[error("the call needs a tokio runtime, and there is none here")]
    NoRuntime,
    /// The server refused the user name or the password.
    #[error("the server refused the credentials")]
    AuthenticationFailed {
        /// What the server said.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The server's ACL does not let this user run a command or touch a key.
    #[error("the server's ACL refuses this user the call")]
    PermissionDenied {
        /// What the server said.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A key of the limiter holds something that is not a limiter's state: another type of key, or
    /// a field or value that is not a number. Nothing changed.
    #[error("the state of rate limiter `{}` in Redis cannot be used", Escaped(.name))]
    BadState {
        /// The limiter's name in Redis.
        name: String,
        /// What the server or the script said; `None` if the answer itself could not be read.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// Redis answered with an error that has no variant of its own here.
    #[error("Redis answered with an error")]
    Redis {
        /// What the server said.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Whether the store did not answer, or cannot be used now: an outage, in which a
    /// [`FailurePolicy`](crate::FailurePolicy) decides. The same call may succeed later.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().require_server(false).connect("redis://127.0.0.1:1").await?;
    /// let error = client.rate_limiter("orders:api").try_acquire(1).await.unwrap_err();
    /// assert!(error.is_unavailable());
    /// assert!(!error.is_never_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::StoreUnavailable { .. }
                | Self::Indeterminate { .. }
                | Self::AuthenticationFailed { .. }
        )
    }

    /// Whether the request asks for more than the limiter ever has: it would be denied whenever it
    /// was made.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.try_acquire(6).await.unwrap_err().is_never_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_never_granted(&self) -> bool {
        matches!(self, Self::ExceedsLimit { .. })
    }

    pub(crate) fn not_initialized(name: &str) -> Self {
        Self::NotInitialized {
            name: name.to_owned(),
        }
    }

    /// The state of a limiter cannot be used, which no other error says.
    pub(crate) fn bad_state(name: &str) -> Self {
        Self::BadState {
            name: name.to_owned(),
            source: None,
        }
    }

    /// Which calls the server refuses, if it has answered with a refusal and nothing came after
    /// that.
    pub(crate) fn refused(&self) -> Option<Refused> {
        let source = match self {
            Self::StoreUnavailable { cause, .. } => cause,
            Self::Indeterminate { source } => source.as_ref()?,
            _ => return None,
        };
        let refusal: &Refusal = source.downcast_ref()?;
        Some(refusal.refused)
    }

    /// The error of a request that has no answer when its time is up.
    pub(crate) fn unanswered(may_have_run: bool) -> Self {
        if may_have_run {
            Self::Indeterminate { source: None }
        } else {
            Self::not_sent()
        }
    }

    /// What the server said, or what happened to the connection.
    pub(crate) fn cause_text(&self) -> String {
        let source = match self {
            Self::StoreUnavailable { cause, .. } => return cause.to_string(),
            error => std::error::Error::source(error),
        };
        source.map_or_else(|| self.to_string(), ToString::to_string)
    }

    /// The error of a request whose time was up before it could be sent.
    pub(crate) fn not_sent() -> Self {
        let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Self::unavailable(Arc::new(timed_out))
    }

    /// The error of a call that had no effect. [`at`](Self::at) adds the server.
    pub(crate) fn unavailable(cause: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        Self::StoreUnavailable {
            server: None,
            cause,
        }
    }

    /// Adds the server that the call was sent to, if the error has none.
    pub(crate) fn at(mut self, name: &Arc<str>) -> Self {
        if let Self::StoreUnavailable { server, .. } = &mut self {
            server.get_or_insert_with(|| Arc::clone(name));
        }
        self
    }
}

/// A part of an error's message, between two texts; nothing if it is not known.
struct IfKnown<T>(&'static str, Option<T>, &'static str);

impl<T: std::fmt::Display> std::fmt::Display for IfKnown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(before, part, after) = self;
        match part {
            Some(part) => write!(f, "{before}{part}{after}"),
            None => Ok(()),
        }
    }
}

/// The answer of a server that does not run a call, for a reason that passes: the source of an
/// [`Error`].
#[derive(Debug)]
pub(crate) struct Refusal {
    refused: Refused,
    answer: Arc<dyn std::error::Error + Send + Sync>,
}

/// What a server refuses.
#[cfg_attr(
    not(any(feature = "redis", test)),
    expect(dead_code, reason = "a store in memory refuses nothing")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// This call. Others, on other keys, are answered.
    Call,
    /// All calls: for its clients this is an outage.
    AllCalls,
}

#[cfg_attr(
    not(any(feature = "redis", test)),
    expect(dead_code, reason = "a store in memory refuses nothing")
)]
impl Refusal {
    pub(crate) fn new(refused: Refused, answer: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        Self { refused, answer }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.answer.fmt(f)
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.answer.source()
    }
}

/// The result of every call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Refuses an argument that is not as required.
#[inline]
pub(crate) fn require(is_met: bool, argument: &'static str, reason: &'static str) -> Result<()> {
    match is_met {
        true => Ok(()),
        false => Err(Error::InvalidArgument { argument, reason }),
    }
}

/// Refuses a number that is 0.
#[inline]
pub(crate) fn at_least_one(number: u32, argument: &'static str) -> Result<()> {
    require(number > 0, argument, "must be at least 1")
}
