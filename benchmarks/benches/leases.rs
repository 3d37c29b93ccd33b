//! Leases: what they decide without a call, beside the same limiter without leases in the same run.
//! The goals: granted locally p50 at most 1 us, 10 M decisions a second on two cores; 32 processes
//! of 16 callers on one limiter at least 5 M a second together, at most 100 calls a second each;
//! over a link of 50 ms p99 below 1 ms at a steady load within the rate; utilisation at least 97 %
//! with leases of a twentieth of the interval, and four processes and Redisson beside that always
//! want more; 256 callers on 10,000 keys by Zipf's law at least 1.5 times as many decisions as
//! without.
//!
//! `cargo bench -p benchmarks --bench leases`; with `-- zipf` only the last of these. It starts a
//! `redis-server` and a JVM of its own.

use std::env;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use benchmarks::median;
use benchmarks::scripts::ScriptsRun;
use compat_tests::Server;
use compat_tests::redisson::{self, Version};
use redisson_rate_limiter::{Lease, Rate, RateLimiter, RedissonClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep_until;

const RUN: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
/// What nobody reaches.
const PLENTY: u64 = 1 << 40;
const LEASE: Duration = Duration::from_millis(100);
/// A twentieth of the interval.
const ZIPF_LEASE: Duration = Duration::from_millis(500);

/// Set for a child process: its work, the server and the length of its leases in ms.
const CHILD: &str = "LEASES_CHILD";

fn main() {
    if let Ok(task) = env::var(CHILD) {
        return child(&task);
    }
    let server = Server::start();
    Runtime::new().unwrap().block_on(async {
        for exponent in [1.0, 1.2] {
            println!("256 callers, 10,000 keys by Zipf {exponent:.1}");
            by_zipf(&server, exponent).await;
        }
        if env::args().any(|argument| argument == "zipf") {
            return;
        }
        println!("one caller");
        for lease in [Duration::ZERO, LEASE] {
            one_caller(&server, lease).await;
        }
        println!("two threads");
        for lease in [Duration::ZERO, LEASE] {
            two_threads(&server, lease).await;
        }
        println!("32 processes of 16 callers");
        for lease in [Duration::ZERO, LEASE] {
            processes(&server, "count", 32, PLENTY, lease).await;
        }
        println!("a link of 50 ms, 200 requests a second of 1,000");
        for lease in [Duration::ZERO, Duration::from_millis(400)] {
            slow_link(&server, lease).await;
        }
        println!("four processes that want more than 1,000 a second");
        for lease in [Duration::ZERO, SECOND / 20] {
            processes(&server, "wait", 4, 1_000, lease).await;
            processes(&server, "try", 4, 1_000, lease).await;
        }
        println!("the same, and Redisson with four threads that wait");
        let [java] = redisson::clients(Version::V4_7_0, &server.url()).await;
        let java = java.limiter("limiter");
        for lease in [Duration::ZERO, SECOND / 20] {
            processes_beside(&server, "wait", (4, Some(&java)), 1_000, lease).await;
        }
    });
}

async fn limiter(url: &str, rate: u64, lease: Duration) -> RateLimiter {
    let client = RedissonClient::connect(url).await.unwrap();
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(rate, SECOND)).await.unwrap();
    limiter.leased(Lease::up_to(lease))
}

fn part(times: &mut [Duration], thousandths: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * thousandths / 1_000]
}

async fn one_caller(server: &Server, lease: Duration) {
    let limiter = limiter(&server.url(), PLENTY, lease).await;
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < RUN {
        let before = Instant::now();
        assert!(limiter.try_acquire(1).await.unwrap());
        if start.elapsed() > SECOND {
            times.push(before.elapsed());
        }
    }
    let [p50, p99] = [500, 990].map(|it| part(&mut times, it));
    println!("  leases of {lease:?}: p50 {p50:?}, p99 {p99:?}");
}

