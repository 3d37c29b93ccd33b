//! One round: a client with its own proxy, and some dozens of faults. Many rounds run concurrently,
//! since a client spends most of its time waiting.

use std::env;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::RedissonClient;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::callers::Watch;
use crate::fault::{KINDS, Plan, Replays};
use crate::keys;
use crate::lags::Lags;
use crate::ledger::Ledger;
use crate::proxy::FaultProxy;
use crate::seeded::Seeded;
use crate::support::Server;
use crate::warnings;

/// How many faults a round makes.
const FAULTS: u64 = 25;
/// How many rounds of a test run at a time.
const SIDE_BY_SIDE: usize = 64;
/// A round that takes this long hangs.
const HANG: Duration = Duration::from_secs(180);
/// How long what was cancelled last may take to be given back.
const BACKGROUND: Duration = Duration::from_secs(120);

/// What each round has.
pub struct Round {
    number: u64,
    /// What the names of this test's limiters begin with.
    tag: &'static str,
    pub client: RedissonClient,
    /// Another way to the server, without faults.
    pub direct: RedissonClient,
    pub redis: MultiplexedConnection,
    pub plan: Arc<Plan>,
    random: Seeded,
    pub watch: Watch,
    proxy: FaultProxy,
}

/// Runs as many rounds as `permille` of all faults take.
pub async fn rounds<F>(
    tag: &'static str,
    permille: u64,
    replays: Replays,
    server: &Server,
    round: impl Fn(Round) -> F + Copy + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    warnings::listen();
    let faults: u64 = match env::var("FAULTS") {
        Ok(faults) => faults.parse().expect("FAULTS is a number"),
        Err(_) => 1_000,
    };
    let count = (faults * permille / 1000).div_ceil(FAULTS).max(1);
    let random = Seeded::new();
    let start = Instant::now();
    let lags = Arc::new(Lags::start());
    let direct = RedissonClient::builder().response_timeout(HANG);
    let direct = direct.connect(&server.url()).await.unwrap();
    let redis = server.connection().await;
    let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut running = JoinSet::new();
    let mut met = [0; KINDS];
    for number in 0..count {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        while let Some(done) = running.try_join_next() {
            add(&mut met, check(done));
        }
        let random = random.clone();
        let name = format!("round {number}, {random}");
        // With few faults, a connection is stable and is replaced at once; with many, calls run
        // into their timeouts.
        let kinds = [(300, 3), (600, 3), (1_200, 6), (2_000, 12)];
        let (response_timeout, every) = kinds[number as usize % kinds.len()];
        let response_timeout = Duration::from_millis(response_timeout);
        let watch = Watch {
            response_timeout,
            lags: Arc::clone(&lags),
            round: name.clone(),
        };
        let (port, direct, redis) = (server.port(), direct.clone(), redis.clone());
        running.spawn(async move {
            let _place = place;
            let plan = Plan::new(
                random.branch(number << 20),
                every,
                response_timeout,
                replays,
            );
            let plan = Arc::new(plan);
            let proxy = FaultProxy::to(port, &plan).await;
            let client = RedissonClient::builder()
                .response_timeout(response_timeout)
                .wait_for_server(HANG);
            let client = client.connect(&proxy.url()).await.unwrap();
            let whole = Round {
                number,
                tag,
                client,
                direct,
                redis,
                plan: Arc::clone(&plan),
                random,
                watch,
                proxy,
            };
            let ended = timeout(HANG, round(whole)).await;
            ended.unwrap_or_else(|_| panic!("a round hangs: {name}"));
            plan.met()
        });
    }
    while let Some(done) = running.join_next().await {
        add(&mut met, check(done));
    }
    println!("{met:?} in {count} rounds, {:?}, {random}", start.elapsed());
}

fn add(all: &mut [u64; KINDS], one: [u64; KINDS]) {
    all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
}

fn check<T>(done: Result<T, tokio::task::JoinError>) -> T {
    match done {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Round {
    /// A random sequence of this round's own; `part` is at least 1.
    pub fn random(&self, part: u64) -> Seeded {
        self.random.branch((self.number << 20) + part)
    }

    /// A name of this round's own.
    pub fn name(&self, part: u64) -> String {
        format!("{}-{}-{part}", self.tag, self.number)
    }

    /// Lets the faults happen while the callers work, and waits until no request is on its way any
    /// more. Returns what the callers return.
    pub async fn run<F>(&mut self, callers: Vec<F>) -> Vec<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        self.plan.arm(FAULTS);
        let mut running = JoinSet::new();
        for caller in callers {
            running.spawn(caller);
        }
        let mut outputs = Vec::new();
        while let Some(done) = running.join_next().await {
            outputs.push(check(done));
        }
        self.proxy.all_delivered().await;
        outputs
    }

    /// Asserts that the permits taken from a limiter are those that its callers hold.
    /// `shares_calls` says whether several callers share a call.
    pub async fn assert_balanced(
        &mut self,
        limiter: &str,
        rate: u64,
        ledger: &Ledger,
        shares_calls: bool,
    ) {
        let (value, permits) = (
            format!("{{{limiter}}}:value"),
            format!("{{{limiter}}}:permits"),
        );
        let start = Instant::now();
        loop {
            let (left, used) = keys::left_and_used(&mut self.redis, &value, &permits).await;
            let left = left.unwrap_or(rate as i64);
            let round = &self.watch.round;
            assert_eq!(
                left + used,
                rate as i64,
                "{limiter}: {left} left, {used} used, {round}"
            );
            if explains(limiter, ledger, used, shares_calls) {
                return;
            }
            let is_late = start.elapsed() > BACKGROUND;
            assert!(
                !is_late,
                "{limiter}: {used} permits are gone, {ledger:?}, {:?}, {round}",
                warnings::of(limiter)
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether this many permits can be taken. What a dropped future took is given back, unless a
/// warning says that it is not, or it shared a call whose outcome is unknown to others that still
/// waited.
fn explains(limiter: &str, ledger: &Ledger, used: i64, shares_calls: bool) -> bool {
    let lost = warnings::of(limiter);
    let may_be_unknown = lost.calls > 0 || shares_calls && ledger.maybe_taken > 0;
    let dropped = if may_be_unknown {
        ledger.dropped
    } else {
        lost.permits
    };
    let least = ledger.held - ledger.maybe_back;
    let most = ledger.held + ledger.maybe_taken + dropped;
    (least..=most).contains(&used)
}
