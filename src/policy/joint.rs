//! Several limiters in one decision: granted by all, or charged to none.

use std::cmp::Reverse;
use std::sync::Arc;

use super::call::{Call, Target};
use crate::client::RedissonClient;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::keys::share_a_slot;
use crate::store::Store;

/// One limiter's share of a decision of several, for [`RedissonClient::decide_all`].
#[derive(Debug, Clone)]
pub struct Share {
    store: Arc<dyn Store>,
    target: Target,
    cost: u32,
}

impl Share {
    pub(crate) fn new(store: Arc<dyn Store>, target: Target, cost: u32) -> Self {
        Self {
            store,
            target,
            cost,
        }
    }
}

/// What several limiters decided together.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, Limiter, RedissonClient, TokenBucket};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let per_user = client.limiter(TokenBucket::new(2, 1))?;
/// let per_address = client.limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
///
/// let ask = || Ok([per_user.share("user:123", 1)?, per_address.share("address:::1", 1)?]);
/// assert!(client.decide_all(ask()?).await?.is_granted());
/// let denied = client.decide_all(ask()?).await?; // the address has had its request
/// assert!(!denied.is_granted());
/// assert!(per_user.decide("user:123", 1).await?.is_granted()); // and the user was not charged
/// # redisson_rate_limiter::Result::Ok(()) }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct JointDecision {
    decisions: Vec<Decision>,
    /// The place of the one that decides.
    deciding: usize,
}

impl RedissonClient {
    /// Decides one request by several limiters at once: all grant it, or none is charged. One round trip.
    ///
    /// [`RRateLimiter`](crate::RRateLimiter)s take part with [`RateLimiter::share`](crate::RateLimiter::share).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there are no shares, two of the same name, whatever their kinds, or one of another client;
    /// [`Error::InvalidName`] on a cluster where the keys do not share a slot: give them one hash tag. What stands with
    /// [`Limiter::decide`](crate::Limiter::decide). Then nobody was charged, unless it is [`Error::Indeterminate`].
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have been charged.
    pub async fn decide_all(
        &self,
        shares: impl IntoIterator<Item = Share> + Send,
    ) -> Result<JointDecision> {
        let call = self.joint_call(shares)?;
        let deadline = self.store().call_deadline();
        let answers = self.store().decide(&call, deadline).await?;
        Ok(JointDecision::new(answers.decisions(&call)?))
    }

    fn joint_call(&self, shares: impl IntoIterator<Item = Share>) -> Result<Call> {
        let refuse = |reason| {
            Err(Error::InvalidArgument {
                argument: "shares",
                reason,
            })
        };
        let (mut limiters, mut costs, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for share in shares {
            if !Arc::ptr_eq(&share.store, self.store()) {
                return refuse("one is of another client");
            }
            keys.extend(share.target.all_keys());
            limiters.push(share.target);
            costs.push(share.cost);
        }
        if limiters.is_empty() {
            return refuse("there are none");
        }
        if self.store().is_cluster() && !share_a_slot(&keys) {
            return Err(Error::InvalidName {
                name: limiters.swap_remove(0).key.to_string(),
                reason: "the limiters of one decision lie in several slots of the cluster: give their keys one hash tag",
            });
        }
        let mut names: Vec<&str> = limiters.iter().map(|it| &*it.key).collect();
        names.sort_unstable();
        if has_twins(&names) {
            return refuse("two are of the same name");
        }
        keys.sort_unstable();
        if has_twins(&keys) {
            return refuse("two use the same key");
        }
        Ok(Call::new(limiters, costs))
    }
}

/// Whether a sorted list has the same twice.
fn has_twins<T: PartialEq>(sorted: &[T]) -> bool {
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

impl JointDecision {
    fn new(decisions: Vec<Decision>) -> Self {
        let weight = |decision: &Decision| match decision {
            Decision::Denied {
                retry_after,
                remaining,
                ..
            } => (true, *retry_after, Reverse(*remaining)),
            Decision::Granted {
                delay, remaining, ..
            } => (false, *delay, Reverse(*remaining)),
        };
        let deciding = (0..decisions.len())
            .max_by_key(|&place| weight(&decisions[place]))
            .unwrap_or(0);
        Self {
            decisions,
            deciding,
        }
    }

    /// Whether all granted, and were charged.
    pub fn is_granted(&self) -> bool {
        self.decisions.iter().all(Decision::is_granted)
    }

    /// Each limiter's own answer, in the order of the shares. Where the whole is denied, a limiter that had enough is
    /// denied with a `retry_after` of zero: it was not charged.
    pub fn shares(&self) -> &[Decision] {
        &self.decisions
    }

    /// The same, to take the grants out.
    pub fn into_shares(self) -> Vec<Decision> {
        self.decisions
    }

    /// The place of the answer that decides.
    pub(super) fn deciding(&self) -> usize {
        self.deciding
    }

    /// The answer that decides: of a denial the one with the longest `retry_after`, of a grant the one with the longest
    /// delay, and of these the one that leaves the least.
    pub fn into_decision(mut self) -> Decision {
        // There is at least one, and `deciding` is its place.
        self.decisions.swap_remove(self.deciding)
    }
}
