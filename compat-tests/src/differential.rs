//! The same random steps, by Redisson on one limiter and by this crate on another: the same
//! results, and after each step the same keys, fields, members, order and times to live. Nothing
//! may differ but what is named here and in docs/redisson.md's table of differences. Where a step
//! meets one of these, the test knows what this crate does instead, demands exactly that, and lets
//! Redisson go on from there:
//!
//! - `ReleaseTakesOldest`: release takes the permits out of the oldest live grants too, and drops
//!   those that are over.
//! - `AvailablePermitsReads`: available_permits writes nothing.
//! - `LeftoversGo`: try_set_rate that creates the limiter clears what an earlier one left.
//! - `MissingConfigIsNone`: no zeros for the rate of a limiter that is missing.
//! - `ZeroPermitsRefused`: 0 permits are an invalid argument.
//! - `LoweredRateSettles`: where the rate is lowered below what is in use, the permits left go
//!   below zero, so that grants that are over free permits only when less than the new rate is in
//!   use; available_permits is 0 meanwhile. Redisson then goes on from there as this crate does.
//!
//! and what only old versions do, otherwise than Redisson 4.7.0 as well:
//!
//! - `NoTimeToLiveCopied`: 3.17.0 does not copy the time to live of the hash to value and permits.
//! - `PerClientResetsOverall`: up to 3.21.3, set_rate to a rate per client resets the state that
//!   all share, not the caller's.
//!
//! Up to 3.36.0 there is no field keepAliveTime: for these, 0 and none are the same here.
//!
//! Not among the steps: a lost value or zset, malformed members and repetitions (each has a test of
//! its own), numbers that this crate refuses, and a release where the rate was lowered and some
//! grants are over already.
//!
//! No step waits. Both limiters' grants are aged by whole units, of which an interval has some; the
//! real time of a sequence and the second by which every grant is aged at once, so that no two have
//! one score, stay far below a unit. Each time to live set in a sequence is another multiple of 100
//! s, so rounding up tells which one a key has.
//!
//! Where they differ otherwise, the report has the sequence, and Redisson goes on as well.

mod clients;
mod differences;
mod keys;
mod steps;

use std::collections::BTreeMap;

use redis::{Script, aio::MultiplexedConnection};
use redisson_rate_limiter::{RateLimiter, RedissonClient};

use crate::{
    Server,
    age::age,
    dump,
    redisson::{self, Client, Limiter, Version},
};
use clients::{Outcome, by_java, by_rust};
pub use differences::Difference;
use differences::expected_difference;
use keys::Keys;
use steps::{Step, Steps};

const STEPS_A_SEQUENCE: usize = 60;

/// What intervals and ages are multiples of, in ms.
const UNIT: i64 = 1_000_000;
/// What a grant is aged by at once.
const TICK: i64 = 1000;
/// What times to live are multiples of, in ms.
const TTL_UNIT: i64 = 100_000;

/// What came of each kind of step, by its name.
#[derive(Debug, Default)]
pub struct Report {
    pub steps: BTreeMap<String, Counted>,
    /// Each step that was not as expected: the sequence up to it, and both sides.
    pub unexpected: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub taken: usize,
    /// How often it differed as this crate does on purpose.
    pub known: BTreeMap<Difference, usize>,
    /// How often it differed otherwise.
    pub unexpected: usize,
}

/// Has one version take about so many random steps, which `as_of` can take.
pub async fn play(version: Version, as_of: Version, first_seed: u64, steps: usize) -> Report {
    let mut two = TwoLimiters::start(version).await;
    let mut report = Report::default();
    for sequence in 0..steps.div_ceil(STEPS_A_SEQUENCE) as u64 {
        let seed = first_seed.wrapping_add(sequence);
        two.run_sequence(seed, as_of, &mut report).await;
    }
    report
}

/// Redisson's limiter and this crate's, both of one client id, so that their keys have the same
/// names but for the limiter's.
struct TwoLimiters {
    version: Version,
    java: Client,
    rust: RedissonClient,
    redis: MultiplexedConnection,
    _server: Server,
}

struct Sequence<'a> {
    two: &'a mut TwoLimiters,
    names: [String; 2],
    java: Limiter,
    rust: RateLimiter,
    keys: Keys,
}

impl TwoLimiters {
    async fn start(version: Version) -> Self {
        let server = Server::start();
        let [java] = redisson::clients(version, &server.url()).await;
        let rust = RedissonClient::builder()
            .client_id(&java.id)
            .connect(&server.url())
            .await
            .unwrap();
        Self {
            version,
            java,
            rust,
            redis: server.connection().await,
            _server: server,
        }
    }

