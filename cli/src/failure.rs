//! The failure of a command: its reason and exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use redisson_rate_limiter::{Error, ErrorKind};
use serde_json::json;

/// The exit code if an argument is wrong or there is no such limiter.
pub(crate) const USAGE: u8 = 2;
/// The exit code if the store does not answer, refuses the call or holds something else.
pub(crate) const STORE: u8 = 3;

#[derive(Debug)]
pub(crate) struct Failure {
    exit_code: u8,
    kind: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit_code: USAGE,
            kind: "usage",
            message: message.into(),
        }
    }

    pub(crate) fn store(message: impl Into<String>) -> Self {
        Self {
            exit_code: STORE,
            kind: "store",
            message: message.into(),
        }
    }

    /// Ends the command silently and with success, because nobody reads its standard output any
    /// more.
    pub(crate) fn reader_gone() -> Self {
        Self {
            exit_code: 0,
            kind: "reader_gone",
            message: String::new(),
        }
    }

    /// A command that could not be started, with the exit code that shells give it.
    pub(crate) fn not_started(exit_code: u8, message: String) -> Self {
        Self {
            exit_code,
            kind: "not_started",
            message,
        }
    }

    /// A bug of this program, with the exit code of a panic.
    pub(crate) fn panicked(message: &str) -> Self {
        Self {
            exit_code: 101,
            kind: "panicked",
            message: message.to_owned(),
        }
    }

    /// The failure of a command that a signal has ended.
    pub(crate) fn interrupted(exit_code: u8) -> Self {
        Self {
            exit_code,
            kind: "interrupted",
            message: "interrupted while waiting: no permits are kept".to_owned(),
        }
    }

    /// Whether the user of the connection lacks a permission.
    pub(crate) fn is_not_permitted(&self) -> bool {
        self.kind == ErrorKind::PermissionDenied.as_str()
    }

    /// Whether the failure may concern one key only, such as its slot, its type or a permission, so
    /// that calls for other keys may succeed.
    pub(crate) fn is_of_one_key(&self) -> bool {
        let kinds = [
            ErrorKind::PermissionDenied,
            ErrorKind::BadState,
            ErrorKind::InvalidName,
            ErrorKind::Redis,
        ];
        kinds.iter().any(|kind| kind.as_str() == self.kind)
    }

    /// Whether nothing answered at the address, although something may listen there.
    pub(crate) fn is_silence(&self) -> bool {
        self.message.contains("does not answer")
    }

    /// Adds a hint after the reason.
    pub(crate) fn then(self, what: &str) -> Self {
        Self {
            message: format!("{}; {what}", self.message),
            ..self
        }
    }

    /// Adds what could not be done before the reason.
    pub(crate) fn after(self, what: &str) -> Self {
        Self {
            message: format!("{what}: {}", self.message),
            ..self
        }
    }

    pub(crate) fn print(self, is_json: bool) -> ExitCode {
        if self.message.is_empty() {
            return ExitCode::from(self.exit_code);
        }
        let text = if is_json {
            let error = json!({ "kind": self.kind, "message": self.message });
            json!({ "error": error }).to_string()
        } else {
            format!("rratelimiter: {}", self.message)
        };
        // Writing fails if the terminal has hung up.
        let _ = writeln!(io::stderr(), "{text}");
        ExitCode::from(self.exit_code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit_code = match error.kind() {
            ErrorKind::NotInitialized
            | ErrorKind::ExceedsLimit
            | ErrorKind::InvalidArgument
            | ErrorKind::InvalidName => USAGE,
            _ => STORE,
        };
        // The names in it are escaped already, but the server's text is not.
        let mut message = escaped(&error.to_string());
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let cause_text = escaped(&cause.to_string());
            if !message.contains(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        if error.kind() == ErrorKind::NotInitialized {
            message += "; `rratelimiter set NAME RATE` gives it a rate";
        }
        if let Some(hint) = hint(&message) {
            message += &format!("; {hint}");
        }
        Self {
            exit_code,
            kind: error.kind().as_str(),
            message,
        }
    }
}

/// A hint of what to do about an error of the server.
fn hint(message: &str) -> Option<&'static str> {
    const HINTS: [(&str, &str); 6] = [
        (
            "NOAUTH",
            "it asks for a password: put it into REDIS_URL, or into the file of --password-file",
        ),
        (
            "WRONGPASS",
            "check the password in REDIS_URL, or in the file of --password-file, and --user",
        ),
        (
            "READONLY",
            "it is a replica: use the URL of the primary, of Sentinels or of a cluster",
        ),
        (
            "InvalidContentType",
            "its port may speak no TLS: then the URL begins with redis://",
        ),
        (
            "UnknownIssuer",
            "--ca-file names the certificates that sign the server's",
        ),
        (
            "NOPERM",
            "docs/connections.md has the permissions that limiters need; `doctor` says which are missing",
        ),
    ];
    let found = HINTS.iter().find(|(code, _)| message.contains(code));
    found.map(|(_, hint)| *hint)
}

/// Escapes control characters. Text that is escaped already stays as it is.
fn escaped(text: &str) -> String {
    let escape = |it: char| match it.is_control() {
        true => it.escape_debug().to_string(),
        false => it.to_string(),
    };
    text.chars().map(escape).collect()
}
