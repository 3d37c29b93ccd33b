//! A process with callers that each ask again as soon as they have an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use crate::contender::{Contender, Limiter, Quota};
use benchmarks::cpu;

/// The first argument of such a process.
pub const PROCESS: &str = "--callers";

/// How long requests may take that are under way at the end.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a process does.
#[derive(Clone)]
pub struct Task {
    pub contender: Contender,
    pub urls: String,
    pub quota: Quota,
    pub callers: usize,
    pub keys: usize,
    /// In ms since the epoch.
    pub begins: u64,
    pub ends: u64,
    /// Whether it tells when each grant came, and not only how many.
    pub tells_times: bool,
}

impl Task {
    pub fn arguments(&self) -> Vec<String> {
        vec![
            PROCESS.to_owned(),
            self.contender.word(),
            self.urls.clone(),
            self.quota.limit.to_string(),
            self.quota.window.as_secs().to_string(),
            self.callers.to_string(),
            self.keys.to_string(),
            self.begins.to_string(),
            self.ends.to_string(),
            u8::from(self.tells_times).to_string(),
        ]
    }

    fn from(arguments: &[String]) -> Self {
        let number = |place: usize| -> u64 { arguments[place].parse().expect("a number") };
        Self {
            contender: Contender::of_word(&arguments[0]),
            urls: arguments[1].clone(),
            quota: Quota {
                limit: number(2) as u32,
                window: Duration::from_secs(number(3)),
            },
            callers: number(4) as usize,
            keys: number(5) as usize,
            begins: number(6),
            ends: number(7),
            tells_times: number(8) == 1,
        }
    }
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_millis() as u64
}

/// Prints how many decisions there were, the median time of one and the CPU time of this process in
/// ns, and the times of the grants if they are wanted.
#[tokio::main]
pub async fn run(arguments: &[String]) {
    let task = Task::from(arguments);
    let limiter = Limiter::connect(task.contender, &task.urls, task.quota, task.keys).await;
    let limiter = limiter.unwrap_or_else(|error| panic!("{:?}: {error}", task.contender));
    let patience = Duration::from_millis(task.ends.saturating_sub(now())) + PATIENCE;
    let (contender, begins, ends) = (task.contender, task.begins, task.ends);
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        eprintln!("peers: {contender:?} has not answered all requests");
        std::process::exit(1);
    });
    let used = std::thread::spawn(move || cpu_between(begins, ends));
    let (next, mut callers) = (
        Arc::new(AtomicU64::new(std::process::id().into())),
        JoinSet::new(),
    );
    for _ in 0..task.callers {
        callers.spawn(ask_on(limiter.clone(), task.clone(), Arc::clone(&next)));
    }
    let (mut decisions, mut took, mut grants) = (0, Vec::new(), Vec::new());
    for asked in callers.join_all().await {
        decisions += asked.decisions;
        took.extend(asked.took);
        grants.extend(asked.grants);
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    println!("{decisions} {median} {}", used.join().expect("a thread"));
    let grants: Vec<String> = grants.iter().map(u64::to_string).collect();
    println!("{}", grants.join(" "));
}

/// The CPU time of this process between two times, in ns.
fn cpu_between(begins: u64, ends: u64) -> u64 {
    let until = |time: u64| {
        std::thread::sleep(Duration::from_millis(time.saturating_sub(now())));
        cpu::nanos(std::process::id())
    };
    let before = until(begins);
    until(ends) - before
}

#[derive(Default)]
struct Asked {
    decisions: u64,
    took: Vec<u64>,
    grants: Vec<u64>,
}

async fn ask_on(mut limiter: Limiter, task: Task, next: Arc<AtomicU64>) -> Asked {
    let mut asked = Asked::default();
    loop {
        // Spread over the keys.
        let step = next
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let key = (step >> 33) as usize % task.keys;
        let start = tokio::time::Instant::now();
        let is_granted = limiter
            .ask(key)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let ended = now();
        if ended >= task.ends {
            return asked;
        }
        if ended >= task.begins {
            asked.decisions += 1;
            if task.callers == 1 {
                asked.took.push(start.elapsed().as_nanos() as u64);
            }
            if task.tells_times && is_granted {
                asked.grants.push(ended);
            }
        }
        if task.tells_times && !is_granted {
            // A caller that was denied does not ask again at once.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
