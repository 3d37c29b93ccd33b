//! The policy of a limiter, which may be replaced while requests come in.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tokio::time::Instant;

use crate::error::Result;
use crate::policies::algorithm::{AnyModel, INTERNAL, Policy};

/// The policy that a limiter was made with, and the one that replaced it. Few are ever replaced, so that reading the first
/// takes no lock.
pub(super) struct Policies<P> {
    first: InForce<P>,
    later: OnceLock<RwLock<InForce<P>>>,
}

/// The policy in force.
#[derive(Clone)]
pub(super) struct InForce<P> {
    pub(super) policy: P,
    algorithm: Arc<dyn AnyModel>,
    /// The same in a form that knows of the policy before, and until when that is needed.
    moved: Option<Moved<P>>,
}

#[derive(Clone)]
struct Moved<P> {
    policy: P,
    algorithm: Arc<dyn AnyModel>,
    until: Instant,
}

impl<P> InForce<P> {
    pub(super) fn algorithm(&self) -> &Arc<dyn AnyModel> {
        match &self.moved {
            Some(moved) if Instant::now() < moved.until => &moved.algorithm,
            _ => &self.algorithm,
        }
    }
}

impl<P: Policy> Policies<P> {
    pub(super) fn new(policy: P, client_id: &str) -> Result<Self> {
        Ok(Self {
            first: InForce {
                algorithm: policy.model(client_id, INTERNAL)?.0,
                policy,
                moved: None,
            },
            later: OnceLock::new(),
        })
    }

    /// Replaces the policy while requests come in.
    pub(super) fn replace(&self, policy: P, client_id: &str) -> Result<()> {
        let algorithm = policy.model(client_id, INTERNAL)?.0;
        let now = Instant::now();
        let Self { first, later } = self;
        let later = later.get_or_init(|| RwLock::new(first.clone()));
        let mut in_force = later.write().unwrap_or_else(PoisonError::into_inner);
        let before = match &in_force.moved {
            Some(moved) if now < moved.until => &moved.policy,
            _ => &in_force.policy,
        };
        let (moved, needed_for) = policy.after(before, INTERNAL)?;
        let algorithm_then = moved.model(client_id, INTERNAL)?.0;
        let mut until = now.checked_add(needed_for).unwrap_or(now);
        if let Some(earlier) = &in_force.moved {
            until = until.max(earlier.until);
        }
        *in_force = InForce {
            algorithm,
            policy,
            moved: Some(Moved {
                algorithm: algorithm_then,
                policy: moved,
                until,
            }),
        };
        Ok(())
    }
}

impl<P> Policies<P> {
    #[inline]
    pub(super) fn read<T>(&self, read: impl FnOnce(&InForce<P>) -> T) -> T {
        match self.later.get() {
            None => read(&self.first),
            // A panic leaves the policy whole.
            Some(later) => read(&later.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
