//! A child process: it connects, works on command, reports what it holds, and runs until its stdin
//! ends.

use std::env;
use std::io::{self, BufRead, Write};
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redisson_rate_limiter::{RateLimiter, RedissonClient};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::ledger::Ledger;
use crate::seeded::Seeded;
use crate::work::{Caller, MOST_PERMITS};

/// The environment variable with a child's [`Task`].
pub const TASK: &str = "PROCESSES_TASK";

/// The beginning of each line of a child's report: the test harness prints lines of its own.
pub const REPORT: &str = "report: ";

pub const READY: &str = "ready";

/// The callers of this limiter drop no request.
pub const PATIENT: &str = "patient";

/// How many callers each of its two runtimes has.
const CALLERS: u64 = 12;

/// What a child does.
#[derive(Debug, Clone)]
pub struct Task {
    pub url: String,
    /// Which of the children it is.
    pub number: u64,
    /// How long a call may take.
    pub response_timeout: Duration,
    /// The limiters that its callers work on.
    pub limiters: Vec<String>,
    /// How many requests all callers make together.
    pub steps: u64,
    /// How often each of some more callers waits without giving up.
    pub waits: u64,
}

impl Task {
    /// How many permits of each limiter a child takes first, for its releases to give back.
    pub fn to_be_released(&self) -> u32 {
        self.steps as u32 * MOST_PERMITS
    }

    pub fn to_text(&self) -> String {
        let Self {
            url,
            number,
            steps,
            waits,
            ..
        } = self;
        let timeout = self.response_timeout.as_millis();
        let limiters = self.limiters.join(",");
        format!("{url} {number} {timeout} {limiters} {steps} {waits}")
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            url: words.next()?.into(),
            number: words.next()?.parse().ok()?,
            response_timeout: Duration::from_millis(words.next()?.parse().ok()?),
            limiters: words.next()?.split(',').map(Into::into).collect(),
            steps: words.next()?.parse().ok()?,
            waits: words.next()?.parse().ok()?,
        })
    }
}

/// Where a child process starts. Does nothing unless another test has started it.
#[test]
fn a_child_process_does_its_work() {
    if let Ok(task) = env::var(TASK) {
        run(&Task::from_text(&task).expect("a task"));
    }
}

fn run(task: &Task) {
    let requests = requests();
    // Its callers run on two runtimes: one with its own threads, and one that runs only while its
    // callers do.
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let client = RedissonClient::builder()
        .response_timeout(task.response_timeout)
        .connect(&task.url);
    let client = runtime.block_on(client).expect("a server");
    let limiters: Vec<_> = task
        .limiters
        .iter()
        .map(|name| client.rate_limiter(name))
        .collect();
    let random = Seeded::new().branch(task.number);
    let mut ledgers = vec![Ledger::default(); limiters.len()];
    if task.waits == 0 {
        for (limiter, ledger) in limiters.iter().zip(&mut ledgers) {
            let mut caller = Caller::new(limiter.clone(), random.clone());
            runtime.block_on(caller.take_to_be_released(task.to_be_released()));
            *ledger = caller.ledger;
        }
    }
    report(READY);

    let _go = requests.recv();
    let of_short = thread::spawn({
        let (task, limiters, random) = (task.clone(), limiters.clone(), random.branch(1_000));
        move || {
            let short = Builder::new_current_thread().enable_all().build();
            work(&short.expect("a runtime"), &task, &limiters, &random)
        }
    });
    let of_long = work(&runtime, task, &limiters, &random);
    let of_short = of_short.join().expect("work on the second runtime");
    for (ledger, more) in ledgers.iter_mut().zip(of_long.into_iter().zip(of_short)) {
        *ledger += more.0;
        *ledger += more.1;
    }
    let words: Vec<_> = ledgers.into_iter().map(Ledger::to_words).collect();
    report(&words.join(","));

    // The last cancelled permits are given back in the background, until the parent ends this
    // process.
    loop {
        thread::park();
    }
}

/// Lets half of the callers work on this runtime, and returns what they hold of each limiter.
fn work(runtime: &Runtime, task: &Task, limiters: &[RateLimiter], random: &Seeded) -> Vec<Ledger> {
    runtime.block_on(async {
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let which = number as usize % limiters.len();
            let mut caller = Caller::new(limiters[which].clone(), random.branch(number));
            if task.limiters[which] == PATIENT {
                caller = caller.patient();
            }
            let steps = (task.steps / CALLERS / 2).max(1);
            callers.spawn(async move { (which, caller.work(steps).await) });
        }
        if task.waits > 0 {
            for (which, limiter) in limiters.iter().enumerate() {
                let caller = Caller::new(limiter.clone(), random.clone());
                let times = task.waits;
                callers.spawn(async move { (which, caller.wait(times).await) });
            }
        }
        let mut ledgers = vec![Ledger::default(); limiters.len()];
        while let Some(done) = callers.join_next().await {
            let (which, ledger) = done.expect("a caller that ends");
            ledgers[which] += ledger;
        }
        ledgers
    })
}

/// The lines of stdin, which a thread reads: their end ends the process, whatever else it does.
fn requests() -> mpsc::Receiver<()> {
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(());
        }
        process::exit(0);
    });
    requests
}

fn report(words: &str) {
    let mut stdout = io::stdout().lock();
    // The test harness may have started a line.
    let written = write!(stdout, "\n{REPORT}{words}\n").and_then(|()| stdout.flush());
    written.expect("the parent listens");
}
