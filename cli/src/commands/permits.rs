//! `try`, `acquire`, `release`, `available`, `peek`.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Context;
use crate::arguments::PermitArguments;
use crate::failure::Failure;
use crate::limiter::Limiter;
use crate::report::{Report, millis};

pub(super) async fn try_acquire(
    context: &Context,
    arguments: &PermitArguments,
) -> Result<Report, Failure> {
    let limiter = limiter(context, arguments).await?;
    let decision = context.unless_interrupted(limiter.check(arguments.permits));
    Ok(Report::of_decision(&decision.await?))
}

pub(super) async fn peek(
    context: &Context,
    arguments: &PermitArguments,
) -> Result<Report, Failure> {
    let limiter = limiter(context, arguments).await?;
    Ok(Report::of_decision(&limiter.peek(arguments.permits).await?))
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
    Ok(Report::either(is_granted, text, json))
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
    Ok(Report::new(text, json!({ "available": available })))
}

pub(super) async fn available(context: &Context, name: &str) -> Result<Report, Failure> {
    let available = context.rate_limiter(name).available_permits().await?;
    let json = json!({ "available": available });
    Ok(Report::new(available.to_string(), json))
}

async fn limiter(context: &Context, arguments: &PermitArguments) -> Result<Limiter, Failure> {
    let set_up = Some(&arguments.set_up);
    Limiter::new(context, &arguments.name, &arguments.policy, set_up).await
}
