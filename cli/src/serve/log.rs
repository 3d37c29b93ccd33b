//! What the server tells on the standard error: a line for each thing that happened to it. No line has a key, a token or a
//! password.

use std::fmt::Display;
use std::io::Write;

use redisson_rate_limiter::Event;

pub(super) fn line(what: impl Display) {
    let what = what.to_string();
    let what: String = what.trim_end().chars().flat_map(printed).collect();
    // The reader may have gone.
    let _ = writeln!(std::io::stderr(), "rratelimiter: {what}");
}

/// Control characters are escaped, so that each line is one, and none of them reaches a terminal.
fn printed(char: char) -> impl Iterator<Item = char> {
    let is_control = char.is_control();
    let escaped = is_control.then(|| char.escape_debug());
    let plain = (!is_control).then_some(char);
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
