//! `rratelimiter`: limiters on the command line. `arguments` says what can be asked for, `store` connects, each module in
//! `commands` does one thing and returns a [`Report`](report::Report), and `main` prints it and ends with its exit code.

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod failure;
mod inspect;
mod limiter;
mod output;
mod policy;
mod rate;
mod report;
mod serve;
mod signals;
mod store;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_json = arguments.json;
    let mut runtime = match arguments.command {
        Command::Serve(_) => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    let executed = match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(commands::execute(arguments)),
        Err(error) => Err(failure::Failure::usage(error.to_string())),
    };
    match executed {
        Ok(report) => report.print(is_json),
        Err(failure) => failure.print(is_json),
    }
}
