//! `run --each`: runs a command for each line of the standard input, each with its own permits.
//!
//! After a signal no more commands start; those that run get the signal too, and the program waits
//! for them. No more start either after a signal has killed a command, such as SIGPIPE, or a
//! command has ended with 255, by which it asks to stop.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::run;
use super::run::RunArguments;
use crate::context::Context;
use crate::failure::Failure;
use crate::limiter::Limiter;
use crate::report::Report;
use crate::signals::{or_signal, wait_for};

// The exit codes are those of xargs(1).
/// The exit code if a command has failed.
const A_COMMAND_FAILED: u8 = 123;
/// The exit code if a command has ended with 255.
const A_COMMAND_ASKED: u8 = 124;
/// The exit code if a signal has killed a command.
const A_COMMAND_DIED: u8 = 125;
/// The exit code with which a command asks that no more start.
const STOP: i32 = 255;

#[derive(Default)]
struct Progress {
    succeeded: u64,
    failed: u64,
    denied: u64,
    /// Why no more commands start.
    stopped: Option<Stopped>,
    /// Whether the counts are shown.
    is_shown: bool,
    /// Whether the counts are shown while commands run too. They are not if the commands write to
    /// the same terminal.
    is_apart: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Asked,
    Died(i32),
}

pub(super) async fn run(context: &Context, arguments: &RunArguments) -> Result<Report, Failure> {
    let set_up = &arguments.set_up;
    let limiter = Limiter::new(context, &arguments.name, &arguments.policy, set_up).await?;
    let mut progress = Progress {
        is_shown: io::stderr().is_terminal(),
        is_apart: !io::stdout().is_terminal(),
        ..Progress::default()
    };
    let mut running = JoinSet::new();
    let started = start_each(&limiter, arguments, &mut running, &mut progress);
    let ended = or_signal(started).await.map_err(failed)?;
    while let Some(status) = running.join_next().await {
        progress.note(status)?;
        progress.show(&running);
    }
    progress.clear();
    match ended {
        Ok(result) => result?,
        Err(exit_code) => return Err(Failure::interrupted(exit_code)),
    }
    Ok(progress.report())
}

async fn start_each(
    limiter: &Limiter,
    arguments: &RunArguments,
    running: &mut JoinSet<io::Result<ExitStatus>>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut lines = BufReader::new(tokio::io::stdin());
    loop {
        let mut line = Vec::new();
        let reading = lines.read_until(b'\n', &mut line);
        let Some(read) = unless_stopped(reading, running, progress).await? else {
            return Ok(());
        };
        if read.map_err(failed)? == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        while running.len() >= arguments.jobs.into() {
            if let Some(status) = running.join_next().await {
                progress.note(status)?;
            }
        }
        progress.show(running);
        let acquiring = limiter.acquire(arguments.permits, arguments.timeout);
        match unless_stopped(acquiring, running, progress).await? {
            None => return Ok(()),
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                progress.denied += 1;
                continue;
            }
            Some(Err(error)) => return Err(error.into()),
        }
        progress.clear();
        match command(arguments, OsString::from_vec(line)).spawn() {
            Ok(child) => running.spawn(wait_for(child)),
            Err(error) => return Err(run::not_started(limiter, arguments, &error).await),
        };
    }
}

/// Returns the output of `wait`, or `None` if commands are stopped first: then `wait` is dropped,
/// and the permits that it took are given back.
async fn unless_stopped<T>(
    wait: impl Future<Output = T>,
    running: &mut JoinSet<io::Result<ExitStatus>>,
    progress: &mut Progress,
) -> Result<Option<T>, Failure> {
    tokio::pin!(wait);
    loop {
        if progress.stopped.is_some() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            Some(status) = running.join_next() => progress.note(status)?,
            output = &mut wait => return Ok(Some(output)),
        }
    }
}

/// The command for a line.
fn command(arguments: &RunArguments, line: OsString) -> Command {
    let line = line.as_bytes();
    let mut is_placed = false;
    let mut words = arguments.command.iter().map(|word| {
        let word = with_line(word.as_bytes(), line, &mut is_placed);
        OsString::from_vec(word)
    });
    // There is a first word, because the argument is required.
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    if !is_placed {
        command.arg(OsStr::from_bytes(line));
    }
    command
}

/// Replaces each `{}` in a word by the line. A `{}` in the line itself stays. Sets `is_placed` if
/// there was one to replace.
fn with_line(mut word: &[u8], line: &[u8], is_placed: &mut bool) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = word.windows(2).position(|it| it == b"{}") {
        whole.extend_from_slice(&word[..at]);
        whole.extend_from_slice(line);
        word = &word[at + 2..];
        *is_placed = true;
    }
    whole.extend_from_slice(word);
    whole
}

impl Progress {
    fn note(
        &mut self,
        status: Result<io::Result<ExitStatus>, tokio::task::JoinError>,
    ) -> Result<(), Failure> {
        let status = status.map_err(|error| failed(error.into()))?;
        let status = status.map_err(failed)?;
        match status.success() {
            true => self.succeeded += 1,
            false => self.failed += 1,
        }
        let stopped = match (status.code(), status.signal()) {
            (Some(STOP), _) => Some(Stopped::Asked),
            (_, Some(signal)) => Some(Stopped::Died(signal)),
            _ => None,
        };
        self.stopped = self.stopped.or(stopped);
        Ok(())
    }

    fn show(&self, running: &JoinSet<io::Result<ExitStatus>>) {
        if self.is_shown && (self.is_apart || running.is_empty()) {
            eprint!("\r\x1b[K{}", self.text());
            let _ = io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }

    fn text(&self) -> String {
        let Self {
            succeeded,
            failed,
            denied,
            ..
        } = self;
        format!("{succeeded} succeeded, {failed} failed, {denied} not run")
    }

    fn report(&self) -> Report {
        let mut text = self.text();
        let stopped = match self.stopped {
            None => None,
            Some(Stopped::Asked) => Some("a command ended with 255".to_owned()),
            Some(Stopped::Died(signal)) => Some(format!("a command died of signal {signal}")),
        };
        if let Some(stopped) = &stopped {
            text += &format!("; stopped, as {stopped}");
        }
        let json = json!({
            "succeeded": self.succeeded,
            "failed": self.failed,
            "not_run": self.denied,
            "stopped": stopped,
        });
        // The commands' own output is on the standard output.
        let report = Report::on_stderr(text, json);
        match (self.stopped, self.failed, self.denied) {
            (Some(Stopped::Asked), ..) => report.with_exit_code(A_COMMAND_ASKED),
            (Some(Stopped::Died(_)), ..) => report.with_exit_code(A_COMMAND_DIED),
            (None, 0, 0) => report,
            (None, 0, _) => report.with_exit_code(crate::report::DENIED),
            (None, ..) => report.with_exit_code(A_COMMAND_FAILED),
        }
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::usage(error.to_string())
}
