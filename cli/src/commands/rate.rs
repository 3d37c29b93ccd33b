//! The commands `set`, `update` and `config`.

use clap::Args;
use redisson_rate_limiter::{PermitsInUse, Rate, RateLimiter, TimeToLive};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::settings::Settings;
use crate::limiter::{RateKind, rate_of};
use crate::question::{ask, can_ask, is_yes};
use crate::rate::RateArgument;
use crate::report::{Report, time_to_live_as_json, time_to_live_as_text};

#[derive(Debug, Args)]
pub(crate) struct RateArguments {
    /// A limiter
    pub(crate) name: String,
    /// PERMITS/INTERVAL, such as 5/s, 100/10m or 20/500ms
    pub(crate) rate: RateArgument,
    #[command(flatten)]
    pub(crate) kind: RateKind,
}

/// The arguments for what changes besides the rate of a limiter that has one.
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

pub(super) async fn set_if_missing(
    context: &Context,
    arguments: &RateArguments,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    context.refuse_other(limiter.name()).await?;
    let rate = rate_of(&arguments.rate, &arguments.kind);
    match limiter.try_set_rate(rate).await? {
        true => Ok(created(&limiter, rate)),
        false => Ok(has_a_rate(&limiter)),
    }
}

/// Sets the rate of a limiter. If it has a rate already, the command asks first, and settings that
/// the arguments do not name stay.
pub(super) async fn set(
    context: &Context,
    arguments: &RateArguments,
    change: &ChangeArguments,
    yes: bool,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    context.refuse_other(limiter.name()).await?;
    let before = context.settings(limiter.name()).await?;
    if !before.are_a_limiters() {
        let rate = rate_of(&arguments.rate, &arguments.kind);
        return match limiter.try_set_rate(rate).await? {
            true => Ok(created(&limiter, rate)),
            false => Ok(has_a_rate(&limiter)), // another client has set it in between
        };
    }
    let planned = Change::plan(arguments, change, &before)?;
    if planned.changes_nothing(&before) {
        let text = format!("{}: {}, as before", escaped(&limiter), before.in_words());
        return Ok(Report::new(text, json(true, &before, &planned)));
    }
    if !yes {
        if !can_ask() {
            let message = format!(
                "{} has a rate, {}: `set` changes it with --yes",
                escaped(&limiter),
                before.in_words()
            );
            return Err(Failure::usage(message));
        }
        let question = format!("{}? [y/N]", planned.in_words(&limiter, &before));
        if !is_yes(&ask(&question)?) {
            return Ok(Report::either(
                false,
                "kept",
                json(false, &before, &planned),
            ));
        }
        if context.settings(limiter.name()).await? != before {
            let text = format!(
                "{} has another rate by now: nothing is set",
                escaped(&limiter)
            );
            return Ok(Report::either(false, text, json(false, &before, &planned)));
        }
    }
    planned.apply(&limiter, &before).await
}

pub(super) async fn update(
    context: &Context,
    arguments: &RateArguments,
    change: &ChangeArguments,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    context.refuse_other(limiter.name()).await?;
    let before = context.settings(limiter.name()).await?;
    if !before.are_a_limiters() {
        return Ok(Report::missing(limiter.name(), json!({ "set": false })));
    }
    let planned = Change::plan(arguments, change, &before)?;
    planned.apply(&limiter, &before).await
}

/// Reports the settings as they are stored.
pub(super) async fn config(context: &Context, name: &str) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    context.refuse_other(limiter.name()).await?;
    let settings = context.settings(limiter.name()).await?;
    if !settings.are_a_limiters() {
        return Ok(Report::missing(limiter.name(), json!({ "rate": null })));
    }
    let time_to_live = limiter.remain_time_to_live().await?;
    let mut text = settings.in_words();
    text += &format!("; {}", time_to_live_as_text(time_to_live));
    let faults = settings.faults();
    for fault in &faults {
        text += &format!("; {fault}");
    }
    let mut json = json!({
        "rate": settings.to_json(),
        "time_to_live_ms": time_to_live_as_json(time_to_live),
        "faults": faults,
    });
    if settings.is_per_client() {
        text += &format!("; this client is {}", context.client.id().escape_debug());
        json["client"] = context.client.id().into();
    }
    Ok(Report::new(text, json))
}

