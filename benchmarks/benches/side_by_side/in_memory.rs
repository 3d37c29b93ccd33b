//! Decisions without a server, compared with other limiters that work in memory.

use std::{
    fmt,
    hint::black_box,
    num::NonZero,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use benchmarks::median;
use governor::{Quota, RateLimiter as Governor};
use leaky_bucket::RateLimiter as LeakyBucket;
use redisson_rate_limiter::{KeyedRateLimiter, Rate, RedissonClient};
use trypema::{
    BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize,
    local::LocalRateLimiterProvider,
};

use crate::{plan::Plan, workload::Traffic};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limiter {
    ThisCrate,
    ThisCrateKeyed,
    Governor,
    GovernorKeyed,
    LeakyBucket,
    Trypema,
}

const LIMITERS: [Limiter; 6] = [
    Limiter::ThisCrate,
    Limiter::ThisCrateKeyed,
    Limiter::Governor,
    Limiter::GovernorKeyed,
    Limiter::LeakyBucket,
    Limiter::Trypema,
];

/// Who asks whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    One,
    TwoOnOneLimiter,
    TwoOnTheirOwn,
}

/// One line of the table.
pub struct InMemory {
    pub traffic: Traffic,
    pub threads: Threads,
    pub limiter: Limiter,
    /// Time over decisions, of both threads together where there are two.
    pub nanos: f64,
}

impl Limiter {
    /// governor's limiter that does as much: it looks up a key, or does not.
    pub fn governor(self) -> Self {
        match self {
            Self::ThisCrate | Self::Governor | Self::LeakyBucket => Self::Governor,
            Self::ThisCrateKeyed | Self::GovernorKeyed | Self::Trypema => Self::GovernorKeyed,
        }
    }
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThisCrate => "this crate, RateLimiter",
            Self::ThisCrateKeyed => "this crate, KeyedRateLimiter",
            Self::Governor => "governor",
            Self::GovernorKeyed => "governor, keyed",
            Self::LeakyBucket => "leaky-bucket",
            Self::Trypema => "trypema, local",
        })
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "1 thread",
            Self::TwoOnOneLimiter => "2 threads on one limiter",
            Self::TwoOnTheirOwn => "2 threads, a limiter each",
        })
    }
}

pub fn measure(plan: &Plan) -> Vec<InMemory> {
    let mut lines = Vec::new();
    for traffic in [Traffic::Granted, Traffic::Denied] {
        for threads in [
            Threads::One,
            Threads::TwoOnOneLimiter,
            Threads::TwoOnTheirOwn,
        ] {
            let mut turns = LIMITERS.map(|limiter| (limiter, Vec::new()));
            for _ in 0..plan.rounds {
                for (limiter, turns) in &mut turns {
                    turns.push(turn(*limiter, threads, traffic, plan.in_memory));
                }
            }
            lines.extend(turns.map(|(limiter, turns)| InMemory {
                traffic,
                threads,
                limiter,
                nanos: median(turns),
            }));
        }
    }
    lines
}

/// Permits, and the window they are for.
fn rate(traffic: Traffic) -> (u32, Duration) {
    match traffic {
        // So short that grants expire as others are made, and more than anybody asks for.
        Traffic::Granted => (1_000_000, Duration::from_millis(10)),
        Traffic::Denied => (100, Duration::from_secs(1)),
    }
}

/// Makes a contender's limiters anew; answers the ns of a decision.
fn turn(limiter: Limiter, threads: Threads, traffic: Traffic, length: Duration) -> f64 {
    let (rate, window) = rate(traffic);
    match limiter {
        Limiter::ThisCrate => {
            let client = RedissonClient::in_memory();
            run(threads, length, |name| {
                let limiter = client.rate_limiter(name);
                let rate = Rate::overall(rate.into(), window);
                Box::new(move |turn| block_on(ask_this_crate(limiter, rate, turn)))
            })
        }
        Limiter::ThisCrateKeyed => {
            let client = RedissonClient::in_memory();
            let rate = Rate::overall(rate.into(), window);
            let limiter = client.keyed_rate_limiter("", rate).expect("a rate");
            run(threads, length, |name| {
                let (limiter, name) = (limiter.clone(), name.to_owned());
                Box::new(move |turn| block_on(ask_for_key(limiter, name, turn)))
            })
        }
        Limiter::Governor => {
            let governors = [(); 2].map(|()| Arc::new(Governor::direct(quota(rate, window))));
            run(threads, length, |name| {
                let governor = Arc::clone(&governors[usize::from(name == NAMES[1])]);
                Box::new(move |turn| turn.count(|| governor.check().is_ok()))
            })
        }
        Limiter::GovernorKeyed => {
            let governor = Arc::new(Governor::keyed(quota(rate, window)));
            run(threads, length, |name| {
                let (governor, name) = (Arc::clone(&governor), name.to_owned());
                Box::new(move |turn| turn.count(|| governor.check_key(&name).is_ok()))
            })
        }
        Limiter::LeakyBucket => {
            let bucket = || {
                LeakyBucket::builder()
                    .max(rate as usize)
                    .initial(rate as usize)
                    .refill(rate as usize)
                    .interval(window)
                    .build()
            };
            // It has no names.
            let buckets = [(); 2].map(|()| Arc::new(bucket()));
            run(threads, length, |name| {
                let bucket = Arc::clone(&buckets[usize::from(name == NAMES[1])]);
                Box::new(move |turn| block_on(async { turn.count(|| bucket.try_acquire(1)) }))
            })
        }
        Limiter::Trypema => {
            let provider = trypema();
            let rate = RateLimit::per_second_or_panic(f64::from(rate) / window.as_secs_f64());
            run(threads, length, |name| {
                let (provider, name) = (Arc::clone(&provider), name.to_owned());
                Box::new(move |turn| {
                    turn.count(|| {
                        let decision = provider.absolute().inc(&name, &rate, 1);
                        matches!(decision, RateLimitDecision::Allowed)
                    })
                })
            })
        }
    }
}

