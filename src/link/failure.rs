//! Why a command was not answered, and which error that becomes.

use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::error::{Error, Refusal, Refused};

/// Why one attempt of a call failed.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The call was made outside a tokio runtime.
    NoRuntime,
    /// It reached no server: it may be sent again.
    NotSent(RedisError),
    /// The server did not run it, for a reason that passes: it may be sent again.
    NotRun(RedisError),
    /// It may have run: only a call whose repetition is recognized may be sent again.
    Lost(Option<RedisError>),
    /// The server answered with an error that another attempt would not change.
    Refused(RedisError),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            // Another attempt would be refused, too, unless it sends the script's text.
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::Refused(error),
            ErrorKind::ClusterConnectionNotFound => Self::NotSent(error),
            ErrorKind::Io if error.is_connection_refusal() => Self::NotSent(error),
            ErrorKind::Io | ErrorKind::Parse => Self::Lost(Some(error)),
            _ if refused_by(&error).is_some() => Self::NotRun(error),
            _ => Self::Refused(error),
        }
    }
}

impl Failure {
    /// The code of the server's error, or the kind of error that it becomes where the server did
    /// not answer.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::NoRuntime => "no_runtime",
            Self::NotSent(_) => "store_unavailable",
            Self::Lost(_) => "indeterminate",
            Self::NotRun(error) | Self::Refused(error) => error.code().unwrap_or("redis"),
        }
    }
}

/// Whether the server answered, if only to refuse.
pub(crate) fn is_answered<T>(result: &Result<T, Failure>) -> bool {
    matches!(
        result,
        Ok(_) | Err(Failure::NotRun(_) | Failure::Refused(_))
    )
}

/// An answer that is an error, as `Err`. An answer that contains an error among others stays an
/// answer.
pub(crate) fn extract_error(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

/// Codes of further errors which say that a command did not run, for a reason that passes.
const PASSING: [&str; 4] = ["BUSY", "NOREPLICAS", "READONLY", "UNBLOCKED"];

/// What the error of a server says if its ACL refuses a command of a script: first Valkey and Redis
/// 7, then Redis 6. The error's code is generic.
const DENIED_IN_SCRIPT: [&str; 2] = ["ACL failure in script", "can't run this command"];

/// Whether a server answers with this error because it can no longer serve this client, which needs
/// another connection.
pub(crate) fn wants_another_connection(error: &RedisError) -> bool {
    let codes = ["READONLY", "MASTERDOWN", "UNBLOCKED", "NOAUTH"];
    codes.iter().any(|code| has_code(error, code))
}

/// Before Redis 7, the code of an error inside a script is in its text.
fn has_code(error: &RedisError, code: &str) -> bool {
    let text = error.detail().unwrap_or_default();
    error.code() == Some(code)
        || text
            .match_indices(code)
            .any(|(at, _)| text[..at].ends_with('-'))
}

pub(crate) fn closed() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed").into()
}

pub(crate) fn timed_out() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "the server does not answer").into()
}

/// Why a connection could not be set up this time, though a server was there: another attempt may
/// succeed at once.
#[derive(Debug)]
struct NotYet {
    text: Option<&'static str>,
    cause: RedisError,
}

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text {
            Some(text) => f.write_str(text),
            None => self.cause.fmt(f),
        }
    }
}

impl std::error::Error for NotYet {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The error of a step of the set-up. It says if the connection was lost in that step.
pub(crate) fn of_set_up(error: RedisError) -> RedisError {
    let is_lost = error.kind() == ErrorKind::Parse || error.is_connection_dropped();
    if !is_lost || error.is_connection_refusal() {
        return error;
    }
    let lost = NotYet {
        text: Some("the connection was lost while it was set up"),
        cause: error,
    };
    io::Error::new(io::ErrorKind::ConnectionReset, lost).into()
}

/// The error of a connection to the primary that a Sentinel names: during a failover it may name
/// the next one soon.
pub(crate) fn of_named_primary(error: RedisError) -> RedisError {
    if !error.is_io_error() || is_not_yet(&error) {
        return error;
    }
    let kind = io_error_of(&error).map_or(io::ErrorKind::NotConnected, io::Error::kind);
    if kind == io::ErrorKind::InvalidData {
        return error; // such as a certificate that is not trusted
    }
    let cause = NotYet {
        text: None,
        cause: error,
    };
    io::Error::new(kind, cause).into()
}

/// Whether the next attempt to set up the connection may succeed at once.
pub(crate) fn is_not_yet(error: &RedisError) -> bool {
    let inner = io_error_of(error).and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<NotYet>())
}

