//! The largest call of each kind: the most callers, limiters, units and periods that this crate
//! accepts at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Value, from_redis_value};
use redisson_rate_limiter::{
    Charge, Clock, FixedWindow, LeakyBucket, PenaltyTokenBucket, Policy, PolicyLimiter,
    QuotaBucket, Rate, RedissonClient, Result, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::fixture::{Cost, Fixture, median};
use crate::operation::{Age, INTERVAL};

/// A server that is busy with thousands of callers answers the last of them late.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const RUNS: usize = 4;
/// The lengths of the periods of three versions of a service.
const PERIODS: [Duration; 3] = [
    Duration::from_millis(1_000),
    Duration::from_millis(998),
    Duration::from_millis(996),
];
/// The limiters of the largest joint decision.
const JOINT: u32 = 32;
/// The callers whose requests one call carries, and as many that wait for the next one.
const CALLERS: u32 = 2 * 4_096;

/// What an operation takes, and a name for it.
pub type Row = (&'static str, Cost);

/// What the server's own deletion of an expired limiter takes.
pub struct Expiry {
    pub grants: u32,
    pub in_the_foreground: Duration,
    pub in_the_background: Duration,
}

/// Each caller asks once, for 1 or 2 permits in turn, so that no two requests form a run.
async fn unequal<F: Future<Output = Result<()>> + Send + 'static>(
    callers: u32,
    ask: impl Fn(u32, u32) -> F,
) {
    let mut asking = JoinSet::new();
    for caller in 0..callers {
        asking.spawn(ask(caller, 1 + caller % 2));
    }
    for answer in asking.join_all().await {
        answer.expect("our call");
    }
}

/// By many callers on one target.
async fn by_many<P: Policy>(client: &RedissonClient, callers: u32, policy: P) {
    let limiter = client.policy_limiter(policy).expect("a limiter");
    unequal(callers, |_, cost| {
        let limiter: PolicyLimiter<P> = limiter.clone();
        async move {
            limiter
                .check_without_waiting("target", cost)
                .await
                .map(drop)
        }
    })
    .await;
}

fn charge(charge: Result<Charge>) -> Charge {
    charge.expect("a charge")
}

/// A counter of the most periods, each this long.
fn counter_of(period: Duration) -> SlidingWindowCounter {
    SlidingWindowCounter::new(9_000, 500 * period).with_period(period)
}

/// All kinds of limiters, each as large as they may be together.
fn of_all_kinds(client: &RedissonClient) -> Vec<Charge> {
    let limiters = [
        limiter(client, FixedWindow::new(99, INTERVAL)),
        limiter(client, TokenBucket::per_second(9).with_capacity(99)),
        limiter(client, QuotaBucket::new(9, INTERVAL).with_capacity(99)),
        limiter(client, LeakyBucket::new(9, INTERVAL).with_capacity(99)),
        limiter(
            client,
            PenaltyTokenBucket::new(9, INTERVAL).with_capacity(99),
        ),
    ];
    let mut charges: Vec<_> = (0..)
        .zip(limiters)
        .map(|(place, limiter)| charge(limiter.charge(&format!("kind:{place}"), 1)))
        .collect();
    let log = limiter(client, SlidingWindowLog::new(20_000, INTERVAL));
    charges.push(charge(log.charge("log", 120)));
    let counter = limiter(client, counter_of(PERIODS[0]));
    charges.push(charge(counter.charge("counter", 1)));
    for place in charges.len() as u32..JOINT {
        charges.push(charge(client.rate_limiter(&name(place)).charge(1)));
    }
    charges
}

fn limiter(
    client: &RedissonClient,
    policy: impl Policy,
) -> Box<dyn redisson_rate_limiter::Chargeable> {
    Box::new(client.policy_limiter(policy).expect("a limiter"))
}

fn name(place: u32) -> String {
    format!("largest:{place}")
}

impl Fixture {
    pub async fn largest(&mut self) -> Vec<Row> {
        let empty = async |_: &mut Self| {};
        let limiters = async |fixture: &mut Self, each: u32, age: Age| {
            for place in 0..64 {
                fixture.fill_one(&name(place), each, age).await;
            }
        };
        vec![
            (
                "8,192 unequal requests on one limiter",
                self.repeated(empty, async |client| {
                    let limiter = client.rate_limiter(&name(0));
                    limiter
                        .set_rate(Rate::overall(9_000, INTERVAL))
                        .await
                        .expect("a rate");
                    unequal(CALLERS, |_, permits| {
                        let limiter = limiter.clone();
                        async move { limiter.try_acquire(permits).await.map(drop) }
                    })
                    .await;
                })
                .await,
            ),
            (
                "512 unequal requests on each of 64 limiters",
                self.repeated(
                    async |fixture| limiters(fixture, 100, Age::Live).await,
                    async |client| {
                        let all: Vec<_> =
                            (0..64).map(|it| client.rate_limiter(&name(it))).collect();
                        unequal(64 * 512, |caller, permits| {
                            let limiter = all[caller as usize / 2 % 64].clone();
                            async move { limiter.try_acquire(permits).await.map(drop) }
                        })
                        .await;
                    },
                )
                .await,
            ),
            (
                "joint decision by 32 RRateLimiters with 100 grants each",
                self.repeated(
                    async |fixture| limiters(fixture, 100, Age::HalfExpired).await,
                    async |client| {
                        let charges =
                            (0..JOINT).map(|it| charge(client.rate_limiter(&name(it)).charge(1)));
                        client.check_all(charges).await.map(drop).expect("our call");
                    },
                )
                .await,
            ),
            (
                "joint decision for 2,000 expired permits of each of 32 RRateLimiters",
                self.repeated(
                    async |fixture| limiters(fixture, 4_000, Age::HalfExpired).await,
                    async |client| {
                        let charges = (0..JOINT)
                            .map(|it| charge(client.rate_limiter(&name(it)).charge(2_000)));
                        client.check_all(charges).await.map(drop).expect("our call");
                    },
                )
                .await,
            ),
            (
                "joint decision by 32 limiters of all kinds",
                self.repeated(
                    async |fixture| {
                        limiters(fixture, 100, Age::HalfExpired).await;
                        fixture.fill_counters("counter").await;
                    },
                    async |client| {
                        client
                            .check_all(of_all_kinds(client))
                            .await
                            .map(drop)
                            .expect("our call");
                    },
                )
                .await,
            ),
            (
                "SlidingWindowLog, cost 500, 20,000 members expired",
                self.repeated(
                    async |fixture| fixture.fill_log("target").await,
                    async |client| {
                        let log = client.policy_limiter(SlidingWindowLog::new(20_000, INTERVAL));
                        log.expect("a limiter")
                            .check("target", 500)
                            .await
                            .map(drop)
                            .expect("our call");
                    },
                )
                .await,
            ),
            (
                "SlidingWindowCounter, 500 periods and 1,000 counters of other lengths",
                self.repeated(
                    async |fixture| fixture.fill_counters("counter").await,
                    async |client| {
                        limiter(client, counter_of(PERIODS[0]))
                            .check("counter", 1)
                            .await
                            .map(drop)
                            .expect("our call");
                    },
                )
                .await,
            ),
            (
                "SlidingWindowLog, 2,048 callers",
                self.repeated(empty, async |client| {
                    by_many(client, 2_048, SlidingWindowLog::new(2_000, INTERVAL)).await
                })
                .await,
            ),
            (
                "SlidingWindowCounter, 8,192 callers",
                self.repeated(empty, async |client| {
                    by_many(
                        client,
                        CALLERS,
                        SlidingWindowCounter::new(9_000, 500 * INTERVAL).with_period(INTERVAL),
                    )
                    .await;
                })
                .await,
            ),
            (
                "FixedWindow, 8,192 callers",
                self.repeated(empty, async |client| {
                    by_many(client, CALLERS, FixedWindow::new(9_000, INTERVAL)).await
                })
                .await,
            ),
            (
                "TokenBucket, 8,192 callers",
                self.repeated(empty, async |client| {
                    by_many(
                        client,
                        CALLERS,
                        TokenBucket::per_second(9).with_capacity(9_000),
                    )
                    .await
                })
                .await,
            ),
            (
                "QuotaBucket, 8,192 callers",
                self.repeated(empty, async |client| {
                    by_many(
                        client,
                        CALLERS,
                        QuotaBucket::new(9, INTERVAL).with_capacity(9_000),
                    )
                    .await
                })
                .await,
            ),
            (
                "LeakyBucket, 8,192 callers",
                self.repeated(empty, async |client| {
                    by_many(
                        client,
                        CALLERS,
                        LeakyBucket::new(9, INTERVAL).with_capacity(9_000),
                    )
                    .await
                })
                .await,
            ),
            (
                "PenaltyTokenBucket, 8,192 callers",
                self.repeated(empty, async |client| {
                    by_many(
                        client,
                        CALLERS,
                        PenaltyTokenBucket::new(9, INTERVAL).with_capacity(9_000),
                    )
                    .await
                })
                .await,
            ),
        ]
    }

    /// The longest call of what a new client does after these keys were set up, in the median of
    /// some runs.
    async fn repeated(
        &mut self,
        set_up: impl AsyncFn(&mut Self),
        run: impl AsyncFn(&RedissonClient),
    ) -> Cost {
        let mut costs = Vec::new();
        for _ in 0..RUNS {
            self.empty().await;
            set_up(self).await;
            let builder = RedissonClient::builder().response_timeout(RESPONSE_TIMEOUT);
            let client = builder.connect(&self.url()).await.expect("our client");
            self.log_anew().await;
            run(&client).await;
            costs.push(self.cost().await);
        }
        median(costs).expect("a run")
    }

    /// The counters of all periods of three versions of a service, whose periods differ in length.
    async fn fill_counters(&mut self, key: &str) {
        let end = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = end.expect("a time after 1970").as_millis() as i64;
        let now = Arc::new(AtomicI64::new(0));
        let clock = Arc::clone(&now);
        let builder = RedissonClient::builder()
            .clock(Clock::from_fn(move || clock.load(Ordering::Relaxed)))
            .response_timeout(RESPONSE_TIMEOUT);
        let client = builder.connect(&self.url()).await.expect("our client");
        let versions = PERIODS.map(|period| limiter(&client, counter_of(period)));
        for second in 1..=500 {
            now.store(end - (500 - second) * 1_000, Ordering::Relaxed);
            for version in &versions {
                let decision = version.check(key, 1).await.expect("our call");
                assert!(decision.is_granted());
            }
        }
    }

    /// A log of as many members as it has at most, all of which have expired.
    async fn fill_log(&mut self, key: &str) {
        let script = "for i = 1, 20000 do redis.call('zadd', KEYS[1], i, struct.pack('>c16I4', KEYS[1] .. '0123456789abcdef', i)) end";
        self.run(&["EVAL", script, "1", key]).await;
    }

    /// How long the server is busy when a limiter with so many grants expires.
    pub async fn expiry(&mut self, grants: u32) -> Expiry {
        let mut times = Vec::new();
        for lazy in ["no", "yes"] {
            self.run(&["CONFIG", "SET", "lazyfree-lazy-expire", lazy])
                .await;
            self.empty().await;
            self.fill_one(&name(0), grants, Age::Live).await;
            self.run(&["CONFIG", "SET", "latency-monitor-threshold", "1"])
                .await;
            self.run(&["LATENCY", "RESET"]).await;
            self.run(&["PEXPIRE", "{largest:0}:permits", "1"]).await;
            while from_redis_value::<i64>(self.run(&["DBSIZE"]).await).expect("a number") > 2 {
                sleep(Duration::from_millis(10)).await;
            }
            let events: Vec<Vec<Value>> =
                from_redis_value(self.run(&["LATENCY", "LATEST"]).await).expect("the events");
            let of_expiry = events.into_iter().find_map(|event| {
                let name: String = from_redis_value(event[0].clone()).ok()?;
                let millis: u64 = from_redis_value(event[3].clone()).ok()?;
                (name == "expire-del").then_some(millis)
            });
            times.push(Duration::from_millis(of_expiry.unwrap_or(0)));
        }
        self.run(&["CONFIG", "SET", "lazyfree-lazy-expire", "no"])
            .await;
        Expiry {
            grants,
            in_the_foreground: times[0],
            in_the_background: times[1],
        }
    }
}