/// Each thread has a runtime.
async fn two_threads(server: &Server, lease: Duration) {
    let limiter = limiter(&server.url(), PLENTY, lease).await;
    let threads = [(); 2].map(|()| {
        let limiter = limiter.clone();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        thread::spawn(move || runtime.block_on(async move { take(&limiter).await }))
    });
    let taken: u64 = threads.map(|it| it.join().unwrap()).iter().sum();
    let a_second = taken as f64 / RUN.as_secs_f64();
    println!("  leases of {lease:?}: {a_second:.0} decisions a second");
}

async fn take(limiter: &RateLimiter) -> u64 {
    let (start, mut taken) = (Instant::now(), 0);
    while start.elapsed() < RUN {
        for _ in 0..100 {
            taken += u64::from(limiter.try_acquire(1).await.unwrap());
        }
        yield_now().await;
    }
    taken
}

/// Rounds without leases and with them take turns.
async fn by_zipf(server: &Server, exponent: f64) {
    const ROUNDS: usize = 5;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let without = zipf_round(server, exponent, None).await;
        let with = zipf_round(server, exponent, Some(ZIPF_LEASE)).await;
        rounds.push([without, with, with / without]);
    }
    let of = |place: usize| rounds.iter().map(move |round| round[place]).collect();
    let [without, with, times] = [0, 1, 2].map(|place| median(of(place)));
    let least = rounds
        .iter()
        .map(|[.., times]| *times)
        .fold(f64::MAX, f64::min);
    let most = rounds.iter().map(|[.., times]| *times).fold(0.0, f64::max);
    println!(
        "  without leases {without:.0} decisions a second, with leases of {ZIPF_LEASE:?} {with:.0}: \
         {times:.2} times, {least:.2} to {most:.2} in {ROUNDS} rounds"
    );
}

/// Decisions a second of callers who ask for a key the less often the later it stands in the list.
async fn zipf_round(server: &Server, exponent: f64, lease: Option<Duration>) -> f64 {
    const KEYS: usize = 10_000;
    const CALLERS: u64 = 256;
    const ROUND: Duration = Duration::from_secs(2);
    let names: Arc<[String]> = (0..KEYS).map(|name| format!("user {name}")).collect();
    let mut sum = 0.0;
    let sums = (1..=KEYS).map(|place| {
        sum += (place as f64).powf(-exponent);
        sum
    });
    let sums: Arc<[f64]> = sums.collect();
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let limiter = client.keyed_rate_limiter("zipf:", Rate::overall(PLENTY, 20 * ZIPF_LEASE));
    let mut limiter = limiter.unwrap();
    if let Some(lease) = lease {
        limiter = limiter.leased(Lease::up_to(lease));
    }
    let begin = Instant::now() + 6 * ZIPF_LEASE; // until the keys are hot
    let mut callers = JoinSet::new();
    for seed in 0..CALLERS {
        let (limiter, names, sums) = (limiter.clone(), Arc::clone(&names), Arc::clone(&sums));
        callers.spawn(async move {
            let (mut random, mut asked, mut counted) =
                (fastrand::Rng::with_seed(seed), 0_u64, 0_u64);
            loop {
                let wanted = random.f64() * sums[KEYS - 1];
                let place = sums.partition_point(|sum| *sum < wanted).min(KEYS - 1);
                assert!(limiter.try_acquire(&names[place], 1).await.unwrap());
                asked += 1;
                if asked.is_multiple_of(64) {
                    yield_now().await; // a lease answers without waiting
                }
                let now = Instant::now();
                if now >= begin + ROUND {
                    return counted;
                }
                counted += u64::from(now >= begin);
            }
        });
    }
    let decisions: u64 = callers.join_all().await.iter().sum();
    decisions as f64 / ROUND.as_secs_f64()
}

