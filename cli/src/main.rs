//! `rratelimiter`: limiters on the command line. `arguments` says what can be asked for, `store`
//! connects, each module in `commands` does one thing and returns a [`Report`](report::Report), and
//! `main` prints it and ends with its exit code.

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
            // This does not wait for a read of the standard input that is under way.
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

/// Whether a command line that could not be read asks for JSON. What follows `--` is another
/// program's.
fn wants_json() -> bool {
    let arguments = std::env::args_os().skip(1);
    let mut own = arguments.take_while(|it| it != "--");
    own.any(|it| it == "--json")
}
