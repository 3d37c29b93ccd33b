//! The pending batch of a runtime: the parts that wait for the flusher, at most as many as fit into
//! one call.

use std::sync::atomic::AtomicUsize;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Part, SharedReply};
use crate::lock::Lock;

/// The most parts of one call. The server does nothing else while a call runs.
const LARGEST_CALL: usize = 32;

/// The most work of the parts of one call, unless a single part has more.
const MOST_WORK: usize = 1_000;

/// The shared calls of one kind on one runtime.
pub(in crate::store::redis) struct RuntimeParts<P> {
    /// How many calls of this kind are under way, shared or not.
    pub(super) in_flight: AtomicUsize,
    /// The parts that wait for the flusher. There is one unless this is empty.
    pending: Lock<Vec<PendingPart<P>>>,
}

/// One part of a shared call.
pub(in crate::store::redis) struct PendingPart<P> {
    pub(in crate::store::redis) part: P,
    pub(super) caller: Caller,
}

/// A caller that waits for the answer to its part.
pub(super) struct Caller {
    /// When it stops waiting.
    pub(super) deadline: Instant,
    /// When the server stops deciding the part, in ms of its clock.
    pub(super) server_deadline: i64,
    /// `None` once its time is up.
    pub(super) answer: Option<oneshot::Sender<SharedReply>>,
}

impl<P> Default for RuntimeParts<P> {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            pending: Lock::default(),
        }
    }
}

impl<P> RuntimeParts<P> {
    /// Adds a part. Returns the parts before it, if it does not fit into their call and they are to
    /// be sent now, and whether a flusher is to be started.
    pub(super) fn push(&self, entry: PendingPart<P>) -> (Vec<PendingPart<P>>, bool)
    where
        P: Part,
    {
        let mut pending = self.pending.lock();
        let needs_flusher = pending.is_empty();
        let parts = pending.iter().chain([&entry]);
        let work: usize = parts.map(|it| it.part.work()).sum();
        let fits = pending.len() < LARGEST_CALL && work <= MOST_WORK;
        let full = match fits {
            true => Vec::new(),
            false => std::mem::take(&mut *pending),
        };
        pending.push(entry);
        (full, needs_flusher)
    }

    /// Takes the pending batch if `is_such` is true for one of its parts.
    pub(super) fn take_if_any(&self, is_such: impl Fn(&P) -> bool) -> Option<Vec<PendingPart<P>>> {
        let mut pending = self.pending.lock();
        let has_any = pending.iter().any(|entry| is_such(&entry.part));
        has_any.then(|| std::mem::take(&mut *pending))
    }

    /// Takes the pending batch. A later entry waits for the next flusher.
    pub(super) fn take(&self) -> Vec<PendingPart<P>> {
        std::mem::take(&mut *self.pending.lock())
    }
}

impl Caller {
    pub(super) fn is_waiting(&self) -> bool {
        self.answer.as_ref().is_some_and(|it| !it.is_closed())
    }

    pub(super) fn answer(self, answer: SharedReply) {
        if let Some(sender) = self.answer {
            let _ = sender.send(answer); // a caller that has left needs no answer
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::RedisError;

    use super::*;
    use crate::link::limits::Repeat;
    use crate::store::redis::script::{self, Args, Script};

    /// A part with this work.
    struct Work(usize);

    impl Part for Work {
        const REPEAT: Repeat = Repeat::Safe;

        fn script() -> &'static Script {
            &script::MULTI_ACQUIRE
        }

        fn work(&self) -> usize {
            self.0
        }

        fn requests(&self) -> u32 {
            1
        }

        fn keys_and_args<'a>(
            _: &[&'a Self],
            _: Option<i64>,
            _: Option<i64>,
        ) -> (Vec<&'a [u8]>, Args) {
            (Vec::new(), Args::new())
        }

        fn refused(_: RedisError) -> SharedReply {
            SharedReply::Refused
        }
    }

    fn entry(work: usize) -> PendingPart<Work> {
        PendingPart {
            part: Work(work),
            caller: Caller {
                deadline: Instant::now(),
                server_deadline: 0,
                answer: None,
            },
        }
    }

    /// The work of the parts of each call that carries these.
    fn calls(parts: &[usize]) -> Vec<Vec<usize>> {
        let batch = RuntimeParts::default();
        let full = parts.iter().map(|&work| batch.push(entry(work)).0);
        let full: Vec<_> = full.collect();
        let calls = full.into_iter().chain([batch.take()]);
        let calls = calls.filter(|entries| !entries.is_empty());
        let work = |entries: Vec<PendingPart<Work>>| {
            let work = entries.iter().map(|entry| entry.part.0);
            work.collect()
        };
        calls.map(work).collect()
    }

    #[test]
    fn parts_of_a_call_are_at_most_what_a_few_ms_decide_and_stay_in_order() {
        assert!(calls(&[]).is_empty());
        assert_eq!(calls(&[1; 70]), [vec![1; 32], vec![1; 32], vec![1; 6]]);
        assert_eq!(calls(&[0; 33]), [vec![0; 32], vec![0]]);
        assert_eq!(calls(&[31; 32]), [[31; 32]]);
        assert_eq!(calls(&[300; 5]), [vec![300; 3], vec![300; 2]]);
        assert_eq!(calls(&[999, 1, 2]), [vec![999, 1], vec![2]]);
        assert_eq!(calls(&[4_096, 1]), [[4_096], [1]]);
        assert_eq!(calls(&[1, 4_096, 2]), [[1], [4_096], [2]]);
    }

    #[test]
    fn a_batch_has_one_flusher() {
        let batch = RuntimeParts::default();
        let push = |work| batch.push(entry(work)).1;
        assert!(push(1));
        assert!(!push(1_000), "it takes what was added last");
        assert_eq!(batch.take().len(), 1);
        assert!(push(1));
    }
}
