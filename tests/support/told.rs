//! The events that a client reports to its handler.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_rate_limiter::{AskedLimiter, Event, Rate, RedissonClientBuilder};

/// The events of clients, each as a line.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<Line>>>);

enum Line {
    Request(String),
    Call(Call),
    Connection(String),
    ClockAhead(Duration),
    RateDiffers(Rate, Rate),
}

/// A call of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub script: &'static str,
    pub requests: u32,
    pub attempt: u32,
    pub is_answered: bool,
}

impl Told {
    /// Records the events of a client with these settings.
    pub fn by(&self, builder: RedissonClientBuilder) -> RedissonClientBuilder {
        let told = self.clone();
        builder.on_event(move |event| told.0.lock().unwrap().push(line(event)))
    }

    fn take<T>(&self, of: impl Fn(&Line) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.0.lock().unwrap().retain(|line| match of(line) {
            Some(it) => {
                taken.push(it);
                false
            }
            None => true,
        });
        taken
    }

    /// The requests that have ended since the last time: each limiter with its permits and, if it
    /// decided something, what, the deciding ones with a `*`; then the result and who decided.
    pub fn take_requests(&self) -> Vec<String> {
        self.take(|line| match line {
            Line::Request(text) => Some(text.clone()),
            _ => None,
        })
    }

    pub fn take_calls(&self) -> Vec<Call> {
        self.take(|line| match line {
            Line::Call(call) => Some(*call),
            _ => None,
        })
    }

    /// The changes of connections and breakers.
    pub fn take_changes(&self) -> Vec<String> {
        self.take(|line| match line {
            Line::Connection(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// The rates that limiters were found with, after those that requests named.
    pub fn take_rates(&self) -> Vec<(Rate, Rate)> {
        self.take(|line| match line {
            Line::RateDiffers(named, found) => Some((*named, *found)),
            _ => None,
        })
    }

    pub fn take_clocks(&self) -> Vec<Duration> {
        self.take(|line| match line {
            Line::ClockAhead(ahead) => Some(*ahead),
            _ => None,
        })
    }
}

fn line(event: &Event<'_>) -> Line {
    match *event {
        Event::Request {
            limiters,
            result,
            took,
            queued,
            is_shadow,
            ..
        } => {
            assert!(queued <= took, "{event:?}");
            let limiters: Vec<_> = limiters.iter().map(limiter).collect();
            let source = result.source().map(|it| format!(" by {}", it.as_str()));
            let (limiters, source) = (limiters.join(", "), source.unwrap_or_default());
            let mode = if is_shadow { "shadow " } else { "" };
            Line::Request(format!("{mode}{limiters}: {result}{source}"))
        }
        Event::Call {
            script,
            requests,
            attempt,
            is_answered,
            ..
        } => Line::Call(Call {
            script,
            requests,
            attempt,
            is_answered,
        }),
        Event::Connected { server, .. } => Line::Connection(format!("{server} connected")),
        Event::ConnectionLost { server, .. } => Line::Connection(format!("{server} lost")),
        Event::BreakerChanged {
            server,
            state,
            cause,
            ..
        } => {
            let cause = cause.map(|cause| format!(" for {cause}"));
            Line::Connection(format!("{server} {state}{}", cause.unwrap_or_default()))
        }
        Event::ClockAhead { ahead, .. } => Line::ClockAhead(ahead),
        Event::RateDiffers { named, found, .. } => Line::RateDiffers(named, found),
        _ => panic!("{event:?}"),
    }
}

fn limiter(limiter: &AskedLimiter<'_>) -> String {
    let decided = limiter
        .decision
        .map(|decision| match decision.is_granted() {
            true => " granted",
            false => " denied",
        });
    let mark = if limiter.is_deciding { "*" } else { "" };
    format!(
        "{mark}{} {}{}",
        limiter.name,
        limiter.permits,
        decided.unwrap_or_default()
    )
}
