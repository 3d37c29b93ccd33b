//! Waiters that a substitute serves while the store is unavailable.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::super::substitute::{Substitute, Substituted, WhileAway};
use super::*;
use crate::store::acquire_call::Attempt;

/// Grants requests for at most `most` permits.
#[derive(Default)]
struct Grants {
    most: u32,
    asked: AtomicU32,
}

impl Substitute for Grants {
    fn ask(&self, permits: u32) -> Substituted {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !self.may_grant(permits) {
            return Substituted::Never;
        }
        Substituted::Granted(Grant::of_nothing(permits))
    }

    fn may_grant(&self, permits: u32) -> bool {
        permits <= self.most
    }

    fn give_back(&self, _grant: &Grant) {}
}

impl Queue {
    fn join_with(
        &mut self,
        substitute: &Arc<Grants>,
        runtime: usize,
        sequence: u64,
        permits: u32,
    ) -> AnswerReceiver {
        let (answer, receiver) = oneshot::channel();
        let while_away = WhileAway::Ask(Arc::clone(substitute) as Arc<dyn Substitute>);
        let waiter = Waiter {
            while_away,
            ..Waiter::new(permits, sequence, answer)
        };
        let runtime = self.runtimes[runtime].handle().id();
        self.state.join(waiter, runtime, None);
        receiver
    }

    fn next_refused(&mut self, runtime: usize, is_refused: bool) -> Next {
        let runtime = self.runtimes[runtime].handle().id();
        let next = self.state.next(runtime, self.now, false, is_refused);
        self.deliver();
        next
    }
}

#[test]
fn a_substitute_serves_no_waiter_whose_own_runtime_can_call_the_store() {
    for is_other_refused in [false, true] {
        let mut queue = Queue::new();
        let substitute = Arc::new(Grants {
            most: 1,
            ..Grants::default()
        });
        let mut other = queue.join_with(&substitute, 1, 1, 1);
        if !is_other_refused {
            // A call that fails leaves the waiter in the queue.
            let Next::Call(call, _) = queue.next_refused(1, false) else {
                panic!("it does not call");
            };
            let _ = queue.fail(&call);
        }
        let mut refused = queue.join_with(&substitute, 0, 2, 1);
        queue.next_refused(0, true);
        assert!(refused.try_recv().is_ok());
        assert_eq!(other.try_recv().is_ok(), is_other_refused);
    }
}

#[test]
fn a_failed_call_that_may_have_run_is_reclaimed() {
    for stays in [false, true] {
        for may_have_run in [false, true] {
            let mut queue = Queue::new();
            let (answer, mut waiting) = oneshot::channel();
            let while_away = if stays {
                WhileAway::Stay
            } else {
                WhileAway::Fail
            };
            let waiter = Waiter {
                while_away,
                ..Waiter::new(1, 1, answer)
            };
            let runtime = queue.runtimes[0].handle().id();
            queue.state.join(waiter, runtime, None);
            let call = queue.call();
            if may_have_run {
                let attempt = Attempt {
                    deadline: 2,
                    from: 1,
                };
                call.note_attempt(attempt).unwrap();
            }
            assert_eq!(queue.fail(&call), may_have_run);
            assert_eq!(waiting.try_recv().is_err(), stays);
        }
    }
}

#[test]
fn behind_a_waiter_that_it_cannot_serve_a_substitute_is_not_asked() {
    let mut queue = Queue::new();
    let substitute = Arc::new(Grants::default());
    let mut waiting = vec![queue.join_with(&substitute, 0, 1, 1)];
    assert!(matches!(queue.next_refused(0, true), Next::Pause(None)));
    for sequence in 2..100 {
        waiting.push(queue.join_with(&substitute, 0, sequence, 1));
        assert!(!queue.is_notified(0));
    }
    assert_eq!(substitute.asked.load(Ordering::Relaxed), 1);
    let knowing = Arc::new(Grants {
        most: 1,
        ..Grants::default()
    });
    let mut served = queue.join_with(&knowing, 0, 100, 1);
    assert!(queue.is_notified(0));
    queue.next_refused(0, true);
    assert!(served.try_recv().is_ok());
}
