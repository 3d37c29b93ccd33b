//! A server with a limiter whose grants hold one permit each, as Java clients leave them, and what
//! its calls cost.

use std::sync::{Arc, atomic::AtomicBool};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use compat_tests::{
    Both, Server,
    redisson::{Client, Version},
};
use redis::{Value, aio::MultiplexedConnection, from_redis_value};
use redisson_rate_limiter::{RateLimiter, RedissonClient};
use tokio::{task::JoinSet, time::sleep};

use crate::operation::{Age, Call, INTERVAL, Operation};
use crate::together::Losing;

const NAME: &str = "growth";
/// One limiter with live grants.
const LIVE: Operation = Operation {
    name: "",
    age: Age::Live,
    call: Call::Acquire,
};
/// To fill a larger limiter takes seconds.
const LARGE: u32 = 1_000_000;

/// The longest call, in the median of some runs, and how many calls the operation took.
#[derive(Clone, Copy)]
pub struct Cost {
    pub longest: Duration,
    pub calls: usize,
}

/// What the same operation costs.
pub struct Costs {
    pub ours: Cost,
    /// `None` where Redisson has no such operation.
    pub redissons: Option<Cost>,
}

/// What audits cost while many clients are on a limiter.
pub struct Audits {
    pub clients: usize,
    pub grants: u32,
    /// Of the server's time.
    pub share: f64,
    pub longest: Duration,
}

pub struct Fixture {
    redis: MultiplexedConnection,
    java: Client,
    server: Server,
}

/// One entry of SLOWLOG.
struct Entry {
    time: Duration,
    words: Vec<Vec<u8>>,
}

/// The name of each script and the hash that the server knows it by.
const HASHES: &str = include_str!("../../../lua/sha1.txt");
/// How a script that the server does not know yet begins.
const AUDIT_SOURCES: [&str; 2] = [
    include_str!("../../../lua/audit_read.lua"),
    include_str!("../../../lua/audit_reconcile.lua"),
];
/// SLOWLOG shows at most the first 128 bytes of a word, with a remark on how many follow.
const LOGGED: usize = 60;

fn audit_hashes() -> impl Iterator<Item = &'static str> {
    let scripts = HASHES.lines().filter_map(|line| line.split_once("  "));
    scripts.filter_map(|(hash, name)| name.starts_with("audit_").then_some(hash))
}

impl Entry {
    fn is_script(&self) -> bool {
        self.words
            .first()
            .is_some_and(|word| word.to_ascii_uppercase().starts_with(b"EVAL"))
    }

    /// Whether it is a call of one of the two scripts of an audit.
    fn is_of_an_audit(&self) -> bool {
        let Some(script) = self.words.get(1) else {
            return false;
        };
        self.is_script()
            && (audit_hashes().any(|hash| script == hash.as_bytes())
                || AUDIT_SOURCES
                    .iter()
                    .any(|source| script.starts_with(&source.as_bytes()[..LOGGED])))
    }
}

impl Fixture {
    pub async fn start() -> Self {
        let both = Both::start(Version::V4_7_0).await;
        let mut fixture = Self {
            redis: both.redis.clone(),
            java: both.java,
            server: both.server,
        };
        fixture
            .run(&["CONFIG", "SET", "slowlog-max-len", "1000000"])
            .await;
        fixture
    }

    pub async fn run(&mut self, command: &[&str]) -> Value {
        let mut all = redis::Cmd::new();
        all.arg(command)
            .query_async(&mut self.redis)
            .await
            .expect("the server's answer")
    }

    /// The limiters of an operation, each with one permit left, and no others.
    async fn fill(&mut self, grants: u32, operation: &Operation) {
        self.empty().await;
        for name in names(operation.call) {
            let grants = grants / operation.call.limiters();
            self.fill_one(&name, grants, operation.age).await;
            if !operation.call.has_settings() {
                self.run(&["DEL", &name]).await;
            }
        }
        self.log_anew().await;
    }

