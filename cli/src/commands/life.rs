//! `delete`, `expire`.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::inspect::sample::sample;
use crate::limiter::Limiter;
use crate::policy::PolicyArguments;
use crate::report::Report;

pub(super) async fn delete(
    context: &Context,
    name: &str,
    yes: bool,
    policy: &PolicyArguments,
) -> Result<Report, Failure> {
    let limiter = Limiter::new(context, name, policy, None).await?;
    let name = context.store.full_name(name);
    match &limiter {
        Limiter::Rate(..) => super::refuse_other(context, &name).await?,
        Limiter::Policy(of, key) => refuse_uncounted(context, key, of.policy().algorithm()).await?,
    }
    if !yes && !is_confirmed("delete", &name)? {
        return Ok(Report::either(false, "kept", json!({ "deleted": false })));
    }
    let is_deleted = limiter.delete().await?;
    let json = json!({ "deleted": is_deleted });
    Ok(match is_deleted {
        true => Report::new("deleted", json),
        false => Report::missing(&name, json),
    })
}

/// Fails if the key is there, and is none that this algorithm counts in.
async fn refuse_uncounted(context: &Context, key: &str, algorithm: &str) -> Result<(), Failure> {
    let Some(kind) = super::kind_of(context, key).await? else {
        return Ok(());
    };
    let found = sample(&context.client, key, None, i64::MAX).await?;
    let is_counted = found.is_some_and(|it| it.kind.may_be(algorithm));
    if !is_counted {
        let name = key.escape_debug();
        let message = format!("{name} is a {kind}, and nothing that {algorithm} counts in");
        return Err(Failure::store(message));
    }
    Ok(())
}

fn is_confirmed(command: &str, name: &str) -> Result<bool, Failure> {
    if !can_ask() {
        let message = format!("without a terminal to ask on, `{command}` needs --yes");
        return Err(Failure::usage(message));
    }
    let answer = ask(&format!("Delete {}? [y/N]", name.escape_debug()))?;
    Ok(is_yes(&answer))
}

/// Whether there is somebody to read a question, and to answer it.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

pub(super) fn ask(question: &str) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::usage(format!("terminal: {error}"));
    let mut terminal = io::stderr();
    write!(terminal, "{question} ").map_err(failed)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    if !answer.ends_with('\n') {
        writeln!(terminal).map_err(failed)?; // the end of the input, and no answer
    }
    Ok(answer.trim().to_owned())
}

pub(super) fn is_yes(answer: &str) -> bool {
    matches!(answer, "y" | "Y" | "yes")
}

/// Without a time, it does not expire any more.
pub(super) async fn expire(
    context: &Context,
    name: &str,
    time: Option<Duration>,
    yes: bool,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    super::refuse_other(context, limiter.name()).await?;
    if time == Some(Duration::ZERO) && !yes && !is_confirmed("expire", limiter.name())? {
        return Ok(Report::either(false, "kept", json!({ "changed": false })));
    }
    let is_changed = match time {
        Some(time) => limiter.expire(time).await?,
        None => limiter.clear_expire().await?,
    };
    let json = json!({ "changed": is_changed });
    Ok(match (is_changed, time) {
        (true, Some(Duration::ZERO)) => Report::new("deleted", json),
        (true, Some(time)) => {
            let text = format!("expires in {}", humantime::format_duration(time));
            Report::new(text, json)
        }
        (true, None) => Report::new("does not expire any more", json),
        (false, Some(_)) => Report::missing(limiter.name(), json),
        (false, None) => Report::either(false, "has no time to live", json),
    })
}