fn io_error_of(error: &RedisError) -> Option<&io::Error> {
    let source: &Arc<dyn std::error::Error + Send + Sync> =
        std::error::Error::source(error)?.downcast_ref()?;
    source.downcast_ref()
}

/// What the error of a server says if it does not have the database of the URL. The error's code is
/// generic.
const NO_DATABASE: [&str; 3] = [
    "DB index is out of range",
    "invalid DB index",
    "SELECT is not allowed in cluster mode",
];

/// The text of the failure [`needs_cluster`].
const NEEDS_CLUSTER: &str = "leads to a cluster, which needs this crate's feature `cluster`";

/// Without the feature, no connection to a cluster can be used.
pub(crate) fn needs_cluster() -> RedisError {
    (ErrorKind::InvalidClientConfig, NEEDS_CLUSTER).into()
}

/// The text of the failure [`is_sentinel`].
const IS_SENTINEL: &str = "leads to a Sentinel, which holds no limiters: use a URL such as redis-sentinel://host:26379/primary-name";

/// A Sentinel is no server of limiters.
pub(crate) fn is_sentinel() -> RedisError {
    (ErrorKind::InvalidClientConfig, IS_SENTINEL).into()
}

/// The error of a connection that could not be set up, or of a call that never ran.
pub(crate) fn of_connecting(error: RedisError) -> Error {
    if error.kind() == ErrorKind::InvalidClientConfig {
        let text = error.to_string();
        let mut reasons = [NEEDS_CLUSTER, IS_SENTINEL].into_iter();
        if let Some(reason) = reasons.find(|reason| text.contains(reason)) {
            return Error::InvalidArgument {
                argument: "url",
                reason,
            };
        }
    }
    let text = error.detail().unwrap_or_default();
    if NO_DATABASE.iter().any(|says| text.contains(says)) {
        return Error::InvalidArgument {
            argument: "url",
            reason: "must name a database that the server has, on a cluster none",
        };
    }
    match of_answer(error.clone()) {
        Error::Redis { .. } => Error::unavailable(source_of(error)),
        error => error,
    }
}

/// The source of an error, which says whether the server has refused the call.
pub(crate) fn source_of(error: RedisError) -> Arc<dyn std::error::Error + Send + Sync> {
    match refused_by(&error) {
        Some(refused) => Arc::new(Refusal::new(refused, Arc::new(error))),
        None => Arc::new(error),
    }
}

/// The source of the error of a call that the server has answered, though not with what became of
/// it: it serves its clients.
pub(crate) fn source_of_answered(
    error: Option<RedisError>,
) -> Arc<dyn std::error::Error + Send + Sync> {
    let too_late = || io::Error::new(io::ErrorKind::TimedOut, "the answers came too late").into();
    let error = error.unwrap_or_else(too_late);
    match refused_by(&error) {
        Some(_) => source_of(error),
        None => Arc::new(Refusal::new(Refused::Call, Arc::new(error))),
    }
}

/// Whether a server that answers with this error serves other calls.
pub(crate) fn refuses_one_call(error: &RedisError) -> bool {
    refused_by(error) != Some(Refused::AllCalls)
}

/// What a server refuses with this error; `None` if it is no refusal that passes.
fn refused_by(error: &RedisError) -> Option<Refused> {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, NoScript, TryAgain};
    let text = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::Server(Moved | Ask | TryAgain | NoScript) => Some(Refused::Call),
        // One slot has no node, or the whole cluster is down.
        ErrorKind::Server(ClusterDown) if text.contains("not served") => Some(Refused::Call),
        ErrorKind::Server(ClusterDown | MasterDown | BusyLoading) => Some(Refused::AllCalls),
        // It concerns this connection only.
        _ if has_code(error, "UNBLOCKED") => Some(Refused::Call),
        _ if PASSING.iter().any(|code| has_code(error, code)) => Some(Refused::AllCalls),
        _ => None,
    }
}

