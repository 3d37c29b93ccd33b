//! What the server's clock shows, as far as its answers told.
//!
//! A call carries its deadline in the server's time, so that one that was held up on its way takes nothing. Every
//! answer brings the server's time along and corrects the estimate; a wrong one costs one more round trip, never a
//! permit.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn local_millis() -> i64 {
    START.elapsed().as_millis() as i64
}

/// Server's time minus this process's, in ms.
#[derive(Debug)]
pub(super) struct ServerTime {
    offset: AtomicI64,
}

const UNKNOWN: i64 = i64::MIN;

impl ServerTime {
    pub(super) fn unknown() -> Self {
        Self {
            offset: AtomicI64::new(UNKNOWN),
        }
    }

    /// Notes what an answer that came just now says. The server read its clock before the answer travelled, so the
    /// estimate is never late.
    pub(super) fn learn(&self, server_millis: i64) {
        self.offset
            .store(server_millis - local_millis(), Ordering::Relaxed);
    }

    /// The server's time after `wait`, where it is known.
    pub(super) fn after(&self, wait: Duration) -> Option<i64> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset != UNKNOWN).then(|| local_millis() + offset + wait.as_millis() as i64)
    }
}
