//! `rratelimiter`: limiters on the command line. `arguments` defines the command line, `store`
//! connects, each module in `commands` executes a command and returns a
//! [`Report`](report::Report), and `main` prints the report and ends with its exit code.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod context;
mod failure;
mod inspect;
mod limiter;
mod output;
mod policy;
mod progress;
mod question;
mod rate;
mod report;
mod signals;
mod store;
mod terminal;

use std::process::ExitCode;

use arguments::Arguments;
use clap::{CommandFactory, Parser};
use commands::Command;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && wants_json() => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            return failure::Failure::usage(text).print(true);
        }
        Err(error) => error.exit(),
    };
    let is_json = arguments.json;
    let mut runtime = match &arguments.command {
        Command::Serve(_) => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    let executed = match runtime.enable_all().build() {
        Ok(runtime) => {
            let executed = runtime.block_on(commands::execute(
                arguments.command,
                arguments.store,
                is_json,
                Arguments::command(),
            ));
            // Dropping the runtime would wait for a pending read of the standard input.
            runtime.shutdown_background();
            executed
        }
        Err(error) => Err(failure::Failure::usage(error.to_string())),
    };
    match executed {
        Ok(report) => report.print(is_json),
        Err(failure) => failure.print(is_json),
    }
}

/// Whether a command line that could not be parsed asks for JSON. What follows `--` belongs to
/// another program.
fn wants_json() -> bool {
    let arguments = std::env::args_os().skip(1);
    let mut own = arguments.take_while(|it| it != "--");
    own.any(|it| it == "--json")
}