pub fn trypema() -> Arc<LocalRateLimiterProvider> {
    LocalRateLimiterProvider::builder()
        .window_size(WindowSize::seconds_or_panic(1)) // the shortest it has
        .bucket_size(BucketSize::milliseconds_or_panic(10))
        .disable_cleanup()
        .build()
        .expect("trypema's limiters")
}

fn quota(rate: u32, window: Duration) -> Quota {
    let burst = NonZero::new(rate).expect("a rate");
    let quota = Quota::with_period(window / rate).expect("a time for each permit");
    quota.allow_burst(burst)
}

async fn ask_for_key(limiter: KeyedRateLimiter, key: String, turn: &Turn) -> u64 {
    let mut decisions = 0;
    while !turn.is_over() {
        for _ in 0..Turn::DECISIONS_BETWEEN_LOOKS {
            black_box(limiter.try_acquire(&key, 1).await.expect("a decision"));
        }
        decisions += Turn::DECISIONS_BETWEEN_LOOKS;
    }
    decisions
}

async fn ask_this_crate(
    limiter: redisson_rate_limiter::RateLimiter,
    rate: Rate,
    turn: &Turn,
) -> u64 {
    limiter.try_set_rate(rate).await.expect("a rate");
    let mut decisions = 0;
    while !turn.is_over() {
        for _ in 0..Turn::DECISIONS_BETWEEN_LOOKS {
            black_box(limiter.try_acquire(1).await.expect("a decision"));
        }
        decisions += Turn::DECISIONS_BETWEEN_LOOKS;
    }
    decisions
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Ends what the threads do.
pub struct Turn(AtomicBool);

impl Turn {
    const DECISIONS_BETWEEN_LOOKS: u64 = 100;

    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn count(&self, mut check: impl FnMut() -> bool) -> u64 {
        let mut decisions = 0;
        while !self.is_over() {
            for _ in 0..Self::DECISIONS_BETWEEN_LOOKS {
                black_box(check());
            }
            decisions += Self::DECISIONS_BETWEEN_LOOKS;
        }
        decisions
    }
}

/// The limiters' names.
const NAMES: [&str; 2] = ["orders:api", "orders:web"];

/// Works until its turn is over, and returns how many decisions it got.
pub type Work = Box<dyn FnOnce(&Turn) -> u64 + Send>;

fn run(threads: Threads, length: Duration, work: impl Fn(&str) -> Work) -> f64 {
    let names: &[&str] = match threads {
        Threads::One => &NAMES[..1],
        Threads::TwoOnOneLimiter => &[NAMES[0]; 2],
        Threads::TwoOnTheirOwn => &NAMES,
    };
    together(names.iter().map(|name| work(name)).collect(), length)
}

/// Lets each thread work until the turn is over. Answers the time over the decisions of all, in ns.
pub fn together(works: Vec<Work>, length: Duration) -> f64 {
    let turn = Turn(AtomicBool::new(false));
    let ready = Barrier::new(works.len() + 1);
    thread::scope(|scope| {
        let (turn, ready) = (&turn, &ready);
        let working: Vec<_> = works
            .into_iter()
            .map(|work| {
                scope.spawn(move || {
                    ready.wait();
                    work(turn)
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        thread::sleep(length);
        turn.0.store(true, Ordering::Relaxed);
        let decisions = working
            .into_iter()
            .map(|thread| thread.join().expect("a thread"));
        let decisions: u64 = decisions.sum();
        start.elapsed().as_nanos() as f64 / decisions as f64
    })
}