    async fn run_sequence(&mut self, seed: u64, as_of: Version, report: &mut Report) {
        let mut steps = Steps::new(seed, as_of);
        let names = [format!("java:{seed}"), format!("rust:{seed}")];
        let java = self.java.limiter(&names[0]);
        let rust = self.rust.rate_limiter(&names[1]);
        let keys = Keys::default();
        let version = self.version;
        let mut sequence = Sequence {
            two: self,
            names,
            java,
            rust,
            keys,
        };
        let mut taken = Vec::new();
        for _ in 0..STEPS_A_SEQUENCE {
            let step = steps.next(&sequence.keys);
            let text = format!("{step:?}");
            let name = text.split('(').next().unwrap_or_default();
            let counted = report.steps.entry(name.to_owned()).or_default();
            taken.push(text);
            counted.taken += 1;
            match sequence.take(&step).await {
                Ok(None) => {}
                Ok(Some(difference)) => *counted.known.entry(difference).or_default() += 1,
                Err(failure) => {
                    counted.unexpected += 1;
                    report.unexpected.push(format!(
                        "Redisson {version}, DIFFERENTIAL_SEED={seed}\n{}\n{failure}",
                        taken.join("\n")
                    ));
                    sequence.let_java_go_on_from_rust().await;
                }
            }
        }
        sequence.two.forget(&sequence.names).await;
    }

    fn keys(&self, name: &str) -> Vec<String> {
        dump::keys(name, &[&self.java.id])
    }

    async fn forget(&mut self, names: &[String; 2]) {
        let keys: Vec<String> = names.iter().flat_map(|name| self.keys(name)).collect();
        let _: i64 = redis::cmd("DEL")
            .arg(keys)
            .query_async(&mut self.redis)
            .await
            .unwrap();
    }

    async fn read(&self, name: &str) -> Keys {
        let dump = dump::read(&mut self.redis.clone(), name, &[&self.java.id]).await;
        Keys::of(dump, self.version)
    }
}

impl Sequence<'_> {
    /// Takes one step on both sides, and says in what they rightly differ.
    async fn take(&mut self, step: &Step) -> Result<Option<Difference>, String> {
        let before = self.keys.clone();
        if self.take_by_test(step).await {
            let (java, rust) = self.read().await;
            self.keys = rust.clone();
            return same((&Outcome::Done, &java), (&Outcome::Done, &rust)).map(|()| None);
        }
        let (java_outcome, rust_outcome) =
            tokio::join!(by_java(&self.java, step), by_rust(&self.rust, step));
        if rust_outcome == Outcome::Is(true) && step.asks_for_permits() {
            self.age(TICK).await;
        }
        let (java, rust) = self.read().await;
        self.keys = rust.clone();

        let version = self.two.version;
        let Some((difference, outcome, keys)) =
            expected_difference(version, step, &before, &java_outcome, &java)
        else {
            return same((&java_outcome, &java), (&rust_outcome, &rust)).map(|()| None);
        };
        same((&outcome, &keys), (&rust_outcome, &rust))
            .map_err(|failure| format!("{difference:?}\n{failure}"))?;
        self.let_java_go_on_from_rust().await;
        Ok(Some(difference))
    }

    async fn read(&self) -> (Keys, Keys) {
        let [java, rust] = &self.names;
        tokio::join!(self.two.read(java), self.two.read(rust))
    }

    /// The steps that neither client takes.
    async fn take_by_test(&mut self, step: &Step) -> bool {
        let command = match step {
            Step::Pass(units) => {
                self.age(units * UNIT).await;
                return true;
            }
            Step::HashExpires => ["DEL"].as_slice(),
            Step::HashIsOld => &["HDEL", "keepAliveTime"],
            _ => return false,
        };
        for name in &self.names {
            let _: i64 = redis::cmd(command[0])
                .arg(name)
                .arg(&command[1..])
                .query_async(&mut self.two.redis)
                .await
                .unwrap();
        }
        true
    }

    async fn age(&mut self, millis: i64) {
        let id = self.two.java.id.as_str();
        for name in &self.names {
            age(&mut self.two.redis, name, &[id], millis).await;
        }
    }

    async fn let_java_go_on_from_rust(&mut self) {
        let script = Script::new(
            "local half = #KEYS / 2
             for i = 1, half do
               if redis.call('copy', KEYS[half + i], KEYS[i], 'replace') == 0 then
                 redis.call('del', KEYS[i])
               end
             end",
        );
        let mut call = script.prepare_invoke();
        for key in self.names.iter().flat_map(|name| self.two.keys(name)) {
            call.key(key);
        }
        let () = call.invoke_async(&mut self.two.redis).await.unwrap();
    }
}

fn same(expected: (&Outcome, &Keys), rust: (&Outcome, &Keys)) -> Result<(), String> {
    if expected == rust {
        return Ok(());
    }
    Err(format!("expected {expected:#?}\nbut it is {rust:#?}"))
}
