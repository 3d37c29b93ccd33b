//! The command line: the arguments of all commands, and the command.

use clap::Parser;

use crate::commands::Command;
use crate::store::StoreArguments;

/// Redisson's rate limiters on the command line.
///
/// They are those of Java services and of the Rust crate redisson-rate-limiter: what one takes, all
/// others see.
#[derive(Debug, Parser)]
#[command(
    name = "rratelimiter",
    version,
    after_help = "Exit codes: 0 granted or done, 1 denied, 2 usage or no such limiter, 3 store. Those of `run` are the command's.",
    after_long_help = "\
Examples:
  rratelimiter set orders:api 5/s                      give a limiter its rate
  rratelimiter try orders:api && curl …                only if a permit is there
  rratelimiter run orders:api -- curl …                wait for a permit, then run
  rratelimiter run orders:api --each -- curl -s < urls one command a line, at the limiter's pace
  rratelimiter try alice --policy token-bucket --rate 2/s --capacity 100

Exit codes:
  0  granted, or done
  1  denied, kept, or nothing found
  2  usage: an argument, or there is no such limiter
  3  the store: it is away, refuses, or holds something else
  `run` ends with the exit code of its command; 126 and 127 as in a shell where that cannot be started."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Print JSON, one object a command
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}
