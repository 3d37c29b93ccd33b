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
mod signals;
mod store;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_json = arguments.json;
    match commands::execute(arguments).await {
        Ok(report) => report.print(is_json),
        Err(failure) => failure.print(is_json),
    }
}
