//! What the real Redisson does, one fact per test, in every version that the interop tests run.
//!
//! This crate takes no part: if one of these tests fails, the harness is wrong, or Redisson has
//! changed.

mod acquire;
mod keys;
mod lost_state;
mod rates;
mod time_to_live;
mod waiting;

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use compat_tests::{
    Server,
    dump::{self, Content, Dump},
    redisson::{self, Client, Config, Rate, RateType, Version},
};
use redis::{AsyncTypedCommands, aio::MultiplexedConnection};

const MINUTE: i64 = 60_000;

/// One version's client on a server of its own.
struct Setting {
    version: Version,
    java: Client,
    redis: MultiplexedConnection,
    // Last, so that the client closes before its server stops.
    _server: Server,
}

impl Setting {
    async fn new(version: Version) -> Self {
        let server = Server::start();
        let [java] = redisson::clients(version, &server.url()).await;
        let redis = server.connection().await;
        Self {
            version,
            java,
            redis,
            _server: server,
        }
    }

    async fn dump(&mut self, name: &str) -> Dump {
        dump::read(&mut self.redis, name, &[&self.java.id]).await
    }
}

async fn each(versions: impl IntoIterator<Item = Version>, test: impl AsyncFn(Setting)) {
    for version in versions {
        println!("Redisson {version}");
        test(Setting::new(version).await).await;
    }
}

fn with(feature: fn(Version) -> bool) -> impl Iterator<Item = Version> {
    Version::ALL
        .into_iter()
        .filter(move |version| feature(*version))
}

fn value(dump: &Dump) -> Option<&str> {
    dump.overall.value.as_ref().map(|value| value.data.as_str())
}

/// The permits of each member, oldest first; empty without a zset.
fn permits(dump: &Dump) -> Vec<u32> {
    let members = dump
        .clone()
        .normal()
        .overall
        .permits
        .map_or(Vec::new(), |permits| permits.data);
    let of = |content| match content {
        Content::Grant { permits, .. } => permits,
        Content::Malformed(bytes) => panic!("a malformed member: {bytes:?}"),
    };
    members
        .into_iter()
        .map(|member| of(member.content))
        .collect()
}

fn ttls(dump: &Dump) -> [Option<i64>; 3] {
    [
        dump.config.as_ref().and_then(|config| config.ttl),
        dump.overall.value.as_ref().and_then(|value| value.ttl),
        dump.overall
            .permits
            .as_ref()
            .and_then(|permits| permits.ttl),
    ]
}

/// Whether a TTL set to `ms` just now may read so.
fn is_about(ttl: Option<i64>, ms: i64) -> bool {
    ttl.is_some_and(|ttl| (ms - 10_000..=ms).contains(&ttl))
}

fn epoch_millis(ago: i64) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970");
    i64::try_from(now.as_millis()).expect("a time of this era") - ago
}

/// A member as Redisson writes it; `random` tells members apart.
fn member(random: u8, permits: u32) -> Vec<u8> {
    [&[16], &[random; 16][..], &permits.to_le_bytes()].concat()
}
