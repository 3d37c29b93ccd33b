//! What a network and a server do to calls in the tests of this crate.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Faults;
use crate::error::{Error, Refusal, Refused, Result};
use crate::lock::Lock;

#[derive(Debug, Default)]
pub(crate) struct Network {
    calls: AtomicUsize,
    /// In ms.
    round_trip: AtomicU64,
    loss: Lock<Loss>,
}

/// What is lost of a call. A call that is lost or refused uses up all of its time.
#[derive(Debug, Clone, Default)]
pub(crate) enum Loss {
    #[default]
    None,
    /// The call is lost on its way.
    OfCalls,
    /// The call is executed, and its answer is lost.
    OfAnswers,
    Refused(Refused),
}

impl Faults {
    pub(crate) fn network(&self) -> &Network {
        &self.0.network
    }
}

impl Network {
    pub(crate) fn set_round_trip(&self, round_trip: Duration) {
        let millis = round_trip.as_millis() as u64;
        self.round_trip.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn set_loss(&self, loss: Loss) {
        *self.loss.lock() = loss;
    }

    /// The number of calls since this was last asked.
    pub(crate) fn take_calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    pub(super) async fn sent(&self, deadline: Instant) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let round_trip = self.round_trip.load(Ordering::Relaxed);
        sleep(Duration::from_millis(round_trip)).await;
        let loss = self.loss.lock().clone();
        let error = match loss {
            Loss::None | Loss::OfAnswers => return Ok(()),
            Loss::OfCalls => Error::Indeterminate { source: None },
            Loss::Refused(refused) => {
                let refusal = Refusal::new(refused, std::sync::Arc::new(std::fmt::Error));
                Error::unavailable(std::sync::Arc::new(refusal))
            }
        };
        sleep_until(deadline).await;
        Err(error)
    }

    pub(super) async fn answered(&self, deadline: Instant) -> Result<()> {
        if !matches!(*self.loss.lock(), Loss::OfAnswers) {
            return Ok(());
        }
        sleep_until(deadline).await;
        Err(Error::Indeterminate { source: None })
    }
}
