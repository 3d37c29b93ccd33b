//! A request to one limiter, also as one of several that decide together.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{Error, Result, at_least_one};
use crate::fallback::{LocalStore, TargetRequest, check_together, give_back as of_store};
use crate::grant::Grant;
use crate::policies::call::{Call, Purpose, Target};
use crate::policies::model::MOST_TOUCHED;
use crate::store::Store;

/// A request to one of several limiters that decide together: an argument of
/// [`RedissonClient::check_all`](crate::RedissonClient::check_all). From
/// [`PolicyLimiter::charge`](crate::PolicyLimiter::charge),
/// [`KeyedRateLimiter::charge`](crate::KeyedRateLimiter::charge) and
/// [`RateLimiter::charge`](crate::RateLimiter::charge).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let client = RedissonClient::in_memory();
/// let per_user = client.policy_limiter(TokenBucket::per_second(1))?;
/// let per_address = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(60)))?;
/// let charges = [per_user.charge("user:123", 1)?, per_address.charge("address:192.0.2.1", 1)?];
/// assert!(client.check_all(charges).await?.is_granted());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Charge {
    store: Arc<dyn Store>,
    request: TargetRequest,
}

impl Charge {
    pub(crate) fn new(store: Arc<dyn Store>, request: TargetRequest) -> Self {
        Self { store, request }
    }

    /// This charge, for a request that waits for its turn no longer than this.
    pub(super) fn with_longest_turn(mut self, longest: Duration) -> Result<Self> {
        let TargetRequest { target, cost, .. } = &mut self.request;
        if let Some(model) = target.model.with_longest_turn(longest) {
            check_cost(*cost, model.limit(), &target.key)?;
            target.model = Arc::new(model);
        }
        Ok(self)
    }

    pub(super) fn is_of(&self, store: &Arc<dyn Store>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }

    /// The target's key in Redis, or the limiter's name.
    pub(super) fn key(&self) -> &str {
        &self.request.target.key
    }

    /// How many members of logs and counters a charge of 1 touches.
    pub(super) fn touches(&self) -> u32 {
        self.request.target.model.touches(1)
    }

    /// The numbers of the limiter. Two limiters of one algorithm have the same ones if they decide
    /// alike.
    pub(super) fn settings(&self) -> String {
        let Target { model, penalty, .. } = &self.request.target;
        format!("{model:?} {penalty:?}")
    }
}

/// Refuses a cost that no limiter of this limit ever grants.
#[inline]
pub(super) fn check_cost(cost: u32, limit: Option<i64>, key: &str) -> Result<()> {
    at_least_one(cost, "cost")?;
    match limit {
        Some(limit) if i64::from(cost) > limit => Err(Error::ExceedsLimit {
            name: key.to_owned(),
            requested: cost,
            limit: limit.unsigned_abs(),
        }),
        _ => Ok(()),
    }
}

/// The most limiters that decide together: a server does nothing else meanwhile, for about 0.1 ms
/// for each RRateLimiter with many grants.
pub(super) const MOST_LIMITERS: usize = 32;

/// The requests to the limiters of one decision, at most one more than may decide together, and
/// whether all limiters are of this client.
pub(super) fn requests_of(
    store: &Arc<dyn Store>,
    charges: impl IntoIterator<Item = Charge>,
) -> (Arc<[TargetRequest]>, bool) {
    let mut are_own = true;
    let charges = charges.into_iter().take(MOST_LIMITERS + 1);
    let requests = charges.map(|charge| {
        are_own &= charge.is_of(store);
        charge.request
    });
    let requests = requests.collect();
    (requests, are_own)
}

