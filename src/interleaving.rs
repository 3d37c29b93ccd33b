//! Runs threads one at a time, in an order that a seed determines, so that tests cover many
//! interleavings of the unchanged code.
//!
//! Another thread may go first at each [`Lock`](crate::lock::Lock), where a test says so, and after
//! each turn of a [`Participant`]'s runtime. loom and shuttle do this too, but run all threads of a
//! test on one thread of the operating system: code that asks which tokio runtime polls it, a
//! thread-local, cannot run on them, and under `--cfg loom` tokio lacks the network that redis-rs
//! needs.
//!
//! `INTERLEAVINGS` sets how many interleavings of each test are run, 300 by default, and
//! `INTERLEAVINGS_SEED` the first seed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, yield_now};

/// A test fails after this many turns: a thread waits for ever.
const TURNS: u32 = 2_000;

struct Turns {
    current: Mutex<Current>,
    changed: Condvar,
}

struct Current {
    /// The threads that have not ended.
    live: Vec<usize>,
    /// The one that runs.
    thread: usize,
    random: u64,
    /// Whether a thread has panicked: what the others wait for may never happen.
    has_failed: bool,
}

thread_local! {
    static PLACE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// Lets other threads of the interleaving go first, or not.
pub(crate) fn let_others_run() {
    let place = PLACE.with_borrow(Clone::clone);
    if let Some((turns, thread)) = place {
        turns.choose_next();
        turns.wait_for(thread);
    }
}

impl Turns {
    fn choose_next(&self) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Xorshift: any distribution will do.
        current.random ^= current.random << 13;
        current.random ^= current.random >> 7;
        current.random ^= current.random << 17;
        if !current.live.is_empty() {
            let chosen = (current.random >> 33) as usize % current.live.len();
            current.thread = current.live[chosen];
        }
        drop(current);
        self.changed.notify_all();
    }

    fn wait_for(&self, thread: usize) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_anothers = |current: &mut Current| current.thread != thread;
        let waited = self.changed.wait_while(current, is_anothers);
        let has_failed = waited.unwrap_or_else(PoisonError::into_inner).has_failed;
        assert!(!has_failed || thread::panicking(), "another thread failed");
    }

    fn end(&self, thread: usize, has_failed: bool) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.has_failed |= has_failed;
        current.live.retain(|&live| live != thread);
        drop(current);
        self.choose_next();
    }
}

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs the threads, each on one of the operating system's; panics if one of them does.
pub(crate) fn run(seed: u64, threads: Vec<Body<'_>>) {
    let turns = Arc::new(Turns {
        current: Mutex::new(Current {
            live: (0..threads.len()).collect(),
            thread: usize::MAX,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            has_failed: false,
        }),
        changed: Condvar::new(),
    });
    turns.choose_next();
    let turns = &turns;
    let results: Vec<_> = thread::scope(|scope| {
        let mut running = Vec::new();
        for (thread, body) in threads.into_iter().enumerate() {
            running.push(scope.spawn(move || {
                PLACE.set(Some((Arc::clone(turns), thread)));
                let result = catch_unwind(AssertUnwindSafe(|| {
                    turns.wait_for(thread);
                    body();
                }));
                PLACE.set(None);
                turns.end(thread, result.is_err());
                result
            }));
        }
        running.into_iter().map(|it| it.join().unwrap()).collect()
    });
    if let Some(panic) = results.into_iter().find_map(Result::err) {
        resume_unwind(panic);
    }
}

/// Runs a test in many interleavings, each with its own seed.
pub(crate) fn explore(test: impl Fn(u64)) {
    let number = |name| std::env::var(name).map(|it| it.parse().expect(name));
    let first: u64 = number("INTERLEAVINGS_SEED").unwrap_or(1);
    for seed in first..first + number("INTERLEAVINGS").unwrap_or(300) {
        println!("INTERLEAVINGS_SEED={seed}"); // shown if the test fails: the last one
        test(seed);
    }
}

/// A thread's tokio runtime, on which tasks are polled only when they have been woken. Its clock
/// stands still.
pub(crate) struct Participant(Option<Runtime>);

impl Participant {
    pub(crate) fn new() -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        Self(Some(runtime.expect("a runtime")))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it has not ended")
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime().spawn(task)
    }

    /// Lets the tasks that have been woken run, and then other threads.
    pub(crate) fn turn(&self) {
        self.runtime().block_on(yield_now());
        let_others_run();
    }

    /// Takes turns until `is_so` holds.
    pub(crate) fn turn_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..TURNS {
            if is_so() {
                return;
            }
            self.turn();
        }
        panic!("nobody makes progress: {what}");
    }

    /// Takes turns until a task has ended.
    pub(crate) fn join<T>(&self, task: JoinHandle<T>) -> T {
        self.turn_until("a task does not end", || task.is_finished());
        self.runtime().block_on(task).expect("it did not panic")
    }

    pub(crate) fn handle(&self) -> Handle {
        self.runtime().handle().clone()
    }

    /// Polls a future that is not a task once; returns whether it is done.
    pub(crate) fn poll_once(&self, mut future: Pin<&mut (impl Future + ?Sized)>) -> bool {
        let poll = |context: &mut Context<'_>| Poll::Ready(future.as_mut().poll(context));
        let is_done = self.runtime().block_on(poll_fn(poll)).is_ready();
        let_others_run();
        is_done
    }

    pub(crate) fn advance(&self, time: std::time::Duration) {
        self.runtime().block_on(tokio::time::advance(time));
    }

    /// Shuts the runtime down, which drops its tasks.
    pub(crate) fn shut_down(&mut self) {
        drop(self.0.take());
    }
}
