//! The desk under every interleaving of a few threads that loom finds: nobody is forgotten, there is never more than one
//! driver, and no grant is lost between the one who hands it out and the one who gives up.
//!
//! A thread stands for a caller or the driver, loom's mutex for the lock, and a notification for the driver's sleep. The
//! sleep never ends by itself here, so whoever relies on its end is stuck, which loom reports.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use loom::sync::atomic::AtomicUsize;
use loom::sync::{Mutex, Notify};
use loom::thread;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::Batch;
use super::desk::{Desk, Next, Request, Wake};
use crate::decision::{Decision, Grant};
use crate::error::Result;

const HOUR: Duration = Duration::from_secs(3600);

type Receiver = oneshot::Receiver<Result<Decision>>;

struct Queue {
    desk: Mutex<Desk>,
    arrived: Notify,
    drivers: AtomicUsize,
    /// Permits that the line is denied until they are here.
    permits: AtomicUsize,
    /// Permits that were granted to requests whose callers had gone.
    unclaimed: AtomicUsize,
}

impl Queue {
    fn with(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            desk: Mutex::new(Desk::default()),
            arrived: Notify::new(),
            drivers: AtomicUsize::new(0),
            permits: AtomicUsize::new(permits),
            unclaimed: AtomicUsize::new(0),
        })
    }

    fn put_down(self: &Arc<Self>, place: impl FnOnce(&mut Desk, Request) -> Wake) -> Receiver {
        let (answer, receiver) = oneshot::channel();
        let wake = {
            let mut desk = self.desk.lock().unwrap();
            let turn = desk.take_turn();
            let request = Request {
                permits: 1,
                turn,
                answer,
            };
            place(&mut desk, request)
        };
        self.obey(wake);
        receiver
    }

    fn obey(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::Start => {
                let queue = Arc::clone(self);
                thread::spawn(move || queue.drive());
            }
            Wake::Rouse => self.arrived.notify(),
            Wake::Nothing => {}
        }
    }

    fn drive(&self) {
        assert_eq!(self.drivers.fetch_add(1, SeqCst), 0, "a second driver");
        loop {
            let next = {
                let mut desk = self.desk.lock().unwrap();
                let next = desk.next(Instant::now());
                if let Next::Stop = next {
                    // Under the lock: from here on another one may start.
                    self.drivers.fetch_sub(1, SeqCst);
                }
                next
            };
            match next {
                Next::Call(batch) => self.answer(batch),
                Next::Sleep(_) => self.arrived.wait(),
                Next::Stop => return,
            }
        }
    }

    /// Grants as far as the permits go.
    fn answer(&self, batch: Batch) {
        let mut still_in_line = Vec::new();
        for (place, request) in batch.requests.into_iter().enumerate() {
            let left = self.permits.load(SeqCst);
            if left == 0 && place < batch.in_line {
                still_in_line.push(request);
            } else if left == 0 {
                let _ = request.answer.send(Ok(denied()));
            } else {
                self.permits.store(left - 1, SeqCst);
                if request.answer.send(Ok(granted())).is_err() {
                    self.unclaimed.fetch_add(1, SeqCst);
                }
            }
        }
        let later = Instant::now() + HOUR;
        self.desk.lock().unwrap().stay_in_line(still_in_line, later);
    }
}

fn granted() -> Decision {
    let grant = Grant {
        score: 0,
        random: [0; 16],
        permits: 1,
    };
    Decision::Granted {
        grant,
        limit: 9,
        remaining: 0,
        reset: HOUR,
        delay: Duration::ZERO,
    }
}

fn denied() -> Decision {
    Decision::Denied {
        retry_after: HOUR,
        limit: 9,
        remaining: 0,
        reset: HOUR,
    }
}

/// The answer of a request that must have one by now.
fn is_granted(mut receiver: Receiver) -> bool {
    let answer = receiver.try_recv().expect("the request was forgotten");
    answer.unwrap().is_granted()
}

#[test]
fn requests_that_arrive_at_any_moment_of_the_driver_are_all_answered() {
    loom::model(|| {
        let queue = Queue::with(9);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.put_down(Desk::arrive))
        };
        let receivers = [queue.put_down(Desk::arrive), other.join().unwrap()];
        answered(&queue, receivers);
    });
}

#[test]
fn a_plain_request_is_answered_while_the_driver_sleeps_for_the_line() {
    loom::model(|| {
        let queue = Queue::with(0);
        let waiter = queue.put_down(Desk::join_line);
        let plain = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.put_down(Desk::arrive))
        };
        answered(&queue, [plain.join().unwrap()]);
        give_up(&queue, waiter);
    });
}

#[test]
fn a_line_that_is_asked_for_again_gets_what_came_back_meanwhile() {
    loom::model(|| {
        let queue = Queue::with(0);
        let waiter = queue.put_down(Desk::join_line);
        queue.permits.store(1, SeqCst);
        // From here the permit is there: either the driver's first call finds it, or this makes a second.
        let wake = queue.desk.lock().unwrap().ask_line_now();
        queue.obey(wake);
        answered(&queue, [waiter]);
    });
}

#[test]
fn a_caller_that_gives_up_at_any_moment_leaves_no_permit_behind() {
    loom::model(|| {
        let queue = Queue::with(1);
        let mut receiver = queue.put_down(Desk::join_line);
        thread::yield_now();
        // What dropping the caller's end does.
        receiver.close();
        let handed_over = usize::from(receiver.try_recv().is_ok());
        while queue.drivers.load(SeqCst) > 0 {
            thread::yield_now();
        }
        let unclaimed = queue.unclaimed.load(SeqCst);
        let untaken = queue.permits.load(SeqCst);
        assert_eq!(handed_over + unclaimed + untaken, 1);
    });
}

#[test]
fn only_one_caller_at_a_time_calls_alone() {
    loom::model(|| {
        let queue = Queue::with(9);
        let alone = Arc::new(AtomicUsize::new(0));
        let threads = [(); 2].map(|()| {
            let (queue, alone) = (Arc::clone(&queue), Arc::clone(&alone));
            thread::spawn(move || {
                let may = queue.desk.lock().unwrap().start_lone_call();
                if may {
                    assert_eq!(alone.fetch_add(1, SeqCst), 0);
                    alone.fetch_sub(1, SeqCst);
                    queue.desk.lock().unwrap().end_lone_call();
                }
                may
            })
        });
        let may = threads.map(|thread| thread.join().unwrap());
        assert!(may.contains(&true));
    });
}

/// Waits until the driver has nothing more to do at once, and sees that all have their answers.
fn answered<const N: usize>(queue: &Arc<Queue>, receivers: [Receiver; N]) {
    for receiver in receivers {
        while receiver.is_empty() {
            thread::yield_now();
        }
        is_granted(receiver);
    }
    drop(queue.desk.lock().unwrap());
}

/// Ends a sleeping driver: it finds the line empty.
fn give_up(queue: &Arc<Queue>, waiter: Receiver) {
    drop(waiter);
    let wake = queue.desk.lock().unwrap().ask_line_now();
    queue.obey(wake);
}