/// Refuses limiters that cannot decide together.
pub(super) fn refuse_unless_joint(requests: &[TargetRequest], are_own: bool) -> Result<()> {
    let refuse = |reason| {
        Err(Error::InvalidArgument {
            argument: "charges",
            reason,
        })
    };
    if !are_own {
        return refuse("must all be of this client");
    }
    if requests.is_empty() {
        return refuse("must be at least one");
    }
    match first_too_many(requests.iter().map(|it| it.target.model.touches(1))) {
        Some(MOST_LIMITERS) => return refuse("must be at most 32"),
        Some(_) => {
            return refuse("must touch at most 2,000 members of logs and counters together");
        }
        None => {}
    }
    let touched = requests.iter().map(|it| it.target.model.touches(it.cost));
    if touched.fold(0, u32::saturating_add) > MOST_TOUCHED {
        return Err(Error::InvalidArgument {
            argument: "cost",
            reason: "must be lower: limiters touch at most 2,000 members of logs and counters \
                     together",
        });
    }
    let mut names: SmallVec<[&str; 4]> = requests.iter().map(|it| &*it.target.key).collect();
    names.sort_unstable();
    if has_twins(&names) {
        return refuse("must all have different names");
    }
    // Without braces in a name, a key is the name itself or begins with the name in braces, so that
    // no two names share a key.
    let have_braces = names.iter().any(|name| name.contains(['{', '}']));
    let named = requests.iter().filter(|_| have_braces);
    let mut keys: Vec<_> = named
        .flat_map(|request| request.target.all_keys())
        .collect();
    keys.sort_unstable();
    if has_twins(&keys) {
        return refuse("must all use different keys");
    }
    Ok(())
}

/// The index of the first limiter that cannot decide together with those before it, whatever a
/// request costs. `touches` has, for each limiter, how many members of logs and counters a charge
/// of 1 touches.
pub(super) fn first_too_many(touches: impl IntoIterator<Item = u32>) -> Option<usize> {
    let mut touched = 0_u32;
    touches
        .into_iter()
        .enumerate()
        .find_map(|(place, touches)| {
            touched = touched.saturating_add(touches);
            (place >= MOST_LIMITERS || touched > MOST_TOUCHED).then_some(place)
        })
}

/// Whether a sorted list has two equal items.
fn has_twins<T: PartialEq>(sorted: &[T]) -> bool {
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// What `check` of one limiter would return.
pub(super) async fn peek(
    store: &Arc<dyn Store>,
    local: &Arc<LocalStore>,
    charge: Charge,
) -> Result<Decision> {
    let (requests, are_own) = requests_of(store, [charge]);
    refuse_unless_joint(&requests, are_own)?;
    let mut decisions = peek_requests(store, local, &requests).await?;
    Ok(decisions.swap_remove(0)) // there is one for each request
}

/// What limiters that one call reaches would decide.
pub(super) async fn peek_requests(
    store: &Arc<dyn Store>,
    local: &Arc<LocalStore>,
    requests: &Arc<[TargetRequest]>,
) -> Result<Vec<Decision>> {
    let call = Arc::new(call_of(requests, Purpose::Peek));
    let asking = Box::pin({
        let (store, call) = (Arc::clone(store), Arc::clone(&call));
        async move {
            let answers = store.check(&call, store.call_deadline()).await?;
            Ok((answers.decisions(&call)?, ()))
        }
    });
    let (decisions, _) = check_together(store, local, requests, &call, asking).await?;
    Ok(decisions)
}

pub(super) fn call_of(requests: &[TargetRequest], purpose: Purpose) -> Call {
    let limiters = requests.iter().map(|it| it.target.clone());
    let costs = requests.iter().map(|it| it.cost);
    Call::with_purpose(purpose, limiters, costs)
}

/// Gives back what a target of a policy was charged, and returns how many permits.
pub(super) async fn give_back(store: &dyn Store, target: Target, grant: Grant) -> Result<u32> {
    let give_back = |grant: Grant| async move { of_store(store, target, &grant).await };
    grant.spend(give_back).await
}

/// Gives back in the background the grant of a request whose caller is gone.
pub(super) fn give_back_in_background(store: &Arc<dyn Store>, target: Target, grant: Grant) {
    let Some(grant) = grant.spend_now() else {
        return;
    };
    let (of_task, window) = (Arc::clone(store), target.model.quota().window);
    store.give_back_in_background(Box::pin(async move {
        match of_store(&*of_task, target, &grant).await {
            Ok(_) => Duration::ZERO,
            Err(_) => window, // it comes back with its window
        }
    }));
}