    /// Deletes everything, and logs nothing until [`log_anew`](Self::log_anew).
    pub async fn empty(&mut self) {
        self.log_from("-1").await;
        self.run(&["FLUSHALL"]).await;
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Empties the log, and has the server log what comes.
    pub async fn log_anew(&mut self) {
        self.run(&["SLOWLOG", "RESET"]).await;
        self.log_from("10").await;
    }

    pub async fn fill_one(&mut self, name: &str, grants: u32, age: Age) {
        const CHUNK: u32 = 10_000;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time of this era");
        let (now, hour) = (now.as_millis() as i64, INTERVAL.as_millis() as i64);
        let script = "for i = 1, tonumber(ARGV[2]) do
            redis.call('zadd', KEYS[1], string.format('%d', ARGV[1] + i),
              struct.pack('Bc0I', 16, string.format('%08d%08d', math.random(10000000), ARGV[3] + i), 1))
        end";
        let permits = format!("{{{name}}}:permits");
        for first in (0..grants).step_by(CHUNK as usize) {
            let is_expired = match age {
                Age::Live => false,
                Age::HalfExpired => {
                    first + CHUNK / 2 < grants / 2 || (grants <= CHUNK && first == 0)
                }
                Age::Expired => true,
            };
            let chunk = CHUNK.min(grants - first);
            let halves = matches!(age, Age::HalfExpired) && grants <= CHUNK;
            let parts = if halves {
                vec![(true, chunk / 2), (false, chunk - chunk / 2)]
            } else {
                vec![(is_expired, chunk)]
            };
            let mut from = first;
            for (is_expired, count) in parts {
                let score = now - if is_expired { 2 * hour } else { hour / 2 } + i64::from(from);
                let [score, count_text, place] =
                    [score, i64::from(count), i64::from(from)].map(|n| n.to_string());
                self.run(&["EVAL", script, "1", &permits, &score, &count_text, &place])
                    .await;
                from += count;
            }
        }
        let (rate, interval) = ((grants + 1).to_string(), hour.to_string());
        self.run(&[
            "HSET",
            name,
            "rate",
            &rate,
            "interval",
            &interval,
            "type",
            "0",
            "keepAliveTime",
            "0",
        ])
        .await;
        self.run(&["SET", &format!("{{{name}}}:value"), "1"]).await;
    }

    /// Has the server log what takes so many microseconds; -1 for nothing.
    async fn log_from(&mut self, micros: &str) {
        self.run(&["CONFIG", "SET", "slowlog-log-slower-than", micros])
            .await;
    }

    async fn entries(&mut self) -> Vec<Entry> {
        let log = self.run(&["SLOWLOG", "GET", "-1"]).await;
        let entries: Vec<Vec<Value>> = from_redis_value(log).expect("the log");
        let entry = |fields: Vec<Value>| Entry {
            time: Duration::from_micros(from_redis_value(fields[2].clone()).expect("microseconds")),
            words: from_redis_value(fields[3].clone()).expect("a command"),
        };
        entries.into_iter().map(entry).collect()
    }

    pub async fn cost(&mut self) -> Cost {
        let entries = self.entries().await;
        let calls: Vec<_> = entries
            .iter()
            .filter(|entry| entry.is_script() && !entry.is_of_an_audit())
            .collect();
        Cost {
            longest: calls
                .iter()
                .map(|entry| entry.time)
                .max()
                .unwrap_or_default(),
            calls: calls.len(),
        }
    }

    pub async fn measure(&mut self, operation: &Operation, grants: u32) -> Costs {
        let (mut ours, mut redissons) = (Vec::new(), Vec::new());
        // The first calls load the scripts.
        let runs = if grants < LARGE { 4 } else { 1 };
        for _ in 0..runs {
            self.fill(grants, operation).await;
            let call = operation.call;
            let client = self.client(call).await;
            let limiters: Vec<RateLimiter> =
                names(call).map(|name| client.rate_limiter(&name)).collect();
            let prepared = call.prepare(&limiters[0]).await;
            if prepared.is_some() {
                self.log_anew().await;
            }
            call.ours(&client, &limiters, prepared, grants).await;
            ours.push(self.cost().await);
            drop((limiters, client));
            if call.is_redissons() {
                self.fill(grants, operation).await;
                call.redissons(&self.java.limiter(NAME), grants).await;
                redissons.push(self.cost().await);
            }
        }
        Costs {
            ours: median(ours).expect("a run"),
            redissons: median(redissons),
        }
    }

    /// A client that has not called before.
    async fn client(&self, call: Call) -> RedissonClient {
        let client = if call.loses_answer() {
            let redis = self.redis.clone();
            let next = Arc::new(AtomicBool::new(true));
            RedissonClient::builder().connection(Losing { redis, next })
        } else {
            RedissonClient::connect(&self.server.url()).await
        };
        client.expect("our client")
    }

    /// Bytes that the grants take.
    pub async fn memory(&mut self, grants: u32) -> u64 {
        self.fill(grants, &LIVE).await;
        let bytes = self
            .run(&[
                "MEMORY",
                "USAGE",
                &format!("{{{NAME}}}:permits"),
                "SAMPLES",
                "0",
            ])
            .await;
        from_redis_value(bytes).expect("bytes")
    }

    /// So many clients on a limiter, each of which it is the first time for, for as long as two
    /// audits take.
    pub async fn audits(&mut self, clients: usize, grants: u32) -> Audits {
        self.fill(grants, &LIVE).await;
        let started = Instant::now();
        let ends = started + Duration::from_micros(100) * grants * 2 + Duration::from_secs(2);
        let mut callers = JoinSet::new();
        for _ in 0..clients {
            let url = self.server.url();
            callers.spawn(async move {
                let client = RedissonClient::connect(&url).await.expect("our client");
                let limiter = client.rate_limiter(NAME);
                while Instant::now() < ends {
                    limiter.try_acquire(1).await.expect("an answer");
                    sleep(Duration::from_millis(50)).await;
                }
            });
        }
        callers.join_all().await;
        let elapsed = started.elapsed();
        let entries = self.entries().await;
        let audits: Vec<_> = entries
            .iter()
            .filter(|entry| entry.is_of_an_audit())
            .collect();
        let total: Duration = audits.iter().map(|entry| entry.time).sum();
        Audits {
            clients,
            grants,
            share: total.as_secs_f64() / elapsed.as_secs_f64(),
            longest: audits
                .iter()
                .map(|entry| entry.time)
                .max()
                .unwrap_or_default(),
        }
    }
}

/// The limiters that a call is made on.
fn names(call: Call) -> impl Iterator<Item = String> {
    (0..call.limiters()).map(|place| match place {
        0 => NAME.to_owned(),
        place => format!("{NAME}:{place}"),
    })
}

/// Of all runs but the first, where there are more.
pub fn median(mut costs: Vec<Cost>) -> Option<Cost> {
    if costs.len() > 1 {
        costs.remove(0);
    }
    costs.sort_by_key(|cost| cost.longest);
    costs.get(costs.len() / 2).copied()
}
