//! A server with a client of the real Redisson, and what `doctor` says about its limiters.

use compat_tests::age::age;
use compat_tests::dump::{self, Content, Dump};
use compat_tests::redisson::{self, Client, Limiter, Rate, Version};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::support::{Cli, Ran};

pub const NAME: &str = "orders";
pub const MINUTE: i64 = 60_000;

pub struct Spoilt {
    pub version: Version,
    pub java: Client,
    pub redis: MultiplexedConnection,
    // Last, so that the client is told to close before its server goes.
    pub cli: Cli,
}

/// Runs a test with each of some versions of Redisson, one after the other, with a limiter of 10
/// permits a minute for all clients.
pub async fn each(
    versions: impl IntoIterator<Item = Version>,
    test: impl AsyncFn(&mut Spoilt, &Limiter),
) {
    for version in versions {
        println!("Redisson {version}");
        let mut spoilt = Spoilt::start(version).await;
        let limiter = spoilt.java.limiter(NAME);
        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        test(&mut spoilt, &limiter).await;
    }
}

impl Spoilt {
    pub async fn start(version: Version) -> Self {
        let cli = Cli::start();
        let [java] = redisson::clients(version, &cli.server.url()).await;
        let redis = cli.server.connection().await;
        Self {
            version,
            java,
            redis,
            cli,
        }
    }

    /// Another client of Redisson on this server.
    pub async fn client(&self, version: Version) -> Client {
        let [client] = redisson::clients(version, &self.cli.server.url()).await;
        client
    }

    /// Runs `doctor` on everything: a dry run, which must find these and write nothing, a run with
    /// `--fix`, which must mend all, and one that finds nothing any more. Each code stands behind
    /// the client that it is about, if there is one.
    pub fn mends(&self, expected: &[&str]) {
        self.mends_with("", expected);
    }

    pub fn mends_with(&self, options: &str, expected: &[&str]) {
        let before = self.everything();
        let dry = self.cli.run(&format!("doctor --json {options}"));
        assert_eq!(
            found(&dry),
            unfixed(expected),
            "Redisson {}: {dry:?}",
            self.version
        );
        assert!([1, 4].contains(&dry.code), "{dry:?}");
        assert_eq!(self.everything(), before, "a dry run writes nothing");
        let fixed = self
            .cli
            .run(&format!("doctor --json --fix --yes {options}"));
        assert!(
            found(&fixed).iter().all(|it| it.1),
            "Redisson {}: {fixed:?}",
            self.version
        );
        assert_eq!(
            (found(&fixed).len(), fixed.code),
            (expected.len(), 0),
            "{fixed:?}"
        );
        let after = self.cli.run(&format!("doctor --json {options}"));
        assert_eq!(
            (found(&after), after.code),
            (Vec::new(), 0),
            "Redisson {}: {after:?}",
            self.version
        );
    }

    /// Runs `doctor --fix`, which must find these and cannot mend them.
    pub fn cannot_mend(&self, expected: &[&str]) {
        self.changes_nothing(expected, &[1, 4]);
    }

    /// Runs `doctor --fix`, which must find these, and has nothing to mend.
    pub fn keeps(&self, expected: &[&str]) {
        self.changes_nothing(expected, &[0]);
    }

    fn changes_nothing(&self, expected: &[&str], codes: &[i32]) {
        let before = self.everything();
        let ran = self.cli.run("doctor --json --fix --yes");
        assert_eq!(
            found(&ran),
            unfixed(expected),
            "Redisson {}: {ran:?}",
            self.version
        );
        assert!(codes.contains(&ran.code), "{ran:?}");
        assert_eq!(self.everything(), before);
    }

    /// All keys, as the server would write them to another one.
    fn everything(&self) -> Vec<(String, redis::Value)> {
        let mut names: Vec<String> =
            redis::from_redis_value(self.cli.redis(&["KEYS", "*"])).unwrap();
        names.sort();
        let dump = |name: String| (name.clone(), self.cli.redis(&["DUMP", &name]));
        names.into_iter().map(dump).collect()
    }

    pub async fn dump(&mut self) -> Dump {
        dump::read(&mut self.redis, NAME, &[&self.java.id]).await
    }

    /// The value, and the permits of each member, oldest first: of all clients, or of this one.
    pub async fn state(&mut self, is_of_client: bool) -> (i64, Vec<u32>) {
        let dump = self.dump().await.normal();
        let state = match is_of_client {
            true => dump
                .clients
                .into_iter()
                .next()
                .expect("the state of the client"),
            false => dump.overall,
        };
        let members = state.permits.map_or(Vec::new(), |permits| permits.data);
        let of = |content| match content {
            Content::Grant { permits, .. } => permits,
            Content::Malformed(bytes) => panic!("a malformed member: {bytes:?}"),
        };
        let permits = members
            .into_iter()
            .map(|member| of(member.content))
            .collect();
        let value = state.value.map(|value| value.data.parse().unwrap());
        (value.expect("a value"), permits)
    }

    pub async fn age(&mut self, millis: i64) {
        let id = self.java.id.clone();
        age(&mut self.redis, NAME, &[&id], millis).await;
    }

    /// Asserts that Redisson grants `left` permits and no more, and after a window the whole rate
    /// and no more, three times.
    pub async fn goes_on(&mut self, limiter: &Limiter, left: i64, rate: i64) {
        let mut left = left;
        for window in 0..3 {
            let in_window = format!("Redisson {}, window {window}", self.version);
            assert_eq!(
                limiter.available_permits().await,
                Ok(left.max(0)),
                "{in_window}"
            );
            if left > 0 {
                assert_eq!(limiter.try_acquire(left).await, Ok(true), "{in_window}");
            }
            assert_eq!(limiter.try_acquire(1).await, Ok(false), "{in_window}");
            self.age(MINUTE).await;
            left = rate;
        }
    }
}

fn unfixed(expected: &[&str]) -> Vec<(String, bool)> {
    expected.iter().map(|it| (it.to_string(), false)).collect()
}

/// The findings of limiters, each with its code behind the client that it is about, and whether it
/// is fixed.
fn found(ran: &Ran) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for line in ran.out.lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        if object["kind"] != "limiter" {
            continue;
        }
        let client = object["client"]
            .as_str()
            .map_or(String::new(), |_| "client ".into());
        for finding in object["findings"].as_array().unwrap() {
            let code = client.clone() + finding["code"].as_str().unwrap();
            found.push((code, finding["is_fixed"] == json!(true)));
        }
    }
    found.sort();
    found
}
