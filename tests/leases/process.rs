//! A child process: it takes permits as fast as it is told, and reports when it used each.

use std::env;
use std::io::{self, BufRead, Write};
use std::process::{self, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redisson_rate_limiter::{FixedWindow, Lease};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clients::patient;
use crate::seeded::Seeded;

const TASK: &str = "LEASES_TASK";
const USED: &str = "used: ";

/// When a permit was used: after the first of these times and before the second, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub after: i64,
    pub before: i64,
}

/// What a child does.
#[derive(Debug, Clone)]
pub struct Task {
    pub url: String,
    /// How long its leases are, in ms; 0 for none.
    pub lease: u64,
    /// Its callers pause for so long at most, in microseconds.
    pub pause: u64,
    /// Whether its callers wait for permits.
    pub waits: bool,
    /// The limit of a policy's windows of a second; 0 if they use the limiter instead.
    pub in_windows: u32,
}

fn micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_micros()).unwrap()
}

/// Where a child process starts. Does nothing where no other test has started it.
#[tokio::test]
async fn a_child_process_takes_permits() {
    let Ok(task) = env::var(TASK) else {
        return;
    };
    let words: Vec<&str> = task.split(' ').collect();
    let [url, lease, pause, waits, in_windows] = words[..] else {
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
    let limit: u32 = in_windows.parse().unwrap();
    let policy = FixedWindow::new(limit.max(1), Duration::from_secs(1)).aligned_to_clock();
    let windows = client
        .policy_limiter(policy)
        .unwrap()
        .leased(lease)
        .unwrap();
    let mut random = Seeded::new().branch(u64::from(process::id()));
    loop {
        let after = micros();
        let is_granted = match waits == "true" {
            _ if limit > 0 => windows.check("windows", 1).await.map(|it| it.is_granted()),
            true => limiter.acquire(1).await.map(|()| true),
            false => limiter.try_acquire(1).await,
        };
        if is_granted.unwrap() {
            let mut stdout = io::stdout().lock();
            let before = micros();
            let written = write!(stdout, "\n{USED}{after} {before}\n");
            written.and_then(|()| stdout.flush()).unwrap();
        }
        let pause = random.below(pause);
        if pause > 0 {
            sleep(Duration::from_micros(pause)).await;
        }
    }
}

/// Dropping it kills the child.
pub struct ChildProcess {
    child: Child,
    used: JoinHandle<Vec<Use>>,
}

impl ChildProcess {
    pub fn start(task: &Task) -> Self {
        let Task {
            url,
            lease,
            pause,
            waits,
            in_windows,
        } = task;
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([
                "--exact",
                "process::a_child_process_takes_permits",
                "--nocapture",
            ])
            .env(TASK, format!("{url} {lease} {pause} {waits} {in_windows}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a child process");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let used = tokio::spawn(async move {
            let mut used = Vec::new();
            while let Some(line) = lines.next_line().await.expect("its stdout") {
                used.extend(Use::from_line(&line));
            }
            used
        });
        Self { child, used }
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

impl Use {
    fn from_line(line: &str) -> Option<Self> {
        let (after, before) = line.strip_prefix(USED)?.split_once(' ')?;
        Some(Self {
            after: after.parse().ok()?,
            before: before.parse().ok()?, // the last line may be cut off
        })
    }
}
