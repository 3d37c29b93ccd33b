//! The commands `delete`, `expire` and `hold`.

use std::collections::BTreeSet;
use std::time::Duration;

use redisson_rate_limiter::{AnyPolicy, RateLimiter};
use serde_json::json;

use super::doctor::mend::{Which, remove};
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::sample::sample;
use crate::inspect::scan::clients_of;
use crate::inspect::tally::{Place, read_tally};
use crate::question::is_confirmed;
use crate::rate;
use crate::report::{Report, millis, number_of};

pub(super) async fn delete(
    context: &Context,
    name: &str,
    yes: bool,
    policy: Option<AnyPolicy>,
) -> Result<Report, Failure> {
    let Some(policy) = policy else {
        return delete_rate(context, &context.rate_limiter(name), yes, "delete").await;
    };
    let limiter = context.client.policy_limiter(policy)?;
    let name = context.store.full_name(name);
    refuse_uncounted(context, &name, limiter.policy().algorithm()).await?;
    if !yes && !is_confirmed("delete", &format!("Delete {}?", name.escape_debug()))? {
        return Ok(Report::either(false, "kept", json!({ "deleted": false })));
    }
    let is_deleted = limiter.reset(&name).await?;
    let json = json!({ "deleted": is_deleted });
    Ok(match is_deleted {
        true => Report::new("deleted", json),
        false => Report::missing(&name, json),
    })
}

/// Deletes a limiter, and the keys of all its clients if each has a rate.
async fn delete_rate(
    context: &Context,
    limiter: &RateLimiter,
    yes: bool,
    command: &str,
) -> Result<Report, Failure> {
    let name = limiter.name();
    context.refuse_other(name).await?;
    let settings = context.settings(name).await?;
    if !settings.are_a_limiters() {
        refuse_siblings_of_others(context, name).await?;
    }
    let clients = match settings.is_per_client() {
        true => clients_of(&context.client, name, usize::MAX).await?.0,
        false => BTreeSet::new(),
    };
    if !yes {
        let and = match clients.len() {
            0 => String::new(),
            number => format!(" and the keys of {}", number_of(number as u64, "client")),
        };
        if !is_confirmed(command, &format!("Delete {}{and}?", name.escape_debug()))? {
            let json = json!({ "deleted": false, "changed": false });
            return Ok(Report::either(false, "kept", json));
        }
    }
    // The limiter goes first: without it no client can take permits, which would create its keys
    // again while they are removed.
    let is_deleted = limiter.delete().await?;
    let rate = settings.numbers().map_or(i64::MAX, |(rate, _)| rate);
    let mut kept = Vec::new();
    for client in &clients {
        let place = Place {
            name: name.to_owned(),
            client: Some(client.clone()),
        };
        kept.extend(remove_client(context, &place, rate).await?);
    }
    let json = json!({
        "deleted": is_deleted, "changed": is_deleted, "clients": clients.len(), "kept": kept,
    });
    if !is_deleted && clients.is_empty() {
        return Ok(Report::missing(name, json));
    }
    let mut text = "deleted".to_owned();
    if !clients.is_empty() {
        text += &format!(
            ", with the keys of {}",
            number_of(clients.len() as u64, "client")
        );
    }
    for key in &kept {
        text += &format!(
            "\nkept {}, which holds what no limiter does",
            key.escape_debug()
        );
    }
    Ok(Report::new(text, json))
}

/// Removes the keys of a client whose limiter was removed. Returns the keys that it keeps, because
/// they are another program's.
async fn remove_client(
    context: &Context,
    place: &Place,
    rate: i64,
) -> Result<Vec<String>, Failure> {
    let (reading, tally) = read_tally(&context.client, place).await?;
    let stored = &reading.stored;
    let siblings = stored.keys.iter().zip(&stored.types).skip(1);
    let siblings = siblings.filter(|(_, found)| *found != "none");
    let keys: Vec<_> = siblings.map(|(key, _)| key.clone()).collect();
    let is_possible = tally.is_possible(stored) && stored.value().is_none_or(|value| value <= rate);
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    if is_possible && remove(context, place, &reading.expected(), Which::Both).await? {
        return Ok(Vec::new());
    }
    Ok(keys)
}

/// Fails if the keys that would have the limiter's value and grants belong to another program.
async fn refuse_siblings_of_others(context: &Context, name: &str) -> Result<(), Failure> {
    let place = Place {
        name: name.to_owned(),
        client: None,
    };
    let (reading, tally) = read_tally(&context.client, &place).await?;
    if tally.is_possible(&reading.stored) {
        return Ok(());
    }
    let name = name.escape_debug();
    let message = format!(
        "there is no limiter {name}, and the keys that it would have hold what no limiter does"
    );
    Err(Failure::store(message))
}

/// Fails if the key exists, but is not one in which this algorithm counts.
async fn refuse_uncounted(context: &Context, key: &str, algorithm: &str) -> Result<(), Failure> {
    let Some(kind) = context.kind_of(key).await? else {
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

/// Sets the time to live of a limiter. Without a time, the limiter does not expire any more.
pub(super) async fn expire(
    context: &Context,
    name: &str,
    time: Option<Duration>,
    yes: bool,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    context.refuse_other(limiter.name()).await?;
    if time == Some(Duration::ZERO) {
        return delete_rate(context, &limiter, yes, "expire").await;
    }
    let is_changed = match time {
        Some(time) => limiter.expire(time).await?,
        None => limiter.clear_expire().await?,
    };
    let json = json!({ "changed": is_changed });
    Ok(match (is_changed, time) {
        (true, Some(time)) => Report::new(format!("expires in {}", rate::as_argument(time)), json),
        (true, None) => Report::new("does not expire any more", json),
        (false, Some(_)) => Report::missing(limiter.name(), json),
        (false, None) => Report::either(false, "has no time to live", json),
    })
}

/// Takes all permits for a time, so that no process gets any.
pub(super) async fn hold(
    context: &Context,
    name: &str,
    time: Duration,
    yes: bool,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    let name = limiter.name();
    context.refuse_other(name).await?;
    let settings = context.settings(name).await?;
    let not_held = json!({ "held": false });
    if !settings.are_a_limiters() {
        return Ok(Report::missing(name, not_held));
    }
    let shown = name.escape_debug();
    if settings.is_per_client() {
        let message =
            format!("{shown} has a rate for each client: nobody can take the permits of others");
        return Err(Failure::usage(message));
    }
    let words = rate::as_argument(time);
    let question = format!("Take all permits of {shown} for {words}, so that no process gets any?");
    if !yes && !is_confirmed("hold", &question)? {
        return Ok(Report::either(false, "not held", not_held));
    }
    limiter.hold(time).await?;
    let json = json!({ "held": true, "for_ms": millis(time) });
    Ok(Report::new(format!("held for {words}"), json))
}
