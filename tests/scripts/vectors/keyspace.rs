//! The keys of a case: each with its type, its value, and its time to live in ms where it has one.
//!
//! A grant of a sorted set is `{"score", "id", "permits"}`, any other member `{"score", "bytes"}`.
//! The grants `{"grants": [first, last], "score", "step", "permits"}` have their numbers in 16
//! digits as ids, and the scores score + number * step.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Value, from_redis_value};
use serde_json::{Map, Value as Json, json};

use super::form;
use super::json::{bytes, from_bytes, hex, member};
use super::moment::{Moment, as_set, at_start};

/// All keys of the server, with what is left of their times to live.
pub struct Keyspace {
    keys: BTreeMap<String, (Content, Option<i64>)>,
    start: i64,
}

#[derive(Debug, PartialEq)]
enum Content {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(Vec<Vec<u8>>),
    /// Scores and members in the server's order.
    Zset(Vec<(i64, Vec<u8>)>),
}

pub async fn write(connection: &mut MultiplexedConnection, keys: &Map<String, Json>, start: i64) {
    for (name, key) in keys {
        match content(key, start) {
            Content::Text(text) => run(connection, "SET", name, [text]).await,
            Content::Hash(fields) => {
                let words = fields.into_iter().flat_map(|(field, value)| [field, value]);
                run(connection, "HSET", name, words).await;
            }
            Content::List(items) => run(connection, "RPUSH", name, items).await,
            Content::Zset(members) => {
                let words = members.into_iter();
                let words = words.flat_map(|(score, member)| [digits(score), member]);
                run(connection, "ZADD", name, words).await;
            }
        }
        if let Some(time_to_live) = key.get("pttl") {
            let end = start + time_to_live.as_i64().unwrap();
            run(connection, "PEXPIREAT", name, [digits(end)]).await;
        }
    }
}

async fn run(
    connection: &mut MultiplexedConnection,
    command: &str,
    key: &str,
    words: impl IntoIterator<Item = Vec<u8>>,
) {
    let mut command = redis::cmd(command);
    command.arg(key);
    for word in words {
        command.arg(word);
    }
    command.exec_async(connection).await.unwrap();
}

