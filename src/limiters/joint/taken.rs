//! What a request has taken that does not proceed yet.

use std::sync::Arc;

use crate::grant::Grant;
use crate::limiters::Registry;

/// Permits of RRateLimiters, by their names in the store. They go back, also if the request's
/// future is dropped, unless it proceeds.
pub(in crate::limiters) struct Taken {
    registry: Arc<Registry>,
    grants: Vec<(Arc<str>, Grant)>,
}

impl Taken {
    pub(in crate::limiters) fn nothing(registry: &Arc<Registry>) -> Self {
        Self {
            registry: Arc::clone(registry),
            grants: Vec::new(),
        }
    }

    pub(in crate::limiters) fn add(&mut self, grants: impl Iterator<Item = (Arc<str>, Grant)>) {
        self.grants.extend(grants);
    }

    /// Takes over what was taken by another step of the request.
    pub(in crate::limiters) fn add_all(&mut self, mut other: Self) {
        self.grants.append(&mut other.grants);
    }

    /// The request proceeds: its caller has the permits.
    pub(in crate::limiters) fn keep(mut self) {
        self.grants.clear();
    }

    pub(in crate::limiters) async fn give_back(&mut self) {
        while let Some((name, grant)) = self.grants.last() {
            // If that fails, they come back when their window has passed.
            let _ = self.registry.rate_limiter(name).refund(grant.clone()).await;
            self.grants.pop();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (name, grant) in self.grants.drain(..) {
            self.registry.rate_limiter(&name).give_back(grant);
        }
    }
}
