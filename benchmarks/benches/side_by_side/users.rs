//! A limit for each of 10,000 users without a server, compared with other limiters that look up a
//! key.

use std::hint::black_box;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use benchmarks::bars::{self, Bar, Kind};
use benchmarks::median;
use governor::{Quota, RateLimiter as Governor};
use redisson_rate_limiter::{
    FixedWindow, Gcra, KeyedRateLimiter, Policy, PolicyLimiter, Rate, RedissonClient,
};
use trypema::local::LocalRateLimiterProvider;
use trypema::{BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use crate::plan::Plan;

pub const USERS: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    Gcra,
    FixedWindow,
    KeyedRateLimiter,
    Governor,
    Trypema,
}

const CONTENDERS: [Contender; 5] = [
    Contender::Gcra,
    Contender::FixedWindow,
    Contender::KeyedRateLimiter,
    Contender::Governor,
    Contender::Trypema,
];

pub struct Users {
    pub threads: usize,
    pub contender: Contender,
    /// Time over decisions, of all threads together.
    pub nanos: f64,
    /// Half of the range of the rounds, as a part of that.
    pub spread: f64,
}

impl Contender {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gcra => "this crate, Gcra",
            Self::FixedWindow => "this crate, FixedWindow",
            Self::KeyedRateLimiter => "this crate, KeyedRateLimiter",
            Self::Governor => "governor, keyed",
            Self::Trypema => "trypema, local",
        }
    }

    pub fn is_ours(self) -> bool {
        !matches!(self, Self::Governor | Self::Trypema)
    }
}

pub fn measure(plan: &Plan) -> Vec<Users> {
    let keys: Arc<[String]> = (0..USERS).map(|user| format!("user:{user}")).collect();
    let mut all = Vec::new();
    for threads in [1, 2] {
        let askers = CONTENDERS.map(|contender| (contender, contender.asker(), Vec::new()));
        let mut askers = askers.to_vec();
        for _ in 0..=plan.rounds {
            for (_, asker, rounds) in &mut askers {
                rounds.push(round(asker, &keys, threads, plan.in_memory));
            }
        }
        all.extend(askers.into_iter().map(|(contender, _, rounds)| {
            let rounds = &rounds[1..]; // the first one creates the limiters
            let nanos = median(rounds.to_vec());
            let (least, most) = rounds
                .iter()
                .fold((f64::MAX, 0.0_f64), |(least, most), &it| {
                    (least.min(it), most.max(it))
                });
            Users {
                threads,
                contender,
                nanos,
                spread: (most - least) / 2.0 / nanos,
            }
        }));
    }
    all
}

pub fn picture(users: &[Users]) -> String {
    let governor = |threads| {
        let mut all = users.iter();
        let found = all.find(|it| it.threads == threads && it.contender == Contender::Governor);
        found.expect("it was measured").nanos
    };
    let bars = users.iter().map(|it| Bar {
        name: match it.threads {
            1 => format!("{}, 1 thread", it.contender.name()),
            threads => format!("{}, {threads} threads", it.contender.name()),
        },
        kind: match it.contender.is_ours() {
            true => Kind::Ours,
            false => Kind::Peer,
        },
        value: it.nanos,
        text: format!(
            "{:.0} ns · {:.2}×",
            it.nanos,
            it.nanos / governor(it.threads)
        ),
    });
    let bars: Vec<Bar> = bars.collect();
    bars::draw(
        "In memory, a limit for each of 10,000 users",
        "ns a decision, shorter is better · beside governor",
        &bars,
    )
}

/// Asks for so many keys from a place on, and answers how many were granted.
type Asker = Arc<dyn Fn(&[String], usize, usize) -> usize + Send + Sync>;

impl Contender {
    fn asker(self) -> Asker {
        const PLENTY: u32 = 1_000_000_000;
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let client = RedissonClient::in_memory();
        match self {
            Self::Gcra => {
                let policy = Gcra::per_minute(1_000).with_burst(PLENTY);
                of_policy(client.policy_limiter(policy).expect("a policy"))
            }
            Self::FixedWindow => {
                let policy = FixedWindow::new(PLENTY, minute);
                of_policy(client.policy_limiter(policy).expect("a policy"))
            }
            Self::KeyedRateLimiter => {
                let rate = Rate::overall(PLENTY.into(), second);
                let limiter = client.keyed_rate_limiter("", rate).expect("a rate");
                Arc::new(move |keys, from, times| block_on(ask_keyed(&limiter, keys, from, times)))
            }
            Self::Governor => {
                let burst = NonZero::new(PLENTY).expect("more than 0");
                let governor = Governor::keyed(Quota::per_second(burst));
                Arc::new(move |keys, from, times| {
                    let keys = keys[from..].iter().take(times);
                    keys.filter(|key| black_box(governor.check_key(*key)).is_ok())
                        .count()
                })
            }
            Self::Trypema => {
                let provider = LocalRateLimiterProvider::builder()
                    .window_size(WindowSize::seconds_or_panic(1)) // the shortest it has
                    .bucket_size(BucketSize::milliseconds_or_panic(10))
                    .disable_cleanup()
                    .build()
                    .expect("trypema's limiters");
                let rate = RateLimit::per_second_or_panic(f64::from(PLENTY));
                Arc::new(move |keys, from, times| {
                    let keys = keys[from..].iter().take(times);
                    keys.filter(|key| {
                        let decision = provider.absolute().inc(key, &rate, 1);
                        matches!(decision, RateLimitDecision::Allowed)
                    })
                    .count()
                })
            }
        }
    }
}

fn of_policy<P: Policy>(limiter: PolicyLimiter<P>) -> Asker {
    Arc::new(move |keys, from, times| block_on(ask_policy(&limiter, keys, from, times)))
}

async fn ask_policy<P: Policy>(
    limiter: &PolicyLimiter<P>,
    keys: &[String],
    from: usize,
    times: usize,
) -> usize {
    let mut granted = 0;
    for key in keys[from..].iter().take(times) {
        let decision = limiter.check(key, 1).await.expect("a decision");
        granted += usize::from(black_box(decision).is_granted());
    }
    granted
}

async fn ask_keyed(
    limiter: &KeyedRateLimiter,
    keys: &[String],
    from: usize,
    times: usize,
) -> usize {
    let mut granted = 0;
    for key in keys[from..].iter().take(times) {
        let decision = limiter.check(key, 1).await.expect("a decision");
        granted += usize::from(black_box(decision).is_granted());
    }
    granted
}

/// Nothing waits in memory.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("a decision in memory waits"),
    }
}

/// The ns of a decision while so many threads ask.
fn round(asker: &Asker, keys: &Arc<[String]>, threads: usize, length: Duration) -> f64 {
    let is_over = AtomicBool::new(false);
    let ready = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let (is_over, ready) = (&is_over, &ready);
        let asking: Vec<_> = (0..threads)
            .map(|thread| {
                let (asker, keys) = (Arc::clone(asker), Arc::clone(keys));
                scope.spawn(move || {
                    ready.wait();
                    let (mut decisions, mut from) = (0, thread * USERS / threads);
                    while !is_over.load(Ordering::Relaxed) {
                        decisions += asker(&keys, from, 1_000);
                        from = (from + 1_000) % USERS;
                    }
                    decisions
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        thread::sleep(length);
        is_over.store(true, Ordering::Relaxed);
        let decisions: usize = asking
            .into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .sum();
        start.elapsed().as_nanos() as f64 / decisions as f64
    })
}