/// The error of a call that the server has refused, whatever the call is for.
pub(crate) fn of_answer(error: RedisError) -> Error {
    let text = error.detail().unwrap_or_default();
    let code = error.code().unwrap_or_default();
    // Before Redis 7, the code of an error inside a script is in its text.
    let says = |word: &str| code == word || text.contains(word);
    let is_login = error.kind() == ErrorKind::AuthenticationFailed;
    if is_login || says("WRONGPASS") || says("NOAUTH") {
        Error::AuthenticationFailed {
            source: Arc::new(error),
        }
    } else if says("NOPERM") || DENIED_IN_SCRIPT.iter().any(|denied| text.contains(denied)) {
        Error::PermissionDenied {
            source: Arc::new(error),
        }
    } else {
        Error::Redis {
            source: Arc::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    fn of_code(code: &str, detail: &str) -> RedisError {
        make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn what_the_server_did_not_run_may_be_sent_again() {
        let errors = [
            of_code("BUSY", "Redis is busy running a script."),
            of_code("NOREPLICAS", "Not enough good replicas to write."),
            of_code(
                "ERR",
                "Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica.",
            ),
        ];
        for error in errors {
            assert!(matches!(Failure::from(error), Failure::NotRun(_)));
        }
        let error = of_code("ERR", "unknown command");
        assert!(matches!(Failure::from(error), Failure::Refused(_)));
    }

    #[test]
    fn an_error_says_whether_the_server_refuses_this_call_or_all_calls() {
        let cases = [
            (
                "NOSCRIPT",
                "No matching script. Please use EVAL.",
                Some(Refused::Call),
            ),
            (
                "TRYAGAIN",
                "Multiple keys request during rehashing of slot",
                Some(Refused::Call),
            ),
            ("CLUSTERDOWN", "Hash slot not served", Some(Refused::Call)),
            (
                "CLUSTERDOWN",
                "The cluster is down",
                Some(Refused::AllCalls),
            ),
            (
                "LOADING",
                "Redis is loading the dataset in memory",
                Some(Refused::AllCalls),
            ),
            (
                "BUSY",
                "Redis is busy running a script.",
                Some(Refused::AllCalls),
            ),
            (
                "READONLY",
                "You can't write against a read only replica.",
                Some(Refused::AllCalls),
            ),
            (
                "MASTERDOWN",
                "Link with MASTER is down",
                Some(Refused::AllCalls),
            ),
            (
                "NOREPLICAS",
                "Not enough good replicas to write.",
                Some(Refused::AllCalls),
            ),
        ];
        for (code, text, refused) in cases {
            let answer = format!("-{code} {text}\r\n");
            let value = redis::parse_redis_value(answer.as_bytes()).unwrap();
            let error = of_connecting(extract_error(value).unwrap_err());
            assert_eq!(error.refused(), refused, "{error:?}");
        }
        assert_eq!(of_connecting(closed()).refused(), None);
        assert_eq!(of_connecting(timed_out()).refused(), None);
    }

    #[test]
    fn a_server_that_can_no_longer_serve_this_client_is_left() {
        for code in ["READONLY", "MASTERDOWN", "UNBLOCKED", "NOAUTH"] {
            let in_script = format!("Error running script: @user_script:1: -{code} for a reason");
            for error in [of_code(code, "for a reason"), of_code("ERR", &in_script)] {
                assert!(wants_another_connection(&error), "{error:?}");
            }
        }
        for code in ["BUSY", "NOREPLICAS", "LOADING", "NOPERM", "OOM"] {
            assert!(!wants_another_connection(&of_code(code, "READONLY")));
        }
    }

    #[test]
    fn a_command_that_the_acl_refuses_a_script_is_denied_whatever_the_server() {
        let texts = [
            "ACL failure in script: User app has no permissions to run the 'zadd' command script: 1f, on @user_script:1.",
            "The user executing the script can't run this command or subcommand script: 1f, on @user_script:1.",
        ];
        for text in texts {
            let error = of_answer(of_code("ERR", text));
            assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        }
    }

    #[test]
    fn a_refused_login_is_its_own_error_and_a_passing_failure_unavailability() {
        let error = of_connecting(of_code("WRONGPASS", "invalid username-password pair"));
        assert!(matches!(error, Error::AuthenticationFailed { .. }));
        let error = of_connecting(of_code("BUSY", "Redis is busy running a script."));
        assert!(matches!(error, Error::StoreUnavailable { .. }));
    }
}
