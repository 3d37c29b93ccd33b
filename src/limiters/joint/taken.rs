//! The grants of a request that does not proceed yet.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::Result;
use crate::fallback::TargetRequest;
use crate::grant::Grant;
use crate::limiters::charge::{give_back, give_back_in_background};
use crate::limiters::{Chargeable, Limiter, Registry};
use crate::policies::call::Target;

/// A limiter that was asked, and that gets back what the request does not use.
#[derive(Debug, Clone)]
pub(in crate::limiters) enum By {
    /// A target, and the name of its limiter.
    Target(Arc<str>, Target),
    /// The limiter of a rule, with the key.
    Asked(Arc<dyn Chargeable>, String),
    /// A rule without a limiter.
    Rule(Arc<str>),
}

impl By {
    pub(in crate::limiters) fn target(request: &TargetRequest) -> Self {
        Self::Target(Arc::clone(&request.name), request.target.clone())
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Target(name, _) | Self::Rule(name) => name,
            Self::Asked(limiter, _) => limiter.name(),
        }
    }

    pub(super) fn key(&self) -> &str {
        match self {
            Self::Target(_, target) => &target.key,
            Self::Asked(_, key) => key,
            Self::Rule(_) => "",
        }
    }

    /// Returns how many permits came back.
    pub(in crate::limiters) async fn refund(
        self,
        registry: &Registry,
        grant: Grant,
    ) -> Result<u32> {
        match self {
            Self::Target(_, target) if target.model.is_rate() => {
                registry.rate_limiter(&target.key).refund(grant).await
            }
            Self::Target(_, target) => give_back(&*registry.store, target, grant).await,
            Self::Asked(limiter, key) => limiter.refund(&key, grant).await,
            Self::Rule(_) => grant.spend_in_vain(),
        }
    }

    pub(in crate::limiters) fn refund_in_background(self, registry: &Registry, grant: Grant) {
        match self {
            Self::Target(_, target) if target.model.is_rate() => {
                let limiter = registry.rate_limiter(&target.key);
                limiter.refund_in_background("", grant);
            }
            Self::Target(_, target) => give_back_in_background(&registry.store, target, grant),
            Self::Asked(limiter, key) => limiter.refund_in_background(&key, grant),
            Self::Rule(_) => {}
        }
    }
}

/// Grants that are given back, also if the request's future is dropped, unless they are
/// [kept](Self::keep).
pub(in crate::limiters) struct Taken {
    registry: Arc<Registry>,
    grants: Vec<(By, Grant)>,
}

impl Taken {
    pub(in crate::limiters) fn nothing(registry: &Arc<Registry>) -> Self {
        Self {
            registry: Arc::clone(registry),
            grants: Vec::new(),
        }
    }

    pub(in crate::limiters) fn add(&mut self, grants: impl Iterator<Item = (By, Grant)>) {
        self.grants.extend(grants);
    }

    /// Takes over what was taken by another step of the request.
    pub(in crate::limiters) fn add_all(&mut self, mut other: Self) {
        self.grants.append(&mut other.grants);
    }

    /// Gives nothing back: the request proceeds, and its caller has the grants.
    pub(in crate::limiters) fn keep(mut self) {
        self.grants.clear();
    }

    /// Gives all grants back; if the future is dropped, the rest in the background. Permits that
    /// could not be given back are available again after the `longest_window` of their limiters.
    pub(super) async fn give_back(&mut self, longest_window: Duration) {
        let (done, is_done) = oneshot::channel::<()>();
        let (registry, grants) = (Arc::clone(&self.registry), mem::take(&mut self.grants));
        let giving_back = async move {
            let mut missing_for = Duration::ZERO;
            for (by, grant) in grants.into_iter().rev() {
                if by.refund(&registry, grant).await.is_err() {
                    missing_for = longest_window;
                }
            }
            drop(done);
            missing_for
        };
        let store = &self.registry.store;
        store.give_back_in_background(Box::pin(giving_back));
        let _ = is_done.await;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (by, grant) in self.grants.drain(..) {
            by.refund_in_background(&self.registry, grant);
        }
    }
}
