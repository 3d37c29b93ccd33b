//! The policy of a limiter, which may be replaced while requests come in.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use super::hot_limiters::HotLimiters;
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::policies::algorithm::Algorithm;

/// The policy that a limiter was made with, and the policy that replaced it. Reading the first one
/// takes no lock, because few policies are ever replaced.
pub(super) struct Policies<P> {
    first: CurrentPolicy<P>,
    later: OnceLock<RwLock<CurrentPolicy<P>>>,
    /// The limiters whose leases end when the policy is replaced: otherwise the next lease would be
    /// taken with the old settings.
    leased: Lock<Vec<Weak<HotLimiters>>>,
}

/// The policy in force.
#[derive(Clone)]
pub(super) struct CurrentPolicy<P> {
    pub(super) policy: P,
    pub(super) algorithm: Arc<Algorithm>,
}

impl<P: Clone> Policies<P> {
    pub(super) fn new(policy: P, algorithm: Algorithm) -> Self {
        let algorithm = Arc::new(algorithm);
        Self {
            first: CurrentPolicy { policy, algorithm },
            later: OnceLock::new(),
            leased: Lock::default(),
        }
    }

    /// Replaces the policy while requests come in. Refuses one of another algorithm.
    pub(super) fn replace(&self, policy: P, algorithm: Algorithm) -> Result<()> {
        if algorithm.name() != self.first.algorithm.name() {
            return Err(Error::InvalidArgument {
                argument: "policy",
                reason: "must have the same algorithm as the one before, \
                         which the state of the targets is of",
            });
        }
        let algorithm = Arc::new(algorithm);
        let later = self.later.get_or_init(|| RwLock::new(self.first.clone()));
        // A panic leaves the policy whole.
        *later.write().unwrap_or_else(PoisonError::into_inner) =
            CurrentPolicy { policy, algorithm };
        // Ending leases runs foreign code, which must not wait for this lock.
        let limiters: Vec<_> = self
            .leased
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        limiters.iter().for_each(|it| it.end());
        Ok(())
    }

    pub(super) fn end_when_replaced(&self, limiters: &Arc<HotLimiters>) {
        let mut leased = self.leased.lock();
        leased.retain(|it| it.strong_count() > 0);
        leased.push(Arc::downgrade(limiters));
    }

    #[inline]
    pub(super) fn read<T>(&self, read: impl FnOnce(&CurrentPolicy<P>) -> T) -> T {
        match self.later.get() {
            None => read(&self.first),
            Some(later) => read(&later.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
