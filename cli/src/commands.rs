//! What each command does. A command that waits ends at a signal, and gives back what it took.

pub(crate) mod doctor;
pub(crate) mod explain;
mod hash_key;
mod life;
pub(crate) mod list;
mod permits;
mod rate;
mod run;
mod run_each;
pub(crate) mod show;
pub(crate) mod watch;

use std::time::Duration;

use clap::CommandFactory;
use redisson_rate_limiter::{RateLimiter, RedissonClient};
use serde_json::json;

use crate::arguments::{Arguments, Command, OnStore};
use crate::failure::Failure;
use crate::inspect::reply;
use crate::inspect::settings::{FIELDS, Settings};
use crate::report::Report;
use crate::signals::or_signal;
use crate::store::StoreArguments;

/// How long permits that a cancelled command took may take to be given back.
const CLOSE: Duration = Duration::from_secs(3);

/// What every command has at hand.
pub(crate) struct Context {
    pub(crate) client: RedissonClient,
    pub(crate) store: StoreArguments,
    pub(crate) is_json: bool,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Report, Failure> {
    let command = match arguments.command {
        Command::Completions { shell } => return Ok(completions(shell)),
        Command::Man { command } => return man(command.as_deref()),
        Command::HashKey { secret_file } => return hash_key::hash_key(secret_file.as_deref()),
        Command::Serve(serve) => return crate::serve::run(arguments.store, *serve).await,
        Command::On(command) => command,
    };
    let client = arguments.store.connect().await?;
    let context = Context {
        client: client.clone(),
        store: arguments.store,
        is_json: arguments.json,
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
        OnStore::Delete { name, yes, policy } => life::delete(context, &name, yes, &policy).await,
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

impl Context {
    pub(crate) fn rate_limiter(&self, name: &str) -> RateLimiter {
        self.client.rate_limiter(&self.store.full_name(name))
    }

    /// What `wait` returns, unless a signal comes first: then `wait` is dropped, and what it took
    /// is given back.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        wait: impl Future<Output = redisson_rate_limiter::Result<T>>,
    ) -> Result<T, Failure> {
        let ended = or_signal(wait).await;
        match ended.map_err(|error| Failure::usage(format!("signals: {error}")))? {
            Ok(output) => Ok(output?),
            Err(exit_code) => Err(Failure::interrupted(exit_code)),
        }
    }
}

/// The settings in the hash of this name; all are empty if there is none.
async fn settings(context: &Context, name: &str) -> Result<Settings, Failure> {
    let fields = ["HMGET", name].into_iter().chain(FIELDS);
    let fields = reply::list(context.client.command(fields).await?);
    Ok(Settings::read(&reply::exactly(fields)?))
}

/// Whether the hash of this name is a limiter's.
async fn is_limiter(context: &Context, name: &str) -> Result<bool, Failure> {
    Ok(settings(context, name).await?.are_a_limiters())
}

/// What the key of this name is, such as a string; `None` if there is none.
async fn kind_of(context: &Context, name: &str) -> Result<Option<String>, Failure> {
    let kind = context.client.command(["TYPE", name]).await?;
    Ok(Some(reply::text(&kind)).filter(|it| it != "none"))
}

/// Fails if the key of this name is another program's.
pub(crate) async fn refuse_other(context: &Context, name: &str) -> Result<(), Failure> {
    if let Some(kind) = kind_of(context, name).await?
        && !(kind == "hash" && is_limiter(context, name).await?)
    {
        let message = format!("{} is a {kind}, and no rate limiter", name.escape_debug());
        return Err(Failure::store(message));
    }
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> Report {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    text_only(&script)
}

fn man(of: Option<&str>) -> Result<Report, Failure> {
    let mut command = Arguments::command();
    command.build();
    if let Some(name) = of {
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
