//! What the server logs on the standard error: a line with time and level for each thing that
//! happens to it, as text or as JSON. No line has a key, a token or a password.

use std::fmt::Display;

use clap::ValueEnum;
use redisson_rate_limiter::{BreakerState, Event};
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// Only the server's own lines: what the library traces has names of limiters, which may be keys.
const TARGET: &str = "rratelimiter";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

pub(super) fn start(format: LogFormat) {
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // The reader may have gone, and a line that says so would panic.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let own = Targets::new()
        .with_default(LevelFilter::OFF)
        .with_target(TARGET, Level::INFO);
    // This fails only where a log is set up already.
    let _ = registry().with(lines.with_filter(own)).try_init();
}

pub(super) fn line(what: impl Display) {
    tracing::info!(target: TARGET, "{}", visible(what));
}

/// What an operator may have to do something about.
pub(super) fn warning(what: impl Display) {
    tracing::warn!(target: TARGET, "{}", visible(what));
}

fn visible(what: impl Display) -> String {
    what.to_string()
        .trim_end()
        .chars()
        .flat_map(printed)
        .collect()
}

/// What is invisible or turns the direction of a text is escaped, and so are control characters:
/// each line is one, and no two texts look the same.
fn printed(char: char) -> impl Iterator<Item = char> {
    // Names in messages of the library are escaped already.
    let is_plain = ['"', '\'', '\\'].contains(&char);
    let escaped = (!is_plain).then(|| char.escape_debug());
    let plain = is_plain.then_some(char);
    escaped.into_iter().flatten().chain(plain)
}

pub(super) fn event(event: &Event<'_>) {
    match event {
        Event::Connected { server, .. } => line(format_args!("connected to {server}")),
        Event::ConnectionLost { server, .. } => {
            warning(format_args!("lost the connection to {server}"));
        }
        Event::BreakerChanged {
            server,
            state: BreakerState::Open,
            cause: Some(cause),
            ..
        } => warning(format_args!("breaker of {server}: open, {cause}")),
        Event::BreakerChanged { server, state, .. } => {
            line(format_args!("breaker of {server}: {state}"));
        }
        Event::ClockAhead { ahead, .. } => {
            warning(format_args!("the clock of a peer is ahead by {ahead:?}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped() {
        for (text, expected) in [
            (
                "rules: `it's \\ \"a\"`, ünï 日本",
                "rules: `it's \\ \"a\"`, ünï 日本",
            ),
            ("admi\u{200b}n", "admi\\u{200b}n"),
            ("\u{202e}nimda\u{2066}", "\\u{202e}nimda\\u{2066}"),
            (
                "a\n\u{1b}[2J\u{a0}\u{ad}\u{feff}",
                "a\\n\\u{1b}[2J\\u{a0}\\u{ad}\\u{feff}",
            ),
        ] {
            let line: String = text.chars().flat_map(printed).collect();
            assert_eq!(line, expected);
        }
    }
}
