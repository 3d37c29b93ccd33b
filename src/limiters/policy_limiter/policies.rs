//! The policy of a limiter, which may be replaced while requests come in.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use super::hot_limiters::HotLimiters;
use crate::error::Result;
use crate::lock::Lock;
use crate::policies::algorithm::{AnyModel, INTERNAL, Policy};

/// The policy that a limiter was made with, and the one that replaced it. Few are ever replaced, so
/// that reading the first takes no lock.
pub(super) struct Policies<P> {
    first: InForce<P>,
    later: OnceLock<RwLock<InForce<P>>>,
    /// Their leases end when the policy is replaced: else the next one would be asked for with the
    /// settings before.
    leased: Lock<Vec<Weak<HotLimiters>>>,
}

/// The policy in force.
#[derive(Clone)]
pub(super) struct InForce<P> {
    pub(super) policy: P,
    pub(super) algorithm: Arc<dyn AnyModel>,
}

impl<P: Policy> InForce<P> {
    fn new(policy: P, client_id: &str) -> Result<Self> {
        Ok(Self {
            algorithm: policy.model(client_id, INTERNAL)?.0,
            policy,
        })
    }
}

impl<P: Policy> Policies<P> {
    pub(super) fn new(policy: P, client_id: &str) -> Result<Self> {
        Ok(Self {
            first: InForce::new(policy, client_id)?,
            later: OnceLock::new(),
            leased: Lock::default(),
        })
    }

    /// Replaces the policy while requests come in.
    pub(super) fn replace(&self, policy: P, client_id: &str) -> Result<()> {
        let replacing = InForce::new(policy, client_id)?;
        let Self { first, later, .. } = self;
        let later = later.get_or_init(|| RwLock::new(first.clone()));
        let mut in_force = later.write().unwrap_or_else(PoisonError::into_inner);
        replacing
            .policy
            .check_replaces(&in_force.policy, INTERNAL)?;
        *in_force = replacing;
        drop(in_force);
        let leased: Vec<_> = self
            .leased
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        leased.iter().for_each(|it| it.end());
        Ok(())
    }
}

impl<P> Policies<P> {
    pub(super) fn end_when_replaced(&self, limiters: &Arc<HotLimiters>) {
        let mut leased = self.leased.lock();
        leased.retain(|it| it.strong_count() > 0);
        leased.push(Arc::downgrade(limiters));
    }

    #[inline]
    pub(super) fn read<T>(&self, read: impl FnOnce(&InForce<P>) -> T) -> T {
        match self.later.get() {
            None => read(&self.first),
            // A panic leaves the policy whole.
            Some(later) => read(&later.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
