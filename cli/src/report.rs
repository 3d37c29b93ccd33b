//! The result of a command, as text or as JSON, and its exit code.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use redisson_rate_limiter::{Decision, TimeToLive};
use serde_json::{Value, json};

use crate::failure::USAGE;

/// The exit code if permits are denied, or the answer to the command's question is no.
pub(crate) const DENIED: u8 = 1;

#[derive(Debug)]
pub(crate) struct Report {
    text: String,
    json: Value,
    exit_code: u8,
    is_on_stderr: bool,
}

impl Report {
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Self {
            text: text.into(),
            json,
            exit_code: 0,
            is_on_stderr: false,
        }
    }

    /// A report without text, for a command that has printed its result already.
    pub(crate) fn printed(is_so: bool) -> Self {
        Self::either(is_so, String::new(), Value::Null)
    }

    /// A report on the standard error, for a command whose standard output belongs to the commands
    /// that it runs.
    pub(crate) fn on_stderr(text: impl Into<String>, json: Value) -> Self {
        Self {
            is_on_stderr: true,
            ..Self::new(text, json)
        }
    }

    /// A report with exit code 0 if `is_so`, and otherwise 1.
    pub(crate) fn either(is_so: bool, text: impl Into<String>, json: Value) -> Self {
        Self {
            exit_code: if is_so { 0 } else { DENIED },
            ..Self::new(text, json)
        }
    }

    /// The report that there is no limiter of this name.
    pub(crate) fn missing(name: &str, json: Value) -> Self {
        Self {
            exit_code: USAGE,
            ..Self::new(format!("there is no limiter {}", name.escape_debug()), json)
        }
    }

    pub(crate) fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    pub(crate) fn of_decision(decision: &Decision) -> Self {
        let json = json!({
            "granted": decision.is_granted(),
            "limit": decision.limit(),
            "window_ms": millis(decision.window()),
            "remaining": decision.remaining(),
            "available_in_ms": millis(decision.available_in()),
            "reset_ms": millis(decision.reset()),
            "retry_after_ms": decision.retry_after().map(millis),
        });
        Self::either(decision.is_granted(), in_words(decision), json)
    }

    /// Adds a remark to the text, and a field to the JSON.
    pub(crate) fn also(mut self, remark: &str, field: &str, value: Value) -> Self {
        self.text += remark;
        self.json[field] = value;
        self
    }

    /// Puts "would be" in front of the text, for a result that was not put into effect.
    pub(crate) fn would_be(self) -> Self {
        Self {
            text: format!("would be {}", self.text),
            ..self
        }
    }

    pub(crate) fn print(self, is_json: bool) -> ExitCode {
        if self.text.is_empty() && self.json.is_null() {
            return ExitCode::from(self.exit_code);
        }
        let text = if is_json {
            self.json.to_string()
        } else {
            self.text
        };
        // Writing fails if the reader has closed the pipe, as `head` does.
        let _ = match self.is_on_stderr {
            true => writeln!(std::io::stderr(), "{text}"),
            false => writeln!(std::io::stdout(), "{text}"),
        };
        ExitCode::from(self.exit_code)
    }
}

fn in_words(decision: &Decision) -> String {
    let word = if decision.is_granted() {
        "granted"
    } else {
        "denied"
    };
    let mut words = format!(
        "{word}: {} of {} left",
        decision.remaining(),
        decision.limit()
    );
    if let Decision::Granted(granted) = decision
        && !granted.delay.is_zero()
    {
        words += &format!(", goes on after {}", at_least(granted.delay));
    }
    if let Some(retry_after) = decision.retry_after() {
        words += &format!(", retry after {}", at_least(retry_after));
    }
    if decision.is_by_failure_policy() {
        words += ", decided without Redis";
    }
    words
}

/// A wait in its two largest units, rounded up.
fn at_least(wait: Duration) -> String {
    let unit = match wait {
        _ if wait < Duration::from_secs(60) => 1,
        _ if wait < Duration::from_secs(86_400) => 1_000,
        _ => 60_000,
    };
    let millis = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    lasting(Duration::from_millis(
        millis.div_ceil(unit).saturating_mul(unit),
    ))
}

pub(crate) fn time_to_live_as_text(time_to_live: TimeToLive) -> String {
    match time_to_live {
        TimeToLive::Unlimited => "does not expire".to_owned(),
        TimeToLive::Remaining(left) => format!("expires in {}", lasting(left)),
        _ => "missing".to_owned(),
    }
}

/// The time to live in whole milliseconds; `null` if the key does not expire or does not exist.
pub(crate) fn time_to_live_as_json(time_to_live: TimeToLive) -> Value {
    match time_to_live {
        TimeToLive::Remaining(left) => millis(left).into(),
        _ => Value::Null,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A number with its noun, such as `1 grant` or `2 grants`.
pub(crate) fn number_of(number: u64, noun: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{end}")
}

/// A time in its two largest units.
pub(crate) fn lasting(time: Duration) -> String {
    let time = Duration::from_millis(millis(time));
    let words = humantime::format_duration(time).to_string();
    let mut parts = words.split(' ');
    match (parts.next(), parts.next()) {
        (Some(one), Some(other)) => format!("{one} {other}"),
        _ => words,
    }
}
