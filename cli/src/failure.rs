//! Why a command did nothing, and the exit code that says so.

use std::io::{self, Write};
use std::process::ExitCode;

use redisson_rate_limiter::{Error, ErrorKind};
use serde_json::json;

/// The command line asks for what cannot be.
pub(crate) const USAGE: u8 = 2;
/// The store cannot say, or did not.
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

    /// Nobody reads the standard output any more: there is nobody to tell.
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

    /// A mistake of this program, with the exit code of a panic.
    pub(crate) fn panicked(message: &str) -> Self {
        Self {
            exit_code: 101,
            kind: "panicked",
            message: message.to_owned(),
        }
    }

    /// Ended by a signal.
    pub(crate) fn interrupted(exit_code: u8) -> Self {
        Self {
            exit_code,
            kind: "interrupted",
            message: "interrupted while waiting: no permits are kept".to_owned(),
        }
    }

    /// Whether the server refused it to the user of the connection.
    pub(crate) fn is_not_permitted(&self) -> bool {
        self.kind == ErrorKind::PermissionDenied.as_str()
    }

    /// Whether the server refuses this key or what it holds, and may answer for others: its slots,
    /// its type, a permission.
    pub(crate) fn is_of_one_key(&self) -> bool {
        let kinds = [
            ErrorKind::PermissionDenied,
            ErrorKind::BadState,
            ErrorKind::InvalidName,
            ErrorKind::Redis,
        ];
        kinds.iter().any(|kind| kind.as_str() == self.kind)
    }

    /// Whether something may listen there, and has said nothing.
    pub(crate) fn is_silence(&self) -> bool {
        self.message.contains("does not answer")
    }

    /// With what to know, or to do next, behind the reason.
    pub(crate) fn then(self, what: &str) -> Self {
        Self {
            message: format!("{}; {what}", self.message),
            ..self
        }
    }

    /// With what could not be done before the reason.
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
        let told = if is_json {
            let error = json!({ "kind": self.kind, "message": self.message });
            json!({ "error": error }).to_string()
        } else {
            format!("rratelimiter: {}", self.message)
        };
        // A terminal that has hung up takes no message.
        let _ = writeln!(io::stderr(), "{told}");
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
        // Names in it are escaped, but not what a server said.
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

/// What to do about what a server said.
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
    let found = HINTS.iter().find(|(said, _)| message.contains(said));
    found.map(|(_, hint)| *hint)
}

/// Without control characters. What is escaped already stays as it is.
fn escaped(text: &str) -> String {
    let escape = |it: char| match it.is_control() {
        true => it.escape_debug().to_string(),
        false => it.to_string(),
    };
    text.chars().map(escape).collect()
}
