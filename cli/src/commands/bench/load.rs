//! Many callers at once, for a time: how many requests, how long each took, and what the server says that it did.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::BenchArguments;
use crate::commands::Context;
use crate::commands::doctor::server::fields;
use crate::failure::Failure;
use crate::inspect::scan::said;

/// The longest time that is told from longer ones, in microseconds, and how many digits of each.
const LONGEST: u64 = 60_000_000;
const DIGITS: u8 = 3;
/// How much of the time is for warming up.
const WARM_UP: u32 = 10;
const SHOW_EVERY: Duration = Duration::from_millis(200);

pub(super) enum Answer {
    Granted,
    Denied,
}

/// Calls of scripts, and the time that they took on the servers, by INFO commandstats.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Server {
    pub(super) calls: u64,
    micros: u64,
}

pub(super) struct Measured {
    histogram: Histogram<u64>,
    time: Duration,
    pub(super) granted: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    pub(super) first_error: Option<String>,
    pub(super) server: Server,
}

impl Measured {
    fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_max(LONGEST, DIGITS);
        Ok(Self {
            histogram: histogram.map_err(|error| Failure::usage(error.to_string()))?,
            time: Duration::ZERO,
            granted: 0,
            denied: 0,
            failed: 0,
            first_error: None,
            server: Server::default(),
        })
    }

    fn note(&mut self, took: Duration, answer: Result<Answer, Failure>) {
        match answer {
            Ok(Answer::Granted) => self.granted += 1,
            Ok(Answer::Denied) => self.denied += 1,
            Err(error) => {
                self.failed += 1;
                self.first_error.get_or_insert_with(|| error.to_string());
                return;
            }
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(micros);
    }

    pub(super) fn requests(&self) -> u64 {
        self.granted + self.denied
    }

    pub(super) fn per_second(&self) -> f64 {
        self.requests() as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The half, nine tenths, 99 of 100 and all were as fast, in microseconds.
    pub(super) fn percentiles(&self) -> [u64; 4] {
        [0.5, 0.9, 0.99, 1.0].map(|it| self.histogram.value_at_quantile(it))
    }

    /// The server's time for a request.
    pub(super) fn server_micros(&self) -> Option<f64> {
        (self.server.calls > 0).then(|| self.server.micros as f64 / self.requests().max(1) as f64)
    }

    pub(super) fn to_json(&self) -> Value {
        let [p50, p90, p99, max] = self.percentiles();
        json!({
            "per_second": self.per_second(), "granted": self.granted, "denied": self.denied, "failed": self.failed,
            "p50_us": p50, "p90_us": p90, "p99_us": p99, "p999_us": self.histogram.value_at_quantile(0.999), "max_us": max,
            "calls": self.server.calls, "server_us": self.server_micros(),
        })
    }
}

pub(super) async fn run(
    context: &Context,
    what: &str,
    arguments: &BenchArguments,
    request: impl AsyncFn() -> Result<Answer, Failure>,
) -> Result<Measured, Failure> {
    let is_shown = io::stderr().is_terminal();
    for_a_time(arguments, arguments.duration / WARM_UP, &request, |_, _| {}).await?;
    let before = server_stats(context).await;
    let mut last = Instant::now();
    let mut measured = for_a_time(
        arguments,
        arguments.duration,
        &request,
        |requests, share| {
            if is_shown && last.elapsed() >= SHOW_EVERY {
                last = Instant::now();
                eprint!("\r\x1b[K{what}: {:.0}%, {requests} requests", share * 100.0);
                let _ = io::stderr().flush();
            }
        },
    )
    .await?;
    if is_shown {
        eprint!("\r\x1b[K");
    }
    let after = server_stats(context).await;
    measured.server = Server {
        calls: after.calls.saturating_sub(before.calls),
        micros: after.micros.saturating_sub(before.micros),
    };
    Ok(measured)
}

async fn for_a_time(
    arguments: &BenchArguments,
    time: Duration,
    request: &impl AsyncFn() -> Result<Answer, Failure>,
    show: impl FnMut(u64, f64),
) -> Result<Measured, Failure> {
    let state = RefCell::new((Measured::new()?, show));
    let start = Instant::now();
    let callers = (0..arguments.callers).map(async |_| {
        while start.elapsed() < time {
            let asked = Instant::now();
            let answer = request().await;
            let (measured, show) = &mut *state.borrow_mut();
            measured.note(asked.elapsed(), answer);
            show(
                measured.requests(),
                start.elapsed().as_secs_f64() / time.as_secs_f64(),
            );
        }
    });
    join_all(callers).await;
    let (mut measured, _) = state.into_inner();
    measured.time = start.elapsed();
    Ok(measured)
}

/// Of all servers. Zeros if they do not say.
async fn server_stats(context: &Context) -> Server {
    let mut sum = Server::default();
    for server in context.client.servers().unwrap_or_default() {
        let info = said(&server, ["INFO", "commandstats"])
            .await
            .unwrap_or_default();
        let info = fields(&info);
        for command in ["cmdstat_evalsha", "cmdstat_eval"] {
            let line = info.get(command).map(String::as_str).unwrap_or_default();
            let of = |field: &str| {
                let found = line
                    .split(',')
                    .find_map(|it| it.strip_prefix(field)?.strip_prefix('='));
                found.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0)
            };
            sum.calls += of("calls");
            sum.micros += of("usec");
        }
    }
    sum
}

pub(super) fn micros_as_text(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{micros}us"),
        10_000..10_000_000 => format!("{:.1}ms", micros as f64 / 1e3),
        _ => format!("{:.1}s", micros as f64 / 1e6),
    }
}