fn digits(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// What a case says that a key holds.
fn content(key: &Json, start: i64) -> Content {
    let value = &key["value"];
    let items = || value.as_array().unwrap_or_else(|| panic!("no list: {key}"));
    match key["type"].as_str() {
        Some("string") => Content::Text(bytes(value, start)),
        Some("hash") => {
            let fields = value.as_object().unwrap().iter();
            let fields =
                fields.map(|(name, value)| (name.as_bytes().to_vec(), bytes(value, start)));
            Content::Hash(fields.collect())
        }
        Some("list") => Content::List(items().iter().map(|item| bytes(item, start)).collect()),
        Some("zset") => {
            let mut members: Vec<_> = items()
                .iter()
                .flat_map(|item| scored(item, start))
                .collect();
            members.sort();
            Content::Zset(members)
        }
        _ => panic!("no type: {key}"),
    }
}

fn scored(item: &Json, start: i64) -> Vec<(i64, Vec<u8>)> {
    let Some([first, last]) = item.get("grants").and_then(range) else {
        return vec![(at_start(&item["score"], start), stored(item, start))];
    };
    (first..=last)
        .map(|number| numbered(item, number, start))
        .collect()
}

/// The bytes of a member.
fn stored(item: &Json, start: i64) -> Vec<u8> {
    match item.get("bytes") {
        Some(other) => bytes(other, start),
        None => member(item),
    }
}

fn range(range: &Json) -> Option<[i64; 2]> {
    Some([range[0].as_i64()?, range[1].as_i64()?])
}

fn numbered(item: &Json, number: i64, start: i64) -> (i64, Vec<u8>) {
    let id = hex(format!("{number:016}").as_bytes());
    let step = item["step"].as_i64().unwrap();
    let member = member(&json!({ "id": id, "permits": item["permits"] }));
    (at_start(&item["score"], start) + number * step, member)
}

impl Keyspace {
    pub async fn read(connection: &mut MultiplexedConnection, start: i64) -> Self {
        let names: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query_async(connection)
            .await
            .unwrap();
        let mut keys = BTreeMap::new();
        for name in names {
            let kind: String = ask(connection, &["TYPE", &name]).await;
            let content = match kind.as_str() {
                "string" => Content::Text(ask(connection, &["GET", &name]).await),
                "hash" => Content::Hash(ask(connection, &["HGETALL", &name]).await),
                "list" => Content::List(ask(connection, &["LRANGE", &name, "0", "-1"]).await),
                _ => {
                    let all = ["ZRANGE", &name, "0", "-1", "WITHSCORES"];
                    let members: Vec<(Vec<u8>, i64)> = ask(connection, &all).await;
                    Content::Zset(members.into_iter().map(|(it, score)| (score, it)).collect())
                }
            };
            let left: i64 = ask(connection, &["PTTL", &name]).await;
            keys.insert(name, (content, (left >= 0).then_some(left)));
        }
        Self { keys, start }
    }

    /// Whether these are the case's keys.
    pub fn check(&self, expected: &Json, moment: &Moment) -> Result<(), String> {
        let expected = expected
            .as_object()
            .ok_or("it does not say which keys are left")?;
        let names: Vec<_> = self.keys.keys().collect();
        let mut expected_names: Vec<_> = expected.keys().collect();
        expected_names.sort();
        if names != expected_names {
            return Err(format!(
                "the keys are {names:?} and should be {expected_names:?}"
            ));
        }
        for (name, (held, left)) in &self.keys {
            let key = &expected[name];
            let is_same = match held {
                Content::Zset(members) => self.has_members(members, key, moment),
                held => *held == content(key, self.start),
            };
            if !is_same {
                return Err(format!("{name} holds {held:?} and should hold {key}"));
            }
            let lives = match (left, key.get("pttl").and_then(Json::as_i64)) {
                (Some(left), Some(set)) => moment.is_left(set, *left),
                (left, set) => *left == set,
            };
            if !lives {
                return Err(format!("{name} lives for {left:?} ms: {key}"));
            }
        }
        Ok(())
    }

    /// The members in the server's order; a score may be the time of the call.
    fn has_members(&self, members: &[(i64, Vec<u8>)], key: &Json, moment: &Moment) -> bool {
        let items = key["value"].as_array().unwrap().iter();
        let expected: Vec<_> = items
            .flat_map(|item| match item["score"].get("now") {
                Some(_) => vec![(item["score"].clone(), stored(item, self.start))],
                None => { scored(item, self.start).into_iter() }
                    .map(|(score, member)| (score.into(), member))
                    .collect(),
            })
            .collect();
        key["type"] == "zset" && members.len() == expected.len() && {
            members.iter().zip(&expected)
        }
        .all(|((score, member), (at, expected))| member == expected && moment.is(at, *score as f64))
    }

    /// How a case writes these keys, from what they were in a second, later run.
    pub fn describe(&self, second: &Self, case: &Json, moment: &Moment) -> Json {
        let (before, recorded) = (&case["before"], &case["after"]);
        let names = self.keys.iter().zip(&second.keys);
        let keys = names.map(|((name, (content, left)), (other_name, (other, _)))| {
            assert_eq!(name, other_name);
            let is_zset = matches!(content, Content::Zset(_));
            assert!(is_zset || content == other, "{name} depends on the time");
            let (kind, value) = match (content, other) {
                (Content::Text(text), _) => ("string", from_bytes(text)),
                (Content::Hash(fields), _) => {
                    let fields = fields.iter();
                    let fields = fields.map(|(field, value)| {
                        let field = String::from_utf8_lossy(field).into_owned();
                        (field, from_bytes(value))
                    });
                    ("hash", Json::Object(fields.collect()))
                }
                (Content::List(items), _) => {
                    ("list", items.iter().map(|item| from_bytes(item)).collect())
                }
                (Content::Zset(members), Content::Zset(others)) => {
                    let members = members.iter().zip(others.iter().map(|(score, _)| score));
                    let members: Vec<_> = members
                        .map(|((score, member), other)| {
                            (self.score(*score, *other, second), member)
                        })
                        .collect();
                    ("zset", self.members(&members, &before[name]))
                }
                other => panic!("two runs differ: {other:?}"),
            };
            let mut key = json!({ "type": kind, "value": value });
            if let Some(left) = left {
                // On a slow machine more time may have passed than `as_set` rounds up.
                let set = recorded[name]["pttl"].as_i64();
                let set = set.filter(|set| moment.is_left(*set, *left));
                key["pttl"] = set.unwrap_or_else(|| as_set(*left)).into();
            }
            (name.clone(), key)
        });
        Json::Object(keys.collect())
    }

    /// A score as a case writes it.
    fn score(&self, first: i64, second: i64, later: &Self) -> Json {
        if first == second {
            return first.into();
        }
        let offset = first - self.start;
        match offset == second - later.start {
            true => form("start", offset),
            false => form("now", 0),
        }
    }

    /// Members as a case writes them: numbered grants that are left of some in one row as a row.
    fn members(&self, members: &[(Json, &Vec<u8>)], before: &Json) -> Json {
        let rows = before["value"].as_array().cloned().unwrap_or_default();
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|item| item.get("grants").is_some())
            .collect();
        let mut items: Vec<Json> = Vec::new();
        for (score, member) in members {
            let number = rows.iter().find_map(|row| {
                let [first, last] = range(&row["grants"])?;
                let id = std::str::from_utf8(member.get(1..17)?).ok()?;
                let number = id.parse().ok().filter(|it| (first..=last).contains(it))?;
                let (at, expected) = numbered(row, number, self.start);
                (expected == **member && at == at_start(score, self.start)).then_some(())?;
                Some((row, number))
            });
            let Some((row, number)) = number else {
                items.push(one_member(score, member));
                continue;
            };
            match items.last_mut() {
                Some(last)
                    if last["grants"][1] == number - 1
                        && ["score", "step", "permits"]
                            .iter()
                            .all(|it| last[it] == row[it]) =>
                {
                    last["grants"][1] = number.into();
                }
                _ => {
                    let mut row = row.clone();
                    row["grants"] = json!([number, number]);
                    items.push(row);
                }
            }
        }
        items.into()
    }
}

fn one_member(score: &Json, member: &[u8]) -> Json {
    let length = member.first().copied().unwrap_or_default();
    if member.len() != 5 + usize::from(length) {
        return json!({ "score": score, "bytes": from_bytes(member) });
    }
    let (id, permits) = member[1..].split_at(length.into());
    let permits = u32::from_le_bytes(permits.try_into().unwrap());
    json!({ "score": score, "id": hex(id), "permits": permits })
}

async fn ask<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    let value: Value = command.arg(words).query_async(connection).await.unwrap();
    from_redis_value(value).unwrap()
}
