//! The limiter that the arguments name, of whatever algorithm.

use std::time::Duration;

use clap::Args;
use redisson_rate_limiter::{
    AnyPolicy, Decision, Error, Limiter as _, PolicyLimiter, Rate, RateLimiter, RedissonClient,
    Result,
};
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::failure::Failure;
use crate::policy::PolicyArguments;
use crate::rate::{RateArgument, duration};

#[derive(Debug, Args)]
pub(crate) struct SetUpArguments {
    /// The rate that the limiter gets if it has none, or that of the policy
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<RateArgument>,
    #[command(flatten)]
    pub(crate) kind: RateKind,
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

impl RateKind {
    fn is_some(&self) -> bool {
        self.per_client || self.keep_alive.is_some()
    }
}

pub(crate) enum Limiter {
    /// An RRateLimiter, and the rate that it gets if it has none.
    Rate(RateLimiter, Option<Rate>),
    /// Its prefix is empty, so the key is the whole name.
    Policy(PolicyLimiter<AnyPolicy>, String),
}

impl Limiter {
    /// With the rate of `set_up` it creates a limiter that is missing, and refuses a key of another
    /// program.
    pub(crate) async fn new(
        context: &Context,
        name: &str,
        policy: &PolicyArguments,
        set_up: &SetUpArguments,
    ) -> std::result::Result<Self, Failure> {
        let rate = set_up.rate.as_ref();
        if let Some(policy) = policy.policy(rate)? {
            if set_up.kind.is_some() {
                let message = "--per-client and --keep-alive are not of a --policy";
                return Err(Failure::usage(message));
            }
            let limiter = context.client.policy_limiter(policy)?;
            return Ok(Self::Policy(limiter, context.store.full_name(name)));
        }
        let limiter = context.rate_limiter(name);
        let rate = match rate {
            Some(rate) => {
                context.refuse_other(limiter.name()).await?;
                let rate = rate_of(rate, &set_up.kind);
                limiter.clone().with_rate(rate)?; // a wrong one is refused in any case
                Some(rate)
            }
            None if set_up.kind.is_some() => {
                let message =
                    "--per-client and --keep-alive say more of a --rate, which is missing";
                return Err(Failure::usage(message));
            }
            None => None,
        };
        Ok(Self::Rate(limiter, rate))
    }

    /// `None` of another algorithm.
    pub(crate) fn rate_limiter(&self) -> Option<&RateLimiter> {
        match self {
            Self::Rate(limiter, _) => Some(limiter),
            Self::Policy(..) => None,
        }
    }

    pub(crate) async fn check(&self, permits: u32) -> Result<Decision> {
        match self {
            Self::Rate(limiter, rate) => {
                ask(limiter, *rate, permits, async || {
                    limiter.check(permits).await
                })
                .await
            }
            Self::Policy(limiter, key) => limiter.check(key, permits).await,
        }
    }

    pub(crate) async fn peek(&self, permits: u32) -> Result<Decision> {
        match self {
            Self::Rate(limiter, rate) => match (limiter.peek(permits).await, rate) {
                (Err(Error::NotInitialized { .. }), Some(rate)) => {
                    limiter.clone().with_rate(*rate)?.peek(permits).await
                }
                (peeked, _) => peeked,
            },
            Self::Policy(limiter, key) => limiter.peek(key, permits).await,
        }
    }

    /// Waits for permits, for ever without a timeout. Returns whether they came.
    pub(crate) async fn acquire(&self, permits: u32, timeout: Option<Duration>) -> Result<bool> {
        match self {
            Self::Rate(limiter, rate) => {
                ask(limiter, *rate, permits, async || match timeout {
                    Some(timeout) => limiter.try_acquire_timeout(permits, timeout).await,
                    None => limiter.acquire(permits).await.map(|()| true),
                })
                .await
            }
            Self::Policy(limiter, key) => ask_until_granted(limiter, key, permits, timeout).await,
        }
    }

    /// Gives permits back that are not used after all. Other algorithms take nothing back.
    pub(crate) async fn give_back(&self, permits: u32) {
        if let Self::Rate(limiter, _) = self {
            // If it fails, they come back with their window.
            let _ = limiter.release(permits).await;
        }
    }
}

/// Asks the limiter. If it is missing, it gets the rate, unless more permits are asked for, and is
/// asked again. An existing limiter stays as it is.
async fn ask<T>(
    limiter: &RateLimiter,
    rate: Option<Rate>,
    permits: u32,
    request: impl AsyncFn() -> Result<T>,
) -> Result<T> {
    let (name, rate) = match (request().await, rate) {
        (Err(Error::NotInitialized { name }), Some(rate)) => (name, rate),
        (answer, _) => return answer,
    };
    if u64::from(permits) > rate.permits() {
        return Err(Error::ExceedsLimit {
            name,
            requested: permits,
            limit: rate.permits(),
        });
    }
    limiter.try_set_rate(rate).await?;
    request().await
}

/// Limiters of policies have no queue.
async fn ask_until_granted(
    limiter: &PolicyLimiter<AnyPolicy>,
    key: &str,
    permits: u32,
    timeout: Option<Duration>,
) -> Result<bool> {
    const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
    let start = Instant::now();
    loop {
        // A turn may come too late, and cannot be given back.
        if let Some(timeout) = timeout
            && gives_turns(limiter.policy())?
            && let Decision::Granted(granted) = limiter.peek(key, permits).await?
            && start.elapsed() + granted.delay > timeout
        {
            return Ok(false);
        }
        let Some(retry_after) = limiter.check(key, permits).await?.retry_after() else {
            return Ok(true);
        };
        let pause = retry_after.max(SHORTEST_PAUSE);
        if timeout.is_some_and(|timeout| start.elapsed() + pause > timeout) {
            return Ok(false);
        }
        sleep(pause).await;
    }
}

/// Whether a granted request may have to wait for its turn: then nothing decides at once.
fn gives_turns(policy: AnyPolicy) -> Result<bool> {
    let limiter = RedissonClient::in_memory().policy_limiter(policy)?;
    Ok(limiter.check_now("key", 1).is_none())
}

pub(crate) fn rate_of(rate: &RateArgument, kind: &RateKind) -> Rate {
    let of_type = match kind.per_client {
        true => Rate::per_client,
        false => Rate::overall,
    };
    let rate = of_type(rate.permits, rate.interval);
    match kind.keep_alive {
        Some(keep_alive) => rate.keep_alive(keep_alive),
        None => rate,
    }
}
