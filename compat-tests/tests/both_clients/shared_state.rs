//! Both clients on one limiter: each works with exactly what the other left.

mod per_client;
mod permits;
mod settings;
mod time_to_live;

use std::{collections::BTreeMap, time::Duration};

use compat_tests::{
    Both, Peer,
    dump::{Content, Dump, RawMember, State},
    redisson::{self, Config, Version},
};
use redis::AsyncTypedCommands;
use redisson_rate_limiter::{Rate, TimeToLive};

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_MS: i64 = 60_000;

fn with(feature: fn(Version) -> bool) -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().filter(move |it| feature(*it))
}

fn members(state: &State<RawMember>) -> &[RawMember] {
    state.permits.as_ref().map_or(&[], |permits| &permits.data)
}

fn value(state: &State<RawMember>) -> Option<&str> {
    state.value.as_ref().map(|value| value.data.as_str())
}

fn permits(member: &RawMember) -> u32 {
    let (_, permits) = member.bytes.split_last_chunk().unwrap();
    u32::from_le_bytes(*permits)
}

/// Of each member, oldest first.
fn granted(dump: &Dump) -> Vec<u32> {
    members(&dump.overall).iter().map(permits).collect()
}

/// Of hash, value and permits.
fn ttls(dump: &Dump) -> [Option<i64>; 3] {
    let state = &dump.overall;
    [
        dump.config.as_ref().and_then(|hash| hash.ttl),
        state.value.as_ref().and_then(|value| value.ttl),
        state.permits.as_ref().and_then(|permits| permits.ttl),
    ]
}

/// Whether a TTL of so many minutes, set just now, may read so.
fn is_minutes(ttl: Option<i64>, minutes: i64) -> bool {
    ttl.is_some_and(|ttl| ((minutes - 1) * MINUTE_MS + 1..=minutes * MINUTE_MS).contains(&ttl))
}

async fn server_millis(both: &mut Both) -> f64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME")
        .query_async(&mut both.redis)
        .await
        .unwrap();
    (seconds * 1000 + micros / 1000) as f64
}
