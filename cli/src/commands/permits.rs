//! `try`, `acquire`, `release`, `available`, `peek`.

use std::time::{Duration, Instant};

use clap::Args;
use redisson_rate_limiter::RateLimiter;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::limiter::{Limiter, SetUpArguments};
use crate::policy::PolicyArguments;
use crate::report::{Report, millis};

#[derive(Debug, Args)]
pub(crate) struct PermitArguments {
    /// A limiter, or the key that a policy counts for
    pub(crate) name: String,
    /// How many permits
    #[arg(default_value_t = 1)]
    pub(crate) permits: u32,
    #[command(flatten)]
    pub(crate) set_up: SetUpArguments,
    // The last field, because its heading applies to all arguments after it.
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

pub(super) async fn try_acquire(
    context: &Context,
    arguments: &PermitArguments,
) -> Result<Report, Failure> {
    let limiter = limiter(context, arguments).await?;
    let decision = context.unless_interrupted(limiter.check(arguments.permits));
    let report = Report::of_decision(&decision.await?);
    with_client(context, limiter.rate_limiter(), report).await
}

pub(super) async fn peek(
    context: &Context,
    arguments: &PermitArguments,
) -> Result<Report, Failure> {
    let limiter = limiter(context, arguments).await?;
    let report = Report::of_decision(&limiter.peek(arguments.permits).await?).would_be();
    with_client(context, limiter.rate_limiter(), report).await
}

pub(super) async fn acquire(
    context: &Context,
    arguments: &PermitArguments,
    timeout: Option<Duration>,
) -> Result<Report, Failure> {
    let limiter = limiter(context, arguments).await?;
    let start = Instant::now();
    let waiting = limiter.acquire(arguments.permits, timeout);
    let is_granted = context.unless_interrupted(waiting).await?;
    let waited = start.elapsed();
    let text = match is_granted {
        true => format!("granted after {waited:.1?}"),
        false => format!("denied after {waited:.1?}"),
    };
    let json = json!({ "granted": is_granted, "waited_ms": millis(waited) });
    let report = Report::either(is_granted, text, json);
    with_client(context, limiter.rate_limiter(), report).await
}

pub(super) async fn release(
    context: &Context,
    name: &str,
    permits: u32,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    limiter.release(permits).await?;
    let available = limiter.available_permits().await?;
    let text = format!("{available} available");
    let report = Report::new(text, json!({ "available": available }));
    with_client(context, Some(&limiter), report).await
}

pub(super) async fn available(context: &Context, name: &str) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(name);
    let available = limiter.available_permits().await?;
    let json = json!({ "available": available });
    let report = Report::new(available.to_string(), json);
    // The text stays a single number for scripts, without the client.
    match is_per_client(context, &limiter).await {
        true => Ok(report.also("", "client", context.client.id().into())),
        false => Ok(report),
    }
}

/// Adds the id of this client to a report, if the rate is for each client.
async fn with_client(
    context: &Context,
    limiter: Option<&RateLimiter>,
    report: Report,
) -> Result<Report, Failure> {
    let id = context.client.id();
    match limiter {
        Some(limiter) if is_per_client(context, limiter).await => {
            let remark = format!(", as client {}", id.escape_debug());
            Ok(report.also(&remark, "client", id.into()))
        }
        _ => Ok(report),
    }
}

/// Whether the rate is for each client; false if the settings cannot be read. That is no error,
/// because the command has done its work already.
async fn is_per_client(context: &Context, limiter: &RateLimiter) -> bool {
    let settings = context.settings(limiter.name()).await;
    settings.is_ok_and(|it| it.is_per_client())
}

async fn limiter(context: &Context, arguments: &PermitArguments) -> Result<Limiter, Failure> {
    let set_up = &arguments.set_up;
    Limiter::new(context, &arguments.name, &arguments.policy, set_up).await
}
