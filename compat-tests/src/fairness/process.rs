//! A process of this crate whose tasks always wait: each acquires again as soon as it has been
//! granted, or after a pause.
//!
//! Its program calls [`run`] if its first argument is [`ARGUMENT`]. It prints a line when it is
//! connected, and starts when it reads one with its time in milliseconds, and how many permits are
//! enough. When the time is over, or its tasks were granted so many, it prints how many that were
//! in each second. The tasks go on until the time is over. The end of its stdin ends it at once.

use std::{
    env,
    io::{self, BufRead, Write},
    path::Path,
    process::{self, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use redisson_rate_limiter::{Lease, RedissonClient};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

/// The first argument of the process.
pub const ARGUMENT: &str = "waiting-process";

const READY: &str = "ready";
const MINUTE: Duration = Duration::from_secs(60);

/// How the tasks acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    pub count: u32,
    pub permits: u32,
    /// How long a task pauses after each grant.
    pub pause: Duration,
    /// How long their leases are; zero for none.
    pub lease: Duration,
}

/// The process as the one who started it sees it. Dropping it kills it.
pub(super) struct Process {
    // Never read: it ends with this.
    _child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the program, and waits until it is connected.
    pub(super) async fn start(program: &Path, url: &str, name: &str, tasks: Tasks) -> Self {
        let times = [tasks.pause, tasks.lease].map(|it| it.as_millis().to_string());
        let mut child = Command::new(program)
            .args([ARGUMENT, url, name])
            .args([tasks.count, tasks.permits].map(|it| it.to_string()))
            .args(times)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {} ({e})", program.display()));
        let requests = child.stdin.take().expect("its stdin is a pipe");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut process = Self {
            _child: child,
            requests,
            answers: BufReader::new(stdout).lines(),
        };
        assert_eq!(process.line().await, READY);
        process
    }

    /// Lets the tasks acquire for so long; how many permits they were granted in each second of it,
    /// as soon as it is over or they were granted `enough`.
    pub(super) async fn backlog(&mut self, duration: Duration, enough: Option<u64>) -> Vec<u64> {
        let enough = enough.unwrap_or(u64::MAX);
        let request = format!("{} {enough}\n", duration.as_millis());
        let sent = self.requests.write_all(request.as_bytes()).await;
        sent.expect("the process has ended; see its stderr");
        let answer = self.line().await;
        let per_second = answer.split(' ').map(str::parse);
        per_second.collect::<Result<_, _>>().expect("numbers")
    }

    async fn line(&mut self) -> String {
        let line = self.answers.next_line().await.expect("its stdout");
        line.expect("the process has ended; see its stderr")
    }
}

/// What the process does. Its other arguments: the server's URL, the limiter's name, how many tasks
/// acquire how many permits, and how long they pause and lease, in milliseconds.
///
/// # Panics
///
/// Where an argument is missing, or an acquire fails.
pub async fn run() {
    let mut arguments = env::args().skip(2);
    let mut next = || arguments.next().expect("an argument");
    let (url, name) = (next(), next());
    let tasks: u32 = next().parse().expect("how many tasks");
    let permits: u32 = next().parse().expect("how many permits");
    let [pause, lease] = [(); 2].map(|()| {
        let millis = next().parse().expect("milliseconds");
        Duration::from_millis(millis)
    });
    // A busy machine is no reason for a call to fail.
    let builder = RedissonClient::builder().response_timeout(MINUTE);
    let client = builder.connect(&url).await.expect("a server");
    let mut limiter = client.rate_limiter(&name);
    if lease > Duration::ZERO {
        limiter = limiter.leased(Lease::up_to(lease));
    }
    limiter.config().await.expect("an answer");

    let mut requests = requests();
    say(READY);
    while let Some(request) = requests.recv().await {
        let start = Instant::now();
        let mut numbers = request.split(' ').map(|it| it.parse().expect("a number"));
        let mut next = || numbers.next().expect("two numbers");
        let (duration, enough) = (Duration::from_millis(next()), next());
        let seconds = duration.as_millis().div_ceil(1000);
        let per_second: Arc<[AtomicU64]> = (0..seconds).map(|_| AtomicU64::new(0)).collect();
        let all: Arc<AtomicU64> = Arc::default();
        let is_enough: Arc<Notify> = Arc::default();
        let mut waiting = JoinSet::new();
        for _ in 0..tasks {
            let (limiter, per_second) = (limiter.clone(), Arc::clone(&per_second));
            let (all, is_enough) = (Arc::clone(&all), Arc::clone(&is_enough));
            waiting.spawn(async move {
                while let Ok(granted) = timeout_at(start + duration, limiter.acquire(permits)).await
                {
                    granted.expect("a permit");
                    let second = start.elapsed().as_secs() as usize;
                    if let Some(count) = per_second.get(second) {
                        count.fetch_add(permits.into(), Ordering::Relaxed);
                    }
                    let before = all.fetch_add(permits.into(), Ordering::Relaxed);
                    if before.saturating_add(permits.into()) >= enough {
                        is_enough.notify_one();
                    }
                    if pause > Duration::ZERO {
                        sleep(pause).await;
                    }
                }
            });
        }
        tokio::select! {
            () = is_enough.notified() => waiting.detach_all(),
            () = async { while waiting.join_next().await.is_some() {} } => {}
        }
        let per_second = per_second.iter().map(|it| it.load(Ordering::Relaxed));
        let per_second: Vec<String> = per_second.map(|it| it.to_string()).collect();
        say(&per_second.join(" "));
    }
}

/// The lines of stdin. A thread reads them, so that their end ends the process whatever else it
/// does.
fn requests() -> mpsc::UnboundedReceiver<String> {
    let (sender, requests) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        process::exit(0);
    });
    requests
}

fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").expect("the one who started this listens");
}
