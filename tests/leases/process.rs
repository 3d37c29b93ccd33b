//! A child process: it takes permits as fast as it is told, and reports when it used each.

use std::env;
use std::io::{self, BufRead, Write};
use std::process::{self, Stdio};
use std::thread;
use std::time::Duration;

use redisson_rate_limiter::{Error, Lease, RateLimiter, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clients::patient;
use crate::seeded::Seeded;
use crate::uses::{Use, micros, micros_of};

const TASK: &str = "LEASES_TASK";
const USED: &str = "used: ";
/// The beginning of the line that says when the permits of a reservation are usable, in
/// microseconds since the epoch.
const RESERVED: &str = "reserved: ";

/// What a child does.
#[derive(Debug, Clone)]
pub struct Task {
    pub url: String,
    /// How long its leases are, in ms; 0 for none.
    pub lease: u64,
    /// The longest pause of its callers, in microseconds.
    pub pause: u64,
    /// Whether its callers wait for permits.
    pub waits: bool,
    /// How many permits it reserves at a time; 0 if it takes single ones.
    pub reserves: u32,
}

/// Where a child process starts. Does nothing unless another test has started it.
#[tokio::test]
async fn a_child_process_takes_permits() {
    let Ok(task) = env::var(TASK) else {
        return;
    };
    let words: Vec<&str> = task.split(' ').collect();
    let [url, lease, pause, waits, reserves] = words[..] else {
        panic!("no task: {task}");
    };
    let (lease, pause): (u64, u64) = (lease.parse().unwrap(), pause.parse().unwrap());
    thread::spawn(|| {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {}
        process::exit(0); // with its parent
    });
    let (client, lease) = (
        patient(url).await,
        Lease::up_to(Duration::from_millis(lease)),
    );
    let limiter = client.rate_limiter("limiter").leased(lease);
    let mut random = Seeded::new().branch(u64::from(process::id()));
    let reserves = reserves.parse().unwrap();
    loop {
        let after = micros();
        let is_granted = match waits == "true" {
            _ if reserves > 0 => use_reserved(&limiter, reserves).await.map(|()| false),
            true => limiter.acquire(1).await.map(|()| true),
            false => limiter.try_acquire(1).await,
        };
        if is_granted.unwrap() {
            report_use(after, 1);
        }
        let pause = random.below(pause);
        if pause > 0 {
            sleep(Duration::from_micros(pause)).await;
        }
    }
}

fn report(line: &str) {
    let mut stdout = io::stdout().lock();
    // The test harness may have started a line.
    let written = write!(stdout, "\n{line}\n");
    written.and_then(|()| stdout.flush()).unwrap();
}

fn report_use(after: i64, permits: u32) {
    let before = micros();
    for _ in 0..permits {
        report(&format!("{USED}{after} {before}"));
    }
}

/// Reserves permits, and uses them when they are usable, unless that is missed.
async fn use_reserved(limiter: &RateLimiter, permits: u32) -> Result<()> {
    let reserved = limiter.reserve(permits, Duration::from_secs(60)).await?;
    let reservation = reserved.expect("within a minute");
    let usable_at = reservation.usable_at();
    let until = usable_at.saturating_duration_since(Instant::now());
    report(&format!("{RESERVED}{}", micros() + micros_of(until)));
    sleep_until(usable_at).await;
    let after = micros();
    match reservation.ready().await {
        Ok(grant) => report_use(after, grant.permits()),
        Err(Error::ReservationExpired { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Dropping it kills the child.
pub struct ChildProcess {
    child: Child,
    used: JoinHandle<Vec<Use>>,
    how_many: watch::Receiver<usize>,
    reserved: mpsc::UnboundedReceiver<i64>,
}

impl ChildProcess {
    pub fn start(task: &Task) -> Self {
        let Task {
            url,
            lease,
            pause,
            waits,
            reserves,
        } = task;
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([
                "--exact",
                "process::a_child_process_takes_permits",
                "--nocapture",
            ])
            .env(TASK, format!("{url} {lease} {pause} {waits} {reserves}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a child process");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let (usable, reserved) = mpsc::unbounded_channel();
        let (counted, how_many) = watch::channel(0);
        let used = tokio::spawn(async move {
            let mut used = Vec::new();
            while let Some(line) = lines.next_line().await.expect("its stdout") {
                used.extend(use_from(&line));
                counted.send_replace(used.len());
                if let Some(time) = line.strip_prefix(RESERVED).and_then(|it| it.parse().ok()) {
                    let _ = usable.send(time); // nobody may wait for it
                }
            }
            used
        });
        Self {
            child,
            used,
            how_many,
            reserved,
        }
    }

    /// Waits until it has used this many permits, which takes longer on a busy machine.
    pub async fn until_used(&mut self, permits: usize) {
        let used = self.how_many.wait_for(|used| *used >= permits);
        let used = timeout(Duration::from_secs(60), used).await;
        used.expect("so many uses").expect("the child runs");
    }

    /// When the permits of its next reservation are usable, in microseconds since the epoch.
    pub async fn reserved(&mut self) -> i64 {
        let reserved = timeout(Duration::from_secs(60), self.reserved.recv());
        let reserved = reserved.await.expect("a reservation");
        reserved.expect("the child has ended; see its stderr")
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().expect("a child that runs");
        crate::support::send(signal, id);
    }

    /// Kills it, and returns what it had used.
    pub async fn kill(mut self) -> Vec<Use> {
        let ended = self.child.try_wait().expect("the state of a child");
        assert_eq!(ended, None, "the child ended by itself; see its stderr");
        self.child.kill().await.expect("a child that can be killed");
        self.used.await.expect("what it used")
    }
}

fn use_from(line: &str) -> Option<Use> {
    let (after, before) = line.strip_prefix(USED)?.split_once(' ')?;
    Some(Use {
        after: after.parse().ok()?,
        before: before.parse().ok()?, // the last line may be cut off
    })
}
