//! What the server tells on the standard error: a line for each thing that happened to it. No line
//! has a key, a token or a password.

use std::fmt::Display;
use std::io::Write;

use redisson_rate_limiter::Event;

pub(super) fn line(what: impl Display) {
    let what = what.to_string();
    let what: String = what.trim_end().chars().flat_map(printed).collect();
    // The reader may have gone.
    let _ = writeln!(std::io::stderr(), "rratelimiter: {what}");
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
            line(format_args!("lost the connection to {server}"));
        }
        Event::BreakerChanged {
            server,
            state,
            cause,
            ..
        } => match cause {
            Some(cause) => line(format_args!("breaker of {server}: {state}, {cause}")),
            None => line(format_args!("breaker of {server}: {state}")),
        },
        Event::ClockAhead { ahead, .. } => {
            line(format_args!("the clock of a peer is ahead by {ahead:?}"));
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
