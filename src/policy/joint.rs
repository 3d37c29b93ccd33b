//! Several limiters in one decision: granted by all, or charged to none.

use std::cmp::Reverse;
use std::sync::Arc;

use super::call::Call;
use crate::client::RedissonClient;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::fallback::{Place, check_together};
use crate::keys::share_a_slot;
use crate::store::Store;

/// What a request takes from one of the limiters that decide it together, for [`RedissonClient::check_all`]. From
/// [`PolicyLimiter::charge`](crate::PolicyLimiter::charge), [`KeyedRateLimiter::charge`](crate::KeyedRateLimiter::charge) and
/// [`RateLimiter::charge`](crate::RateLimiter::charge).
#[derive(Debug, Clone)]
pub struct Charge {
    store: Arc<dyn Store>,
    place: Place,
}

impl Charge {
    pub(crate) fn new(store: Arc<dyn Store>, place: Place) -> Self {
        Self { store, place }
    }
}

/// What several limiters decided together.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, TokenBucket};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let per_user = client.limiter(TokenBucket::per_second(1).with_capacity(2))?;
/// let per_address = client.limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
///
/// let ask = || Ok([per_user.charge("user:123", 1)?, per_address.charge("address:::1", 1)?]);
/// assert!(client.check_all(ask()?).await?.is_granted());
/// let denied = client.check_all(ask()?).await?; // the address has had its request
/// assert!(!denied.is_granted());
/// assert!(per_user.check("user:123", 1).await?.is_granted()); // and the user was not charged
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
    /// [`RateLimiter`](crate::RateLimiter)s take part with [`RateLimiter::charge`](crate::RateLimiter::charge).
    ///
    /// While Redis is away, the [`FailurePolicy`](crate::FailurePolicy) of each limiter counts: the request fails where one of
    /// them is `Error`, and is denied where one is `Deny`. Local limiters decide together, and all are charged or none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there are no charges, two of the same name, whatever their kinds, or one of
    /// another client;
    /// [`Error::InvalidName`] on a cluster where the keys do not share a slot: give them one hash tag. What stands with
    /// [`PolicyLimiter::check`](crate::PolicyLimiter::check). Then nobody was charged, unless it is [`Error::Indeterminate`].
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have been charged.
    pub async fn check_all(
        &self,
        charges: impl IntoIterator<Item = Charge> + Send,
    ) -> Result<JointDecision> {
        let store = &**self.store();
        let places = self.joint_places(charges)?;
        let (limiters, costs) = places
            .iter()
            .map(|place| (place.target.clone(), place.cost))
            .unzip();
        let call = Call::new(limiters, costs);
        let asking = async {
            let deadline = store.call_deadline();
            store.decide(&call, deadline).await?.decisions(&call)
        };
        let decisions = check_together(store, self.local_store(), &places, asking).await?;
        Ok(JointDecision::new(decisions))
    }

    /// The limiters of one decision, once they are found to go together.
    fn joint_places(&self, charges: impl IntoIterator<Item = Charge>) -> Result<Vec<Place>> {
        let refuse = |reason| {
            Err(Error::InvalidArgument {
                argument: "charges",
                reason,
            })
        };
        let (mut places, mut keys) = (Vec::new(), Vec::new());
        for charge in charges {
            if !Arc::ptr_eq(&charge.store, self.store()) {
                return refuse("one is of another client");
            }
            keys.extend(charge.place.target.all_keys());
            places.push(charge.place);
        }
        if places.is_empty() {
            return refuse("there are none");
        }
        if self.store().is_cluster() && !share_a_slot(&keys) {
            return Err(Error::InvalidName {
                name: places.swap_remove(0).target.key.to_string(),
                reason: "the limiters of one decision lie in several slots of the cluster: give their keys one hash tag",
            });
        }
        let mut names: Vec<&str> = places.iter().map(|it| &*it.target.key).collect();
        names.sort_unstable();
        if has_twins(&names) {
            return refuse("two are of the same name");
        }
        keys.sort_unstable();
        if has_twins(&keys) {
            return refuse("two use the same key");
        }
        Ok(places)
    }
}

/// Whether a sorted list has the same twice.
fn has_twins<T: PartialEq>(sorted: &[T]) -> bool {
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

impl JointDecision {
    fn new(decisions: Vec<Decision>) -> Self {
        let weight = |decision: &Decision| match decision {
            Decision::Denied(denied) => (true, denied.retry_after, Reverse(denied.remaining)),
            Decision::Granted(granted) => (false, granted.delay, Reverse(granted.remaining)),
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

    /// Whether the [`FailurePolicy`](crate::FailurePolicy) of the limiters decided, because Redis was away.
    pub fn is_by_failure_policy(&self) -> bool {
        self.decisions.iter().any(Decision::is_by_failure_policy)
    }

    /// Each limiter's own answer, in the order of the charges. Where the whole is denied, a limiter that had enough is
    /// denied with a `retry_after` of zero: it was not charged.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The same, to take the grants out.
    #[must_use]
    pub fn into_decisions(self) -> Vec<Decision> {
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
