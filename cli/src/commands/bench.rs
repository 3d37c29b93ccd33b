//! `bench`: what a limiter does under load, beside a script that does nothing.

mod load;
mod own;

use std::time::Duration;

use clap::Args;
use redisson_rate_limiter::Rate;
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::inspect::script::Script;
use crate::output::Output;
use crate::rate::{RateArgument, duration};
use crate::report::{Report, millis};
use crate::signals::or_signal;
use crate::terminal::Color;
use load::{Answer, Measured, Server};

/// As many keys as a limiter's own scripts get, and no work.
const BARE: &str = "return 1";
/// A limiter that the bench has made goes by itself if the bench cannot remove it.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter bench load-test                      5 s of each, 64 callers
  rratelimiter bench load-test --callers 1 --duration 10s
  rratelimiter bench load-test --rate 1000/s --json

It measures a script that does nothing, sent by EVALSHA with the keys of a limiter, and then the limiter, each over one connection \
of one thread. Requests that are made at the same time share calls, so a limiter can be faster than bare calls. It refuses a server \
that is not its own: one beyond the loopback, with other clients, or with keys of others; and a limiter that exists. --yes measures all the \
same.")]
pub(crate) struct BenchArguments {
    /// A limiter, which is made for the bench if it is missing
    name: String,
    /// How long to measure each
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    duration: Duration,
    /// How many requests are under way at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// How many permits a request takes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    permits: u32,
    /// The rate of the limiter, if it has none: by default one that is never used up
    #[arg(long, value_name = "RATE")]
    rate: Option<RateArgument>,
    /// Measure although others use the server or the limiter
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn bench(
    context: &Context,
    arguments: &BenchArguments,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    // Also one whose rate cannot be read is its users' own.
    let is_mine = super::kind_of(context, limiter.name()).await?.is_none();
    if !is_mine {
        super::refuse_other(context, limiter.name()).await?;
    }
    if !arguments.yes {
        own::check(context, &limiter, !is_mine).await?;
    }
    if is_mine {
        let rate = match arguments.rate {
            Some(rate) => Rate::overall(rate.permits, rate.interval),
            None => Rate::overall(1 << 50, Duration::from_secs(1)),
        };
        limiter
            .set_rate(rate.keep_alive(KEEP_ALIVE.max(rate.interval())))
            .await?;
    }
    let measured = or_signal(measure(context, arguments, &limiter)).await;
    if is_mine {
        limiter.delete().await?;
    }
    let (bare, limited) = match measured.map_err(|error| Failure::usage(error.to_string()))? {
        Ok(measured) => measured?,
        Err(exit_code) => return Err(Failure::interrupted(exit_code)),
    };
    let mut output = Output::new(context.is_json);
    print(&mut output, limiter.name(), arguments, &bare, &limited)?;
    output.flush()?;
    Ok(Report::printed(true))
}

async fn measure(
    context: &Context,
    arguments: &BenchArguments,
    limiter: &redisson_rate_limiter::RateLimiter,
) -> Result<(Measured, Measured), Failure> {
    let script = Script::new(BARE);
    let keys = limiter.keys().map(str::as_bytes);
    let bare = load::run(context, "bare EVALSHA", arguments, async || {
        script
            .run(&context.client, &keys, &[])
            .await
            .map(|_| Answer::Granted)
    });
    let bare = bare.await?;
    let limited = load::run(context, "try", arguments, async || {
        Ok(match limiter.try_acquire(arguments.permits).await? {
            true => Answer::Granted,
            false => Answer::Denied,
        })
    });
    Ok((bare, limited.await?))
}

fn print(
    output: &mut Output,
    name: &str,
    arguments: &BenchArguments,
    bare: &Measured,
    limited: &Measured,
) -> Result<(), Failure> {
    let ratio = limited.per_second() / bare.per_second().max(1.0);
    output.json(|| {
        json!({
            "name": name, "callers": arguments.callers, "permits": arguments.permits,
            "duration_ms": millis(arguments.duration), "bare_evalsha": bare.to_json(), "limiter": limited.to_json(), "ratio": ratio,
        })
    })?;
    let terminal = output.terminal;
    let (callers, time) = (
        arguments.callers,
        crate::report::lasting(arguments.duration),
    );
    let name = crate::terminal::shown(name, 60);
    output.text(terminal.paint(
        Color::Bold,
        &format!("{name}: {time} each, {callers} callers of one thread"),
    ))?;
    let heading = format!(
        "{:<14}{:>12}{:>9}{:>9}{:>9}{:>9}{:>16}",
        "", "per second", "p50", "p90", "p99", "max", "server us each"
    );
    output.text(terminal.paint(Color::Dim, &heading))?;
    for (what, it) in [("bare EVALSHA", bare), ("try", limited)] {
        let [p50, p90, p99, max] = it.percentiles().map(load::micros_as_text);
        let server = it
            .server_micros()
            .map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
        output.text(format!(
            "{what:<14}{:>12.0}{p50:>9}{p90:>9}{p99:>9}{max:>9}{server:>16}",
            it.per_second()
        ))?;
    }
    let Server { calls, .. } = limited.server;
    let shared = limited.requests() as f64 / calls.max(1) as f64;
    output.text(format!(
        "ratio {ratio:.2}; {} granted, {} denied, {} failed; {shared:.1} requests a call",
        limited.granted, limited.denied, limited.failed
    ))?;
    if let Some(error) = &limited.first_error {
        output.text(terminal.paint(Color::Bad, &format!("the first failure: {error}")))?;
    }
    Ok(())
}
