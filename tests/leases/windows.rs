//! Real use by several processes, with leases and without, while some are killed, stopped, and
//! while the server is: in no window of the interval's length more than the rate was used.

use std::time::Duration;

use redisson_rate_limiter::Rate;
use tokio::time::sleep;

use crate::clients::patient;
use crate::process::{ChildProcess, Task};
use crate::seeded::Seeded;
use crate::support::Server;
use crate::uses::{Use, most_in_a_window};

const RATE: usize = 100;
const INTERVAL: Duration = Duration::from_millis(300);

fn task(server: &Server, lease: u64) -> Task {
    Task {
        url: server.url(),
        lease,
        pause: 8_000,
        waits: false,
        reserves: 0,
    }
}

async fn limiter(server: &Server) {
    let limiter = patient(&server.url()).await.rate_limiter("limiter");
    let rate = Rate::overall(RATE as u64, INTERVAL);
    limiter.set_rate(rate).await.unwrap();
}

fn start(server: &Server, leases: &[u64]) -> Vec<ChildProcess> {
    let tasks = leases.iter().map(|&lease| task(server, lease));
    tasks.map(|task| ChildProcess::start(&task)).collect()
}

async fn assert_within_the_rate(mut processes: Vec<ChildProcess>, mut used: Vec<Use>) {
    let more = (2 * RATE + 1).saturating_sub(used.len());
    processes[0].until_used(more).await;
    for process in processes {
        used.extend(process.kill().await);
    }
    assert!(used.len() > 2 * RATE, "{} were used", used.len());
    let most = most_in_a_window(used, INTERVAL);
    assert!(most <= RATE, "{most} in a window");
}

#[tokio::test]
async fn several_processes_exceed_the_rate_in_no_window() {
    let server = Server::start();
    limiter(&server).await;
    let processes = start(&server, &[15, 60, 150, 0]);
    sleep(8 * INTERVAL).await;
    assert_within_the_rate(processes, Vec::new()).await;
}

#[tokio::test]
async fn killed_processes_exceed_the_rate_in_no_window() {
    let (server, mut random) = (Server::start(), Seeded::new());
    limiter(&server).await;
    let mut processes = start(&server, &[15, 60, 0]);
    let mut used = Vec::new();
    for _ in 0..8 {
        processes[0].until_used(1).await;
        sleep(Duration::from_millis(100 + random.below(200))).await;
        used.extend(processes.remove(0).kill().await);
        processes.extend(start(&server, &[60]));
    }
    assert_within_the_rate(processes, used).await;
}

#[tokio::test]
async fn stopped_processes_exceed_the_rate_in_no_window() {
    let (server, mut random) = (Server::start(), Seeded::new());
    limiter(&server).await;
    let processes = start(&server, &[60, 150, 0]);
    sleep(2 * INTERVAL).await;
    for i in 0..12 {
        let process = &processes[i % 2];
        process.signal("STOP");
        sleep(Duration::from_millis(random.below(200))).await;
        process.signal("CONT");
        sleep(Duration::from_millis(random.below(100))).await;
    }
    assert_within_the_rate(processes, Vec::new()).await;
}

#[tokio::test]
async fn while_the_server_is_stopped_no_window_exceeds_the_rate() {
    let (server, mut random) = (Server::start(), Seeded::new());
    limiter(&server).await;
    let processes = start(&server, &[60, 150, 0]);
    sleep(2 * INTERVAL).await;
    for _ in 0..8 {
        server.signal("STOP");
        sleep(Duration::from_millis(random.below(250))).await;
        server.signal("CONT");
        sleep(Duration::from_millis(random.below(200))).await;
    }
    assert_within_the_rate(processes, Vec::new()).await;
}
