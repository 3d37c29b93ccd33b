//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::doctor::DoctorArguments;
use crate::commands::explain::ExplainArguments;
use crate::commands::list::ListArguments;
use crate::commands::show::ShowArguments;
use crate::commands::watch::WatchArguments;
use crate::policy::PolicyArguments;
use crate::rate::{RateArgument, duration};
use crate::serve::ServeArguments;
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
  rratelimiter try alice --policy token-bucket --per-second 2 --capacity 100

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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    On(Box<OnStore>),
    /// Serve limits to services in any language: over HTTP, and to Envoy and nginx
    Serve(Box<ServeArguments>),
    /// Print the hash of a key, as the `keys` of a rules file have it
    #[command(after_help = "\
Examples:
  rratelimiter hash-key < long-value                   of a value of more than 256 bytes: sha256-…
  rratelimiter hash-key --secret-file secret < api-key of a key that a service hashes by that secret")]
    HashKey {
        /// A file with the secret of a service whose keys are hashed by `Key::hashed`
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
    },
    /// Print the completions for a shell
    #[command(after_help = "\
Examples:
  rratelimiter completions bash > /etc/bash_completion.d/rratelimiter
  rratelimiter completions zsh > ~/.zfunc/_rratelimiter
  rratelimiter completions fish > ~/.config/fish/completions/rratelimiter.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or that of one command
    #[command(after_help = "\
Examples:
  rratelimiter man > /usr/local/share/man/man1/rratelimiter.1
  rratelimiter man doctor > /usr/local/share/man/man1/rratelimiter-doctor.1")]
    Man {
        /// A command
        command: Option<String>,
    },
}

