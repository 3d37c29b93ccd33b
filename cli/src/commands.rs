//! The commands. A signal ends a command that waits, and the permits that it took are given back.

pub(crate) mod doctor;
pub(crate) mod explain;
mod hash_key;
mod import;
mod life;
pub(crate) mod list;
mod permits;
mod rate;
mod run;
mod run_each;
mod serve;
pub(crate) mod show;
pub(crate) mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use clap_complete::Shell;
use serde_json::json;

use self::doctor::DoctorArguments;
use self::explain::ExplainArguments;
use self::list::ListArguments;
use self::permits::PermitArguments;
use self::rate::{ChangeArguments, RateArguments};
use self::run::RunArguments;
use self::show::ShowArguments;
use self::watch::WatchArguments;
use crate::context::Context;
use crate::failure::Failure;
use crate::policy::PolicyArguments;
use crate::rate::{RateArgument, duration};
use crate::report::Report;
use crate::store::StoreArguments;
use redisson_rate_limiter_serve::ServeArguments;

/// The longest time for giving back the permits that a cancelled command took.
const CLOSE: Duration = Duration::from_secs(3);

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
    /// Print a configuration of envoyproxy/ratelimit as a rules file
    #[command(after_help = "\
Examples:
  rratelimiter import config.yaml > rules.toml
  rratelimiter serve --rules rules.toml --check

What has no form as a rule, or is counted otherwise, is in comments at the top. Domains of several files are put together by hand.")]
    Import {
        /// The configuration, in YAML
        file: PathBuf,
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

/// The commands that connect to a store.
#[derive(Debug, Subcommand)]
pub(crate) enum OnStore {
    /// Set the rate of a limiter; asks first if the limiter has one
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
        /// Do not ask for confirmation
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
    /// Take permits if they are available
    #[command(after_help = "\
Examples:
  rratelimiter try orders:api && curl …
  rratelimiter try orders:api 3 --rate 5/s             makes the limiter if it is missing
  rratelimiter try alice --policy fixed-window --rate 100/1m
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
    /// Give permits back, the oldest first
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
    /// Print how many permits are available
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
  rratelimiter peek alice --policy token-bucket --rate 2/s --capacity 100")]
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
    /// Delete a limiter, or all that a policy has counted for a key
    #[command(after_help = "\
Examples:
  rratelimiter delete orders:api                       asks on a terminal
  rratelimiter delete orders:api --yes
  rratelimiter delete alice --yes --policy fixed-window --rate 100/1m")]
    Delete {
        /// A limiter, or the key of a policy
        name: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        /// The rate of the policy
        #[arg(long, value_name = "RATE", requires = "policy")]
        rate: Option<RateArgument>,
        #[command(flatten)]
        policy: PolicyArguments,
    },
    /// Set or remove the time to live of a limiter
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
        /// Remove the time to live
        #[arg(long)]
        never: bool,
        /// Do not ask for confirmation
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
        /// Do not ask for confirmation
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

/// Executes the command. `program` is the definition of the whole command line, for completions and
/// manual pages.
pub(crate) async fn execute(
    command: Command,
    store: StoreArguments,
    is_json: bool,
    program: clap::Command,
) -> Result<Report, Failure> {
    let command = match command {
        Command::Completions { shell } => return Ok(completions(shell, program)),
        Command::Man { command } => return man(command.as_deref(), program),
        Command::HashKey { secret_file } => return hash_key::hash_key(secret_file.as_deref()),
        Command::Import { file } => return import::import(&file),
        Command::Serve(serve) => return serve::serve(&store, *serve).await,
        Command::On(command) => command,
    };
    let client = store.connect().await?;
    let context = Context {
        client: client.clone(),
        store,
        is_json,
    };
    let result = execute_on(&context, *command).await;
    client.close(CLOSE).await;
    result
}

async fn execute_on(context: &Context, command: OnStore) -> Result<Report, Failure> {
    match command {
        OnStore::Set {
            rate,
            if_missing: true,
            ..
        } => rate::set_if_missing(context, &rate).await,
        OnStore::Set {
            rate, change, yes, ..
        } => rate::set(context, &rate, &change, yes).await,
        OnStore::Update { rate, change } => rate::update(context, &rate, &change).await,
        OnStore::Config { name } => rate::config(context, &name).await,
        OnStore::Try(permits) => permits::try_acquire(context, &permits).await,
        OnStore::Acquire { permits, timeout } => permits::acquire(context, &permits, timeout).await,
        OnStore::Release { name, permits } => permits::release(context, &name, permits).await,
        OnStore::Available { name } => permits::available(context, &name).await,
        OnStore::Peek(permits) => permits::peek(context, &permits).await,
        OnStore::Delete {
            name,
            yes,
            rate,
            policy,
        } => life::delete(context, &name, yes, policy.policy(rate.as_ref())?).await,
        OnStore::Expire {
            name, time, yes, ..
        } => life::expire(context, &name, time, yes).await,
        OnStore::Hold { name, time, yes } => life::hold(context, &name, time, yes).await,
        OnStore::Run(arguments) if arguments.each => run_each::run(context, &arguments).await,
        OnStore::Run(arguments) => run::run(context, &arguments).await,
        OnStore::List(arguments) => list::list(context, &arguments).await,
        OnStore::Doctor(arguments) => doctor::doctor(context, &arguments).await,
        OnStore::Watch(arguments) => watch::watch(context, &arguments).await,
        OnStore::Show(arguments) => show::show(context, &arguments).await,
        OnStore::Explain(arguments) => explain::explain(context, &arguments).await,
    }
}

fn completions(shell: Shell, mut command: clap::Command) -> Report {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    text_only(&script)
}

fn man(subcommand: Option<&str>, mut command: clap::Command) -> Result<Report, Failure> {
    command.build();
    if let Some(name) = subcommand {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| {
            Failure::usage(format!("there is no command `{}`", name.escape_debug()))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::usage(error.to_string()))?;
    Ok(text_only(&page))
}

fn text_only(text: &[u8]) -> Report {
    let text = String::from_utf8_lossy(text);
    Report::new(text.trim_end(), json!({ "text": text }))
}
