//! `run`: when the permits are granted, the command replaces this process (`exec`), so that it gets
//! the signals and the terminal, and its exit code is returned.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::limiter::{Limiter, SetUpArguments};
use crate::policy::PolicyArguments;
use crate::rate::duration;
use crate::report::Report;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// A limiter, or the key that a policy counts for
    pub(crate) name: String,
    /// How many permits a run of the command takes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) permits: u32,
    /// How long to wait for them at most; exit code 1 if they did not come
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Run the command for each line of the standard input, with the line in place of {}, or as the
    /// last argument
    #[arg(long)]
    pub(crate) each: bool,
    /// How many of these commands run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "each", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: u16,
    /// The command with its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) set_up: SetUpArguments,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

/// The exit code of shells for a command that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;
/// The exit code of shells for a command that cannot be found.
const NOT_FOUND: u8 = 127;

pub(super) async fn run(context: &Context, arguments: &RunArguments) -> Result<Report, Failure> {
    let set_up = &arguments.set_up;
    let limiter = Limiter::new(context, &arguments.name, &arguments.policy, set_up).await?;
    let waiting = limiter.acquire(arguments.permits, arguments.timeout);
    if !context.unless_interrupted(waiting).await? {
        let json = json!({ "granted": false });
        return Ok(Report::either(false, "denied: not run", json));
    }
    // `exec` returns only if it fails.
    let error = command(arguments).exec();
    Err(not_started(&limiter, arguments, &error).await)
}

pub(super) fn command(arguments: &RunArguments) -> Command {
    let mut words = arguments.command.iter();
    // There is a first word, because the argument is required.
    let mut command = Command::new(words.next().cloned().unwrap_or_default());
    command.args(words);
    command
}

/// Gives back the permits of a command that could not be started, and returns the failure.
pub(super) async fn not_started(
    limiter: &Limiter,
    arguments: &RunArguments,
    error: &std::io::Error,
) -> Failure {
    limiter.give_back(arguments.permits).await;
    let exit_code = match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_EXECUTE,
    };
    let program = arguments.command.first().cloned().unwrap_or_default();
    let program = program.display().to_string();
    Failure::not_started(exit_code, format!("{}: {error}", program.escape_debug()))
}
