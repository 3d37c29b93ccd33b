//! The contents of the server's keys, read without the crate.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::collections::BTreeMap;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

/// One grant of a permits zset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub score: i64,
    pub random: Vec<u8>,
    pub permits: u32,
}

/// Each key of the server: its content as DUMP gives it, and when it expires (-1: never).
pub type Everything = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

/// All that the server holds, to be compared.
pub async fn everything(connection: &mut MultiplexedConnection) -> Everything {
    let mut everything = BTreeMap::new();
    let names: Vec<Vec<u8>> = connection.keys("*").await.unwrap();
    for name in names {
        let mut both = redis::pipe();
        both.atomic().cmd("DUMP").arg(&name);
        both.cmd("PEXPIRETIME").arg(&name);
        let content = both.query_async(connection).await.unwrap();
        everything.insert(name, content);
    }
    everything
}

/// The names of all keys, sorted.
pub async fn names(connection: &mut MultiplexedConnection) -> Vec<String> {
    let mut names: Vec<String> = connection.keys("*").await.unwrap();
    names.sort();
    names
}

/// The members of a permits zset by their scores, each of which must be well formed.
pub async fn members(connection: &mut MultiplexedConnection, key: &str) -> Vec<Member> {
    let stored: Vec<(Vec<u8>, i64)> = connection.zrange_withscores(key, 0, -1).await.unwrap();
    stored
        .into_iter()
        .map(|(bytes, score)| {
            let length = usize::from(bytes[0]);
            assert_eq!(bytes.len(), 5 + length, "{bytes:?}");
            let (random, permits) = bytes[1..].split_at(length);
            Member {
                score,
                random: random.to_vec(),
                permits: u32::from_le_bytes(permits.try_into().unwrap()),
            }
        })
        .collect()
}

/// Scores and permits of the members.
pub async fn grants(connection: &mut MultiplexedConnection, key: &str) -> Vec<(i64, u32)> {
    let members = members(connection, key).await;
    members.iter().map(|m| (m.score, m.permits)).collect()
}

/// The bytes of a member.
pub fn member(random: &[u8], permits: u32) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(random.len()).unwrap()];
    bytes.extend(random);
    bytes.extend(permits.to_le_bytes());
    bytes
}

/// The permits left and the permits of all members, at one moment.
pub async fn left_and_used(
    connection: &mut MultiplexedConnection,
    value: &str,
    permits: &str,
) -> (Option<i64>, i64) {
    let mut both = redis::pipe();
    both.atomic().get(value).zrange(permits, 0, -1);
    let (left, members): (Option<i64>, Vec<Vec<u8>>) = both.query_async(connection).await.unwrap();
    let used = members
        .iter()
        .map(|m| i64::from(u32::from_le_bytes(m[m.len() - 4..].try_into().unwrap())))
        .sum();
    (left, used)
}

/// The server's clock in ms.
pub async fn time(connection: &mut MultiplexedConnection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(connection).await.unwrap();
    seconds * 1000 + micros / 1000
}

/// Waits until the deadline of a call has passed by the server's clock, once its caller has given
/// up: a client estimates that clock to a millisecond, and a call may still be executed in the
/// millisecond of its deadline.
pub async fn deadline_passed(connection: &mut MultiplexedConnection) {
    let given_up = time(connection).await;
    while time(connection).await <= given_up + 1 {}
}

/// How often the server ran a command.
pub async fn calls(connection: &mut MultiplexedConnection, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await
        .unwrap();
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// How many errors of this code the server has answered with.
pub async fn errors(connection: &mut MultiplexedConnection, code: &str) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("errorstats")
        .query_async(connection)
        .await
        .unwrap();
    let start = format!("errorstat_{code}:count=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

/// Asserts that the key's time to live was set to `millis` not before `since` by the server's
/// clock.
pub async fn assert_lives_for(
    connection: &mut MultiplexedConnection,
    key: &str,
    millis: i64,
    since: i64,
) {
    let expires: i64 = redis::cmd("PEXPIRETIME")
        .arg(key)
        .query_async(connection)
        .await
        .unwrap();
    let until = time(connection).await;
    let set = expires - millis;
    assert!(
        (since..=until).contains(&set),
        "{key}: set {} ms after, {} ms before",
        set - since,
        until - set
    );
}
