//! The tasks of a client that give permits back, and what they could not give back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::after;

/// Counts the tasks. Clones count the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unsettled(Arc<watch::Sender<Tasks>>);

#[derive(Debug, Default)]
struct Tasks {
    running: usize,
    /// When the last permits come back that a task could not give back.
    missing_until: Option<Instant>,
}

/// Counts a task until it ends.
struct Counted {
    of: Unsettled,
    missing_for: Duration,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let is_missing = !self.missing_for.is_zero();
        let until = is_missing.then(|| after(Instant::now(), self.missing_for));
        self.of.0.send_modify(|it| {
            it.running -= 1;
            it.missing_until = it.missing_until.max(until);
        });
    }
}

impl Unsettled {
    /// A task that [`given_back`](Self::given_back) waits for, from now on. `task` returns for how
    /// long the permits that it could not give back are missing; zero if there are none.
    pub(crate) fn counted(
        &self,
        task: impl Future<Output = Duration> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.0.send_modify(|it| it.running += 1);
        let counted = Counted {
            of: self.clone(),
            missing_for: Duration::MAX, // if it panics or never runs
        };
        async move {
            let mut counted = counted; // moved as a whole, so that it is dropped with the task
            counted.missing_for = task.await;
        }
    }

    /// Waits until no task is giving permits back, and returns whether no permits are missing that
    /// a task could not give back.
    pub(crate) async fn given_back(&self) -> bool {
        let mut unsettled = self.0.subscribe();
        let settled = unsettled.wait_for(|it| it.running == 0).await;
        // The sender lives as long as `self`.
        settled.is_ok_and(|it| it.missing_until.is_none_or(|until| until <= Instant::now()))
    }
}