/// The change of a limiter that has a rate.
struct Change {
    rate: Rate,
    /// Whether the permits in use are forgotten.
    resets: bool,
    /// Whether the limiter does not expire any more.
    ends_keep_alive: bool,
}

impl Change {
    /// Plans the change. Settings that the arguments do not name stay as they are stored.
    fn plan(
        arguments: &RateArguments,
        change: &ChangeArguments,
        before: &Settings,
    ) -> Result<Self, Failure> {
        let kept = before.keep_alive().filter(|_| !change.no_keep_alive);
        let kept = kept.map(|it| std::time::Duration::from_millis(it.unsigned_abs()));
        let kind = RateKind {
            per_client: arguments.kind.per_client || before.is_per_client() && !change.overall,
            keep_alive: arguments.kind.keep_alive.or(kept),
        };
        let rate = rate_of(&arguments.rate, &kind);
        if arguments.kind.keep_alive.is_none() && kept.is_some_and(|it| it < rate.interval()) {
            let settings = before.in_words();
            let message = format!(
                "the limiter, {settings}, would be gone before an interval has passed: \
                 name a longer --keep-alive, or --no-keep-alive"
            );
            return Err(Failure::usage(message));
        }
        let is_of_other_type =
            !before.rate_type.is_empty() && Settings::from(rate).rate_type != before.rate_type;
        Ok(Self {
            rate,
            resets: change.reset || is_of_other_type,
            ends_keep_alive: change.no_keep_alive,
        })
    }

    fn changes_nothing(&self, before: &Settings) -> bool {
        let mut after = Settings::from(self.rate);
        // Redisson before 3.38 does not write the field `keepAliveTime`.
        if before.keep_alive.is_empty() && after.keep_alive == "0" {
            after.keep_alive.clear();
        }
        after == *before && !self.resets && !self.ends_keep_alive
    }

    /// The change in words, such as `orders: 5 per 1s -> 9 per 1s, the permits in use are
    /// forgotten`.
    fn in_words(&self, limiter: &RateLimiter, before: &Settings) -> String {
        let after = Settings::from(self.rate);
        let mut words = format!(
            "{}: {} -> {}",
            escaped(limiter),
            before.in_words(),
            after.in_words()
        );
        if self.resets {
            words += ", the permits in use are forgotten";
        }
        if before.is_per_client() || after.is_per_client() {
            words += ", those of other clients stay as they are stored";
        }
        if self.ends_keep_alive {
            words += ", without a time to live";
        }
        words
    }

    async fn apply(&self, limiter: &RateLimiter, before: &Settings) -> Result<Report, Failure> {
        let in_use = match self.resets {
            true => PermitsInUse::Reset,
            false => PermitsInUse::Keep,
        };
        if !limiter.update_rate(self.rate, in_use).await? {
            return Ok(Report::missing(limiter.name(), json(false, before, self)));
        }
        let mut text = self.in_words(limiter, before);
        if self.ends_keep_alive {
            let cleared = limiter.clear_expire().await.map_err(Failure::from);
            cleared
                .map_err(|it| it.after("the rate is set, but the time to live is still there"))?;
        } else if self.rate.keep_alive_time().is_none()
            && let left @ TimeToLive::Remaining(_) = limiter.remain_time_to_live().await?
        {
            text += &format!("; {}", time_to_live_as_text(left));
        }
        Ok(Report::new(text, json(true, before, self)))
    }
}

fn created(limiter: &RateLimiter, rate: Rate) -> Report {
    let settings = Settings::from(rate);
    let text = format!("{}: {}", escaped(limiter), settings.in_words());
    Report::new(text, json!({ "set": true, "rate": settings.to_json() }))
}

fn has_a_rate(limiter: &RateLimiter) -> Report {
    let text = format!("{} has a rate already", escaped(limiter));
    Report::either(false, text, json!({ "set": false }))
}

fn json(is_set: bool, before: &Settings, change: &Change) -> Value {
    let after = Settings::from(change.rate);
    json!({
        "set": is_set, "before": before.to_json(), "rate": after.to_json(),
        "permits_forgotten": change.resets,
    })
}

fn escaped(limiter: &RateLimiter) -> String {
    limiter.name().escape_debug().to_string()
}
