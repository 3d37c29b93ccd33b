//! A limit for each of 10,000 users without a server, compared with other limiters that look up a
//! key.

use std::hint::black_box;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use benchmarks::bars::{self, Bar, Kind};
use benchmarks::{median, spread};
use governor::{Quota, RateLimiter as Governor};
use redisson_rate_limiter::{FixedWindow, Gcra, Rate, RedissonClient};
use trypema::{RateLimit, RateLimitDecision};

use crate::in_memory::{self, Work};
use crate::plan::Plan;

const USERS: usize = 10_000;

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
            Users {
                threads,
                contender,
                nanos: median(rounds.to_vec()),
                spread: spread(rounds),
            }
        }));
    }
    all
}

pub fn nanos(users: &[Users], threads: usize, contender: Contender) -> f64 {
    let mut all = users.iter();
    let found = all.find(|it| it.threads == threads && it.contender == contender);
    found.expect("it was measured").nanos
}

pub fn picture(users: &[Users]) -> String {
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
            it.nanos / nanos(users, it.threads, Contender::Governor)
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

/// What asks a limiter of this crate. The types of limiters have a trait in common, but its futures
/// are boxed.
macro_rules! asker {
    ($limiter:expr) => {{
        let limiter = $limiter;
        let asker: Asker = Arc::new(move |keys, from, times| {
            block_on(async {
                let mut granted = 0;
                for key in keys[from..].iter().take(times) {
                    let decision = limiter.check(key, 1).await.expect("a decision");
                    granted += usize::from(black_box(decision).is_granted());
                }
                granted
            })
        });
        asker
    }};
}

impl Contender {
    fn asker(self) -> Asker {
        const PLENTY: u32 = 1_000_000_000;
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let client = RedissonClient::in_memory();
        match self {
            Self::Gcra => {
                let policy = Gcra::per_minute(1_000).with_burst(PLENTY);
                asker!(client.policy_limiter(policy).expect("a policy"))
            }
            Self::FixedWindow => {
                let policy = FixedWindow::new(PLENTY, minute);
                asker!(client.policy_limiter(policy).expect("a policy"))
            }
            Self::KeyedRateLimiter => {
                let rate = Rate::overall(PLENTY.into(), second);
                asker!(client.keyed_rate_limiter("", rate).expect("a rate"))
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
                let provider = in_memory::trypema();
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
    let works = (0..threads).map(|thread| -> Work {
        let (asker, keys) = (Arc::clone(asker), Arc::clone(keys));
        Box::new(move |turn| {
            let (mut decisions, mut from) = (0, thread * USERS / threads);
            while !turn.is_over() {
                decisions += asker(&keys, from, 1_000) as u64;
                from = (from + 1_000) % USERS;
            }
            decisions
        })
    });
    in_memory::together(works.collect(), length)
}