/// The commands that connect.
#[derive(Debug, Subcommand)]
pub(crate) enum OnStore {
    /// Give a limiter its rate, and ask before it changes one that has a rate
    #[command(after_help = "\
Examples:
  rratelimiter set orders:api 5/s
  rratelimiter set orders:api 100/10m --yes            changes a rate without a question
  rratelimiter set orders:api 100/10m --if-missing     leaves a rate that there is
  rratelimiter set login 3/1m --keep-alive 1h          removed when nobody has asked for an hour

What is not named stays: for whom the rate is, the keep alive, and the permits in use.")]
    Set {
        #[command(flatten)]
        rate: RateArguments,
        #[command(flatten)]
        change: ChangeArguments,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// Leave the rate of a limiter that has one (exit code 1)
        #[arg(long, conflicts_with_all = ["yes", "overall", "no_keep_alive", "reset"])]
        if_missing: bool,
    },
    /// Change the rate of a limiter that has one, without a question
    #[command(after_help = "\
Examples:
  rratelimiter update orders:api 10/s
  rratelimiter update orders:api 10/s --reset          all permits are there again

What is not named stays: for whom the rate is, the keep alive, and the permits in use.")]
    Update {
        #[command(flatten)]
        rate: RateArguments,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Take permits if they are there
    #[command(after_help = "\
Examples:
  rratelimiter try orders:api && curl …
  rratelimiter try orders:api 3 --rate 5/s             makes the limiter if it is missing
  rratelimiter try alice --policy fixed-window --limit 100 --window 1m
  rratelimiter try orders:api --json | jq .retry_after_ms")]
    Try(PermitArguments),
    /// Wait for permits, and take them
    #[command(after_help = "\
Examples:
  rratelimiter acquire orders:api && curl …
  rratelimiter acquire orders:api 5 --timeout 30s || echo 'too busy'")]
    Acquire {
        /// How long to wait at most
        #[arg(long, value_name = "TIME", value_parser = duration)]
        timeout: Option<Duration>,
        #[command(flatten)]
        permits: PermitArguments,
    },
    /// Give permits back, those that were taken first
    #[command(after_help = "\
Examples:
  rratelimiter release orders:api 2")]
    Release {
        /// A limiter
        name: String,
        /// How many permits
        #[arg(default_value_t = 1)]
        permits: u32,
    },
    /// Print how many permits are there
    #[command(after_help = "\
Examples:
  rratelimiter available orders:api
  rratelimiter available orders:api --json | jq .available")]
    Available {
        /// A limiter
        name: String,
    },
    /// Print whether `try` would be granted, and take nothing
    #[command(after_help = "\
Examples:
  rratelimiter peek orders:api 3
  rratelimiter peek alice --policy token-bucket --per-second 2 --capacity 100")]
    Peek(PermitArguments),
    /// Print the rate and the time to live
    #[command(after_help = "\
Examples:
  rratelimiter config orders:api
  rratelimiter config orders:api --json | jq .rate.permits")]
    Config {
        /// A limiter
        name: String,
    },
    /// Remove a limiter, or all that a policy counted for a key
    #[command(after_help = "\
Examples:
  rratelimiter delete orders:api                       asks on a terminal
  rratelimiter delete orders:api --yes
  rratelimiter delete alice --yes --policy fixed-window --limit 100 --window 1m")]
    Delete {
        /// A limiter, or the key of a policy
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        policy: PolicyArguments,
    },
    /// Give a limiter a time to live, or take it away
    #[command(after_help = "\
Examples:
  rratelimiter expire orders:api 1h
  rratelimiter expire orders:api 0s --yes              removes it
  rratelimiter expire orders:api --never")]
    Expire {
        /// A limiter
        name: String,
        /// How long it lives, such as 90s, 1h or 7d; 0s removes it, after asking
        #[arg(value_parser = duration, required_unless_present = "never", conflicts_with = "never")]
        time: Option<Duration>,
        /// It does not expire any more
        #[arg(long)]
        never: bool,
        /// Do not ask whether to remove it
        #[arg(long, short)]
        yes: bool,
    },
    /// Take all permits for some time, so that no process gets any
    #[command(after_help = "\
A hold ends by itself, or with `set --reset` or `delete`.

Examples:
  rratelimiter hold partner-api 10m
  rratelimiter hold partner-api 90s --yes")]
    Hold {
        /// A limiter
        name: String,
        /// For how long, such as 90s, 10m or 1h
        #[arg(value_parser = duration)]
        time: Duration,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Wait for permits, then run a command in place of this one
    #[command(after_help = "\
Examples:
  rratelimiter run orders:api -- curl https://example.com
  rratelimiter run backup --rate 1/1h --timeout 10s -- pg_dump shop
  rratelimiter run orders:api --each -- curl -s < urls.txt
  rratelimiter run orders:api --each --jobs 4 -- convert {} {}.png < files.txt")]
    Run(RunArguments),
    /// List the limiters of a server or cluster, with their rates and use
    List(ListArguments),
    /// Show what a limiter holds, who took it and when it comes back
    Show(ShowArguments),
    /// Explain why a limiter denies, who holds its permits and when they come back
    Explain(ExplainArguments),
    /// Find what is wrong with limiters and their servers, and mend it with --fix
    Doctor(DoctorArguments),
    /// Watch limiters as they are used, live
    Watch(WatchArguments),
}

#[derive(Debug, Args)]
pub(crate) struct RateArguments {
    /// A limiter
    pub(crate) name: String,
    /// PERMITS/INTERVAL, such as 5/s, 100/10m or 20/500ms
    pub(crate) rate: RateArgument,
    #[command(flatten)]
    pub(crate) kind: RateKind,
}

/// What of a limiter that has a rate changes besides it.
#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    /// All clients together have the rate, not each
    #[arg(long, conflicts_with = "per_client")]
    pub(crate) overall: bool,
    /// The limiter does not expire any more
    #[arg(long, conflicts_with = "keep_alive")]
    pub(crate) no_keep_alive: bool,
    /// Forget the permits in use
    #[arg(long)]
    pub(crate) reset: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RateKind {
    /// Each client has the whole rate to itself
    #[arg(long)]
    pub(crate) per_client: bool,
    /// The limiter is removed when nobody has taken permits for so long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) keep_alive: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct PermitArguments {
    /// A limiter, or the key that a policy counts for
    pub(crate) name: String,
    /// How many permits
    #[arg(default_value_t = 1)]
    pub(crate) permits: u32,
    #[command(flatten)]
    pub(crate) set_up: SetUpArguments,
    // Last, as its heading stands before all that follow.
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SetUpArguments {
    /// The rate that the limiter gets if it has none
    #[arg(long, value_name = "RATE", conflicts_with = "policy")]
    pub(crate) rate: Option<RateArgument>,
    #[command(flatten)]
    pub(crate) kind: RateKind,
}

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
