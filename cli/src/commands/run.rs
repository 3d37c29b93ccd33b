//! `run`: the command takes this program's place once it has its permits, so that signals, the
//! terminal and the exit code are its own.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use super::Context;
use crate::arguments::RunArguments;
use crate::failure::Failure;
use crate::limiter::Limiter;
use crate::report::Report;

/// What shells return for a command that cannot be executed, and for one that cannot be found.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(super) async fn run(context: &Context, arguments: &RunArguments) -> Result<Report, Failure> {
    let set_up = Some(&arguments.set_up);
    let limiter = Limiter::new(context, &arguments.name, &arguments.policy, set_up).await?;
    let waiting = limiter.acquire(arguments.permits, arguments.timeout);
    if !context.unless_interrupted(waiting).await? {
        let json = json!({ "granted": false });
        return Ok(Report::either(false, "denied: not run", json));
    }
    // Returns only if it fails.
    let error = command(arguments).exec();
    Err(not_started(&limiter, arguments, &error).await)
}

pub(super) fn command(arguments: &RunArguments) -> Command {
    let mut words = arguments.command.iter();
    // There is one: the argument is required.
    let mut command = Command::new(words.next().cloned().unwrap_or_default());
    command.args(words);
    command
}

/// Why the command did not run. Nor did it use its permits.
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
