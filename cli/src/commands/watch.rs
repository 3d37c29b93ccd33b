//! `watch`: shows limiters live, as they are used.

mod history;
mod keys;
#[cfg(test)]
#[path = "../../tests/cli/pseudo_terminal.rs"]
mod pseudo_terminal;
mod sampling;
mod screen;
mod tty;
mod view;
#[cfg(test)]
#[path = "../../tests/cli/watchdog.rs"]
mod watchdog;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use history::{History, Watched};
use sampling::Sampler;
use screen::{Ended, Input, Screen};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::doctor::as_pattern;
use super::list::layout::{self, Column, HEALTH, Layout, column};
use super::list::{percent, share_in_use};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::rate::duration;
use crate::report::{Report, lasting, millis};
use crate::signals::{HANGUP, or_signal};
use crate::terminal::{Terminal, compact};

/// The shortest time between two rounds of samples.
const SHORTEST: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter watch                              the hottest limiters of a server
  rratelimiter watch orders:api --every 200ms
  rratelimiter watch 'login:*' --once             one look, as a table
  rratelimiter watch --json | jq -c '.limiters[] | select(.available == 0)'

A sample is one bounded script call for each limiter that is shown, and the picture says how many calls that are. Permits granted are \
read from the grants that are stored: of a limiter whose interval is shorter than --every, some are gone by then. A denial leaves \
nothing in Redis; `empty` is the share of the samples that found no permit.")]
pub(crate) struct WatchArguments {
    /// A limiter, or several with `*`, `?` and `[abc]` as in the shell
    #[arg(default_value = "*")]
    name: String,
    /// How often to sample
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    every: Duration,
    /// How many limiters to watch at most: the hottest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    most: u16,
    /// Look once, and print a table
    #[arg(long)]
    once: bool,
}

pub(super) async fn watch(
    context: &Context,
    arguments: &WatchArguments,
) -> Result<Report, Failure> {
    if arguments.every < SHORTEST {
        return Err(Failure::usage("--every must be at least 50ms"));
    }
    let pattern = context.store.full_name(&arguments.name);
    let mut history = History::new(arguments.most.into(), arguments.every);
    let mut sampler = Sampler::new(context, as_pattern(&pattern), arguments.every);
    if arguments.once {
        history.note(sampler.round(&[], true).await);
        let is_found = !history.targets().is_empty();
        let error = history.error.as_ref().map(|(error, _)| error.clone());
        if is_found || error.is_none() {
            print(&mut Output::new(context.is_json), &history)?;
        }
        return match error {
            Some(error) => Err(Failure::store(error)),
            None => Ok(Report::printed(is_found)),
        };
    }
    if context.is_json {
        // Signals keep their default effect: a write blocks while the reader does not read, and a
        // caught signal would not end it.
        print_rounds(&mut history, sampler, arguments.every).await?;
        return Ok(Report::printed(true));
    }
    if !io::stdout().is_terminal() {
        let message = "without a terminal, `watch` needs --once or --json";
        return Err(Failure::usage(message));
    }
    let watching = show(history, &mut sampler, &pattern, arguments.every);
    let ended = or_signal(watching)
        .await
        .map_err(|error| Failure::usage(error.to_string()))?;
    let exit_code = match ended {
        Ok(result) => result?,
        Err(exit_code) => exit_code,
    };
    Ok(Report::printed(true).with_exit_code(exit_code))
}

/// Prints a line for each round, forever.
async fn print_rounds(
    history: &mut History,
    mut sampler: Sampler<'_>,
    every: Duration,
) -> Result<(), Failure> {
    let mut output = Output::new(true);
    let mut next = Instant::now();
    loop {
        history.note(sampler.round(&history.targets(), false).await);
        print(&mut output, history)?;
        next = (next + every).max(Instant::now());
        sleep_until(next).await;
    }
}

