//! Two and three processes whose callers ask, wait, give up and give back at random, in one window:
//! the permits in use are those that the processes hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redisson_rate_limiter::Rate;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::child::{PATIENT, Task};
use crate::clients::patient;
use crate::ledger::Ledger;
use crate::parent::ChildProcess;
use crate::proxy::{Fate, Proxy};
use crate::scaled;
use crate::seeded::Seeded;
use crate::state::State;
use crate::support::Server;

const HOUR: Duration = Duration::from_secs(3600);

/// How long what was cancelled last may take to be given back.
const BACKGROUND: Duration = Duration::from_secs(120);

/// Two limiters with more permits than all callers ask for, and one that has to deny.
const LIMITERS: [(&str, u64); 3] = [(PATIENT, 1_000_000), ("plenty", 1_000_000), ("scarce", 40)];

#[tokio::test]
async fn all_permits_of_two_processes_are_accounted_for() {
    processes(2, Way::Direct).await;
}

#[tokio::test]
async fn all_permits_of_three_processes_are_accounted_for() {
    processes(3, Way::Direct).await;
}

#[tokio::test]
async fn all_permits_are_accounted_for_when_two_processes_lose_answers() {
    processes(2, Way::Lossy).await;
}

#[tokio::test]
async fn all_permits_are_accounted_for_when_three_processes_lose_answers() {
    processes(3, Way::Lossy).await;
}

/// How the processes reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    /// Requests and answers get lost, and the connection with them.
    Lossy,
}

impl Way {
    /// How many requests all callers make together. A loss costs a new connection, so there are
    /// fewer with losses.
    fn steps(self) -> u64 {
        match self {
            Self::Direct => 3_000,
            Self::Lossy => 300,
        }
    }

    /// Without losses a call fails only where the machine is very busy; with them, a process does
    /// not wait long.
    fn response_timeout(self) -> Duration {
        match self {
            Self::Direct => Duration::from_secs(60),
            Self::Lossy => Duration::from_secs(20),
        }
    }
}

async fn processes(count: u64, way: Way) {
    let random = Seeded::new();
    let server = Server::start();
    let mut redis = server.connection().await;
    let mut tasks = Vec::new();
    let mut losses = Vec::new();
    for number in 0..count {
        let url = match way {
            Way::Direct => server.url(),
            Way::Lossy => {
                let proxy = Proxy::to(server.port()).await;
                let url = proxy.url();
                losses.push(Losses::on(proxy, random.branch(number)));
                url
            }
        };
        tasks.push(Task {
            url,
            number,
            limiters: LIMITERS.map(|(name, _)| name.to_owned()).into(),
            response_timeout: way.response_timeout(),
            steps: scaled(way.steps()),
            waits: 0,
        });
    }

    let client = patient(&server.url()).await;
    let mut states = Vec::new();
    for (name, permits) in LIMITERS {
        let released: u64 = tasks.iter().map(|it| u64::from(it.to_be_released())).sum();
        let permits = permits + released;
        let rate = Rate::overall(permits, HOUR);
        client.rate_limiter(name).set_rate(rate).await.unwrap();
        states.push(State::of(name, permits));
    }

    let mut children = Vec::new();
    for task in &tasks {
        children.push(ChildProcess::start(task, &random).await);
    }
    losses.iter().for_each(Losses::start);
    for child in &mut children {
        child.go().await;
    }
    let mut ledgers = [Ledger::default(); LIMITERS.len()];
    for child in &mut children {
        for (all, one) in ledgers.iter_mut().zip(child.ledgers().await) {
            *all += one;
        }
    }
    losses.iter().for_each(Losses::stop);

    let lost: u64 = losses.iter().map(Losses::count).sum();
    println!("{count} processes, {way:?}: {lost} lost, {ledgers:?}, {random}");
    let [patient, others @ ..] = &ledgers;
    assert_eq!(patient.dropped, 0);
    assert!(others.iter().all(|it| it.dropped > 0));
    // A request whose answer was lost is sent again, so that few stay without an answer.
    let unknown = patient.maybe_taken;
    assert!(
        unknown * 4 <= patient.granted,
        "{unknown} indeterminate, {random}"
    );
    for (state, ledger) in states.iter().zip(&ledgers) {
        let start = Instant::now();
        loop {
            let used = state.used(&mut redis).await;
            if explains(ledger, used, way) {
                break;
            }
            let is_late = start.elapsed() > BACKGROUND;
            assert!(!is_late, "{used} are gone: {ledger:?}, {random}");
            sleep(Duration::from_millis(1)).await;
        }
    }
    // No call is in flight any more that could change it.
    for child in children {
        child.kill().await;
    }
    for (state, ledger) in states.iter().zip(&ledgers) {
        let used = state.used(&mut redis).await;
        assert!(
            explains(ledger, used, way),
            "{used} are gone: {ledger:?}, {random}"
        );
    }
}

/// Whether this many permits can be taken. What a dropped future took is given back, unless its
/// refund is lost on the way.
fn explains(ledger: &Ledger, used: i64, way: Way) -> bool {
    let lost = match way {
        Way::Direct => {
            assert_eq!((ledger.maybe_back, ledger.maybe_taken), (0, 0));
            0
        }
        Way::Lossy => ledger.dropped,
    };
    let least = ledger.held - ledger.maybe_back;
    let most = ledger.held + ledger.maybe_taken + lost;
    (least..=most).contains(&used)
}

/// Loses requests and answers of one process, and the connection with each: about five a second,
/// one in four of them before it reaches the server.
struct Losses {
    may_lose: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    losing: JoinHandle<()>,
}

impl Losses {
    fn on(proxy: Proxy, mut random: Seeded) -> Self {
        let may_lose = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let losing = tokio::spawn({
            let (may_lose, count) = (Arc::clone(&may_lose), Arc::clone(&count));
            async move {
                loop {
                    sleep(Duration::from_millis(random.below(400))).await;
                    // If a command has arrived since, the last lost connection has been noticed.
                    let seen = proxy.take_names();
                    let has_met = seen.iter().any(|name| name == "EVALSHA");
                    if has_met && may_lose.load(Ordering::Relaxed) {
                        let fate = match random.below(4) {
                            0 => Fate::CutBeforeServer,
                            _ => Fate::CutBeforeAnswer,
                        };
                        proxy.next("EVALSHA", fate);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        Self {
            may_lose,
            count,
            losing,
        }
    }

    fn start(&self) {
        self.may_lose.store(true, Ordering::Relaxed);
    }

    fn stop(&self) {
        self.may_lose.store(false, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Losses {
    fn drop(&mut self) {
        self.losing.abort();
    }
}
