//! The wait for the turn that a leaky bucket gives a granted request.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::decision::Decision;
use crate::error::Result;
use crate::same_runtime::SameRuntime;

/// Waits until a request with these decisions may proceed, and then updates the decisions to that
/// time.
#[inline]
pub(super) async fn wait_for_turn(decisions: &mut [Decision]) -> Result<()> {
    let delay = decisions.iter().map(Decision::delay).max();
    let delay = delay.unwrap_or_default();
    if !delay.is_zero() {
        // In a box of its own: few requests have a delay.
        Box::pin(wait(delay)).await?;
        decisions.iter_mut().for_each(|it| it.proceed_after(delay));
    }
    Ok(())
}

async fn wait(delay: Duration) -> Result<()> {
    let until = Instant::now() + delay;
    loop {
        // There is a timer only within a runtime.
        let sleeping = Box::pin(async { sleep_until(until).await });
        if SameRuntime::new(sleeping)?.await.is_some() {
            return Ok(());
        }
        // Another runtime polls the future now, so the wait goes on with its timer.
    }
}
