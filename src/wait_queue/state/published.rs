//! What the store observed last, for readers without the lock: a request that is denied from memory costs no lock, and
//! neither does sending a call.
//!
//! This is a sequence lock. The only writer holds the lock of the state: it makes the version odd, writes, and makes it even
//! again. A reader uses what it read only where the version was even, and still is the same afterwards. What was dropped
//! before a reader starts is not read any more.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use tokio::time::Instant;

use super::last_answer::Sent;
use super::observed::Observed;

#[derive(Debug)]
pub(in crate::wait_queue) struct Published {
    /// The times are nanoseconds since then.
    start: Instant,
    /// How often an answer has been dropped.
    epoch: AtomicU64,
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Sent at, received at, permits left, rate, until the first and all are back, interval, how long it holds, changes. A rate
/// of 0 is that of no answer: there is no such limiter.
const WORDS: usize = 9;

impl Default for Published {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            epoch: AtomicU64::new(0),
            version: AtomicU64::new(0),
            words: Default::default(),
        }
    }
}

impl Published {
    /// A call that is sent now, while the store counts so many [`changes`](crate::store::LimiterStore::changes).
    pub(in crate::wait_queue) fn sent(&self, now: Instant, changes: u64) -> Sent {
        Sent {
            at: now,
            epoch: self.epoch.load(Ordering::Acquire),
            changes,
        }
    }

    /// Whether no answer has been dropped since a call was sent.
    pub(super) fn is_current(&self, sent: &Sent) -> bool {
        sent.epoch == self.epoch.load(Ordering::Acquire)
    }

    /// Discards the answers to the calls in flight. Called under the lock of the state only.
    pub(super) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Called under the lock of the state only.
    pub(super) fn publish(&self, observed: Option<&Observed>) {
        let words = observed.map_or([0; WORDS], |observed| {
            [
                self.nanos(observed.sent_at),
                self.nanos(observed.received_at),
                observed.left,
                observed.rate,
                nanos_of(observed.until_first),
                nanos_of(observed.until_all),
                nanos_of(observed.interval),
                nanos_of(observed.lasts),
                observed.changes,
            ]
        });
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// What the store observed last; `None` also where that changes just now.
    pub(in crate::wait_queue) fn observed(&self) -> Option<Observed> {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 {
            return None;
        }
        let mut read = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        let [
            sent_at,
            received_at,
            left,
            rate,
            until_first,
            until_all,
            interval,
            lasts,
            changes,
        ] = std::array::from_fn(|_| read.next().unwrap_or(0));
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version || rate == 0 {
            return None;
        }
        Some(Observed {
            sent_at: self.start + Duration::from_nanos(sent_at),
            received_at: self.start + Duration::from_nanos(received_at),
            left,
            rate,
            until_first: Duration::from_nanos(until_first),
            until_all: Duration::from_nanos(until_all),
            lasts: Duration::from_nanos(lasts),
            changes,
            interval: Duration::from_nanos(interval),
            set_up: None,
        })
    }

    fn nanos(&self, time: Instant) -> u64 {
        nanos_of(time.saturating_duration_since(self.start))
    }
}

/// 584 years at the most.
fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn observed(start: Instant, number: u64) -> Observed {
        Observed {
            sent_at: start + Duration::from_nanos(number),
            received_at: start + Duration::from_nanos(number),
            left: number,
            rate: number,
            until_first: Duration::from_nanos(number),
            until_all: Duration::from_nanos(number),
            lasts: Duration::from_nanos(number),
            changes: number,
            interval: Duration::from_nanos(number),
            set_up: None,
        }
    }

    #[test]
    fn what_is_read_is_of_one_answer_while_others_are_published() {
        let published = Published::default();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let Some(read) = published.observed() else {
                            continue;
                        };
                        let whole = observed(published.start, read.rate);
                        assert_eq!((read.left, read.interval), (whole.left, whole.interval));
                        assert_eq!(read.until_first, whole.until_first);
                        assert_eq!(read.until_all, whole.until_all);
                        assert_eq!((read.lasts, read.changes), (whole.lasts, whole.changes));
                        assert_eq!(read.sent_at, whole.sent_at);
                        assert_eq!(read.received_at, whole.received_at);
                        assert!(read.rate >= last);
                        last = read.rate;
                    }
                });
            }
            for number in 1..100_000 {
                published.publish(Some(&observed(published.start, number)));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        published.publish(None);
        assert!(published.observed().is_none());
    }
}
