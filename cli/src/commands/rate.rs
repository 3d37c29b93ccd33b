//! `set`, `update`, `config`.

use redisson_rate_limiter::{PermitsInUse, RateType, TimeToLive};
use serde_json::json;

use super::Context;
use crate::arguments::{RateArguments, RateKind};
use crate::failure::Failure;
use crate::limiter::rate_of;
use crate::report::{Report, time_to_live_as_json, time_to_live_as_text};

pub(super) async fn set(
    context: &Context,
    arguments: &RateArguments,
    if_missing: bool,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    super::refuse_other(context, limiter.name()).await?;
    let rate = rate_of(arguments.rate, &arguments.kind);
    let is_set = match if_missing {
        true => limiter.try_set_rate(rate).await?,
        false => limiter.set_rate(rate).await.map(|()| true)?,
    };
    let text = match is_set {
        true => {
            let life = match limiter.remain_time_to_live().await? {
                // As of a keep alive before this rate, which is not renewed any more.
                left @ TimeToLive::Remaining(_) if rate.keep_alive_time().is_none() => {
                    format!("; {}", time_to_live_as_text(left))
                }
                _ => String::new(),
            };
            format!("{}: {rate}{life}", limiter.name().escape_debug())
        }
        false => format!("{} has a rate already", limiter.name().escape_debug()),
    };
    Ok(Report::either(is_set, text, json!({ "set": is_set })))
}

/// What the arguments do not say stays: for whom the rate is, and the keep alive. Without it what is left of its time would pass, and
/// the limiter go while it is used.
pub(super) async fn update(
    context: &Context,
    arguments: &RateArguments,
    reset: bool,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    let json = |is_set| json!({ "set": is_set });
    let Some(before) = limiter.config().await? else {
        return Ok(Report::missing(limiter.name(), json(false)));
    };
    let kind = RateKind {
        per_client: arguments.kind.per_client || before.rate_type() == RateType::PerClient,
        keep_alive: arguments.kind.keep_alive.or(before.keep_alive_time()),
    };
    let rate = rate_of(arguments.rate, &kind);
    let in_use = match reset {
        true => PermitsInUse::Reset,
        false => PermitsInUse::Keep,
    };
    let is_set = limiter.update_rate(rate, in_use).await?;
    let json = json(is_set);
    Ok(match is_set {
        true => Report::new(format!("{}: {rate}", limiter.name().escape_debug()), json),
        false => Report::missing(limiter.name(), json),
    })
}

pub(super) async fn config(context: &Context, name: &str) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    let rate = limiter.config().await?;
    let Some(rate) = rate else {
        return Ok(Report::missing(limiter.name(), json!({ "rate": null })));
    };
    let time_to_live = limiter.remain_time_to_live().await?;
    let text = format!("{rate}; {}", time_to_live_as_text(time_to_live));
    let json = json!({
        "rate": rate,
        "time_to_live_ms": time_to_live_as_json(time_to_live),
    });
    Ok(Report::new(text, json))
}