/// Shows the picture until a person quits or the terminal hangs up. Returns the exit code.
async fn show(
    history: History,
    sampler: &mut Sampler<'_>,
    pattern: &str,
    every: Duration,
) -> Result<u8, Failure> {
    let history = Arc::new(Mutex::new(history));
    let mut screen = Screen::enter({
        let (history, pattern) = (Arc::clone(&history), pattern.to_owned());
        let terminal = Terminal::of_stdout();
        move |frame| view::draw(frame, &locked(&history), &pattern, &terminal)
    });
    let mut inputs = screen::inputs();
    let mut next = Instant::now();
    loop {
        let targets = locked(&history).targets();
        // Keys work even while a server does not answer.
        let at = next;
        let sampling = async {
            sleep_until(at).await;
            sampler.round(&targets, false).await
        };
        tokio::pin!(sampling);
        let round = loop {
            screen.redraw();
            let input = tokio::select! {
                round = &mut sampling => break round,
                input = inputs.recv() => input.unwrap_or(Input::Quit),
                ended = screen.failed() => match ended {
                    Ended::HungUp => return Ok(HANGUP),
                    Ended::Failed(failure) => return Err(failure),
                },
            };
            let mut history = locked(&history);
            if let Some(exit_code) = keys::press(&mut history, input) {
                return Ok(exit_code);
            }
        };
        let mut history = locked(&history);
        // A paused view drops its rounds; the first round after it covers the time since the pause.
        if !history.view.is_paused {
            history.note(round);
        }
        drop(history);
        next = (next + every).max(Instant::now());
    }
}

fn locked(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

const COLUMNS: [Column; 6] = [
    column("RATE", 12, 56),
    column("AVAILABLE", 10, 66),
    column("USE", 5, 0),
    column("GRANTED/s", 9, 44),
    column("NEXT RETURN", 12, 96),
    HEALTH,
];

fn print(output: &mut Output, history: &History) -> Result<(), Failure> {
    output.json(|| to_json(history))?;
    let all = history.in_order();
    let layout = Layout::new(
        output.terminal,
        &COLUMNS,
        all.iter().map(|(name, _)| &***name),
    );
    output.text(layout.heading())?;
    for (name, it) in all {
        let sample = &it.latest;
        let number = |it: Option<u64>| it.map_or_else(|| "-".to_owned(), compact);
        let share = share_in_use(sample).map_or_else(|| "-".to_owned(), percent);
        let next = sample.next_return.map_or_else(|| "-".to_owned(), lasting);
        let per_second = format!("{:.1}", it.per_second);
        let rate = output
            .terminal
            .fitted_to(&sample.settings.as_argument(), 12);
        let (mark, word, color) = layout::health(sample);
        let cells = [rate, number(sample.available), share, per_second, next].map(|it| (it, None));
        let [rate, available, share, per_second, next] = cells;
        let word = (word.to_owned(), Some(color));
        let cells = [rate, available, share, per_second, next, word];
        output.text(layout.row(mark, name, &cells))?;
    }
    output.flush()
}

fn to_json(history: &History) -> Value {
    let limiter = |(name, it): (&String, &Watched)| {
        let sample = &it.latest;
        // `null` if the last round did not reach the limiter, so that no grant is counted twice.
        let granted = it.is_new.then_some(sample.new_permits);
        let per_second = it.is_new.then_some(it.per_second);
        json!({
            "name": name, "rate": sample.settings.to_json(), "health": sample.health.code(),
            "health_text": sample.health.text(), "available": sample.available, "in_use": sample.in_use(),
            "granted": granted, "granted_per_second": per_second,
            "next_return_ms": sample.next_return.map(millis), "empty": it.share_empty(), "server_time_ms": sample.now,
        })
    };
    json!({
        "limiters": history.in_order().into_iter().map(limiter).collect::<Vec<_>>(),
        "calls_per_second": history.calls_per_second,
        "busy": history.busy,
        "error": history.error.as_ref().map(|(error, _)| error),
    })
}