/// A process that works for [`RUN`], and prints how many permits it was granted.
fn child(task: &str) {
    let words: Vec<&str> = task.split(' ').collect();
    let [work, url, lease] = words[..] else {
        panic!("no task: {task}");
    };
    let (work, lease) = (
        work.to_owned(),
        Duration::from_millis(lease.parse().unwrap()),
    );
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let taken: u64 = runtime.block_on(async {
        let client = RedissonClient::connect(url).await.unwrap();
        let limiter = client.rate_limiter("limiter").leased(Lease::up_to(lease));
        let mut callers = JoinSet::new();
        for _ in 0..16 {
            let (limiter, work) = (limiter.clone(), work.clone());
            callers.spawn(async move {
                if work == "count" {
                    return take(&limiter).await;
                }
                let (start, mut taken) = (Instant::now(), 0);
                while start.elapsed() < RUN {
                    let granted = match work == "wait" {
                        true => {
                            limiter
                                .try_acquire_timeout(1, RUN - start.elapsed().min(RUN))
                                .await
                        }
                        false => limiter.try_acquire(1).await,
                    };
                    match granted.unwrap() {
                        true => taken += 1,
                        false => tokio::time::sleep(Duration::from_millis(2)).await,
                    }
                }
                taken
            });
        }
        callers.join_all().await.iter().sum()
    });
    println!("{taken}");
}

async fn processes(server: &Server, work: &str, count: u64, rate: u64, lease: Duration) {
    processes_beside(server, work, (count, None), rate, lease).await;
}

/// So many processes, and threads of Redisson that wait for permits.
async fn processes_beside(
    server: &Server,
    work: &str,
    (count, java): (u64, Option<&redisson::Limiter>),
    rate: u64,
    lease: Duration,
) {
    limiter(&server.url(), rate, Duration::ZERO).await;
    let before = scripts_run(server).await;
    let mut running = JoinSet::new();
    for _ in 0..count {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(
            CHILD,
            format!("{work} {} {}", server.url(), lease.as_millis()),
        );
        let child = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        running.spawn(async move {
            let output = child.wait_with_output().await.unwrap();
            String::from_utf8(output.stdout)
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap()
        });
    }
    if let Some(java) = java {
        let java = java.clone();
        running.spawn(async move {
            let waiting = java.load_waiting(4, 1, RUN.as_millis() as i64);
            let granted = waiting.await.unwrap().grants;
            println!("  Redisson was granted {granted} of all");
            granted
        });
    }
    let taken = running.join_all().await.iter().sum::<u64>() as f64 / RUN.as_secs_f64();
    let calls = (scripts_run(server).await - before) as f64 / RUN.as_secs_f64();
    let each = calls / count as f64;
    println!(
        "  {work}, leases of {lease:?}: {taken:.0} granted a second, {each:.1} calls a second each"
    );
}

/// A steady load over a link on which each way takes 25 ms.
async fn slow_link(server: &Server, lease: Duration) {
    let port = slow(server.port()).await;
    let limiter = limiter(&format!("redis://127.0.0.1:{port}"), 1_000, lease).await;
    let (start, mut callers) = (tokio::time::Instant::now(), JoinSet::new());
    let pause = SECOND / 200;
    for i in 0..2_000 {
        sleep_until(start + pause * i).await;
        let limiter = limiter.clone();
        callers.spawn(async move {
            let before = Instant::now();
            limiter.acquire(1).await.unwrap();
            (i, before.elapsed())
        });
    }
    let times = callers.join_all().await.into_iter();
    let mut times: Vec<_> = times
        .filter(|(i, _)| *i >= 400)
        .map(|(_, time)| time)
        .collect();
    let [p50, p99] = [500, 990].map(|it| part(&mut times, it));
    println!("  leases of {lease:?}: p50 {p50:?}, p99 {p99:?}");
}

/// Forwards what arrives on the port that it returns, 25 ms later.
async fn slow(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(forward(from_client, to_server));
            tokio::spawn(forward(from_server, to_client));
        }
    });
    port
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (sender, mut parts) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            let due = tokio::time::Instant::now() + Duration::from_millis(25);
            if sender.send((due, bytes[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    while let Some((due, bytes)) = parts.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn scripts_run(server: &Server) -> u64 {
    ScriptsRun::read(&mut server.connection().await).await.calls
}
