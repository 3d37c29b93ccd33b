//! The log of the server on the standard error: a line with time and level for each event, as text
//! or as JSON. No line contains a key, a token or a password.

use std::fmt::Display;

use clap::ValueEnum;
use redisson_rate_limiter::{BreakerState, Event};
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// The target of the server's own lines. No others are logged, because the library's events contain
/// names of limiters, which may be keys.
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
        // If nobody reads the standard error any more, reporting that there would panic.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let own = Targets::new()
        .with_default(LevelFilter::OFF)
        .with_target(TARGET, Level::INFO);
    // This fails only if a subscriber is set already.
    let _ = registry().with(lines.with_filter(own)).try_init();
}

pub(super) fn line(what: impl Display) {
    tracing::info!(target: TARGET, "{}", visible(what));
}

/// Logs something that an operator may have to act on.
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

/// Escapes control characters, invisible characters and those that change the direction of text, so
/// that an entry stays on one line and different texts look different.
fn printed(char: char) -> impl Iterator<Item = char> {
    // Quotes and backslashes stay: names in messages of the library are escaped already.
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
    fn invisible_and_control_characters_are_escaped() {
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
