//! The content of the keys of a case, in the model and in Redis.

use std::collections::BTreeMap;

use proptest::prelude::*;
use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};

use crate::window::Timed;

/// The shortest time to live, in ms.
pub(in super::super) const TTL_UNIT: i64 = 200_000;

/// When a case starts, in ms.
pub(in super::super) const START: i64 = 5_000 * TTL_UNIT;

/// Each key's content and time to live.
pub(in super::super) type Keyspace = BTreeMap<String, (Content, Option<i64>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Content {
    /// Each byte is a character.
    Text(String),
    Hash(BTreeMap<String, String>),
    Zset(Vec<(i64, Vec<u8>)>),
    /// The scores of a zset, if the model does not keep the names of its members.
    Scores(Vec<i64>),
}

impl Content {
    pub(in super::super) fn of_bytes(bytes: &[u8]) -> Self {
        Self::Text(bytes.iter().copied().map(char::from).collect())
    }
}

/// Adds a key if the state has it.
pub(in super::super) fn show_key<T>(
    keyspace: &mut Keyspace,
    key: String,
    held: &Timed<T>,
    content: impl FnOnce(&T) -> Content,
) {
    if let Some(value) = held.get() {
        keyspace.insert(key, (content(value), held.expires_at()));
    }
}

/// Times to live that a peer may have set.
pub(in super::super) fn times_to_live() -> BoxedStrategy<Option<i64>> {
    prop_oneof![4 => (1..9_i64).prop_map(|n| Some(n * TTL_UNIT)), 1 => Just(None)].boxed()
}

/// Computes the time to live that was set from what is left of it.
pub(in super::super) fn as_set(left: i64) -> Option<i64> {
    (left >= 0).then(|| (left + TTL_UNIT - 1) / TTL_UNIT * TTL_UNIT)
}

/// Each key, its type, what is left of its time to live, and its content. Scripts run alone on this
/// server.
const READ_ALL: &str = r"
local answer = {}
for _, key in ipairs(redis.call('keys', '*')) do
  local kind, value = redis.call('type', key).ok, nil
  if kind == 'string' then
    value = redis.call('get', key)
  elseif kind == 'hash' then
    value = redis.call('hgetall', key)
  else
    value = redis.call('zrange', key, 0, -1, 'withscores')
  end
  table.insert(answer, { key, kind, redis.call('pttl', key), value })
end
return answer
";

/// All that the server holds, with what is left of the times to live.
pub(super) async fn read_all(connection: &mut MultiplexedConnection) -> Keyspace {
    let mut command = redis::cmd("EVAL");
    command.arg(READ_ALL).arg(0);
    let answer: Vec<(String, String, i64, Value)> = command.query_async(connection).await.unwrap();
    let keys = answer.into_iter().map(|(key, kind, left, value)| {
        let content = match kind.as_str() {
            "string" => Content::of_bytes(&from_redis_value::<Vec<u8>>(value).unwrap()),
            "hash" => Content::Hash(from_redis_value(value).unwrap()),
            "zset" => {
                let members: Vec<(Vec<u8>, i64)> = from_redis_value(value).unwrap();
                Content::Zset(
                    members
                        .into_iter()
                        .map(|(member, score)| (score, member))
                        .collect(),
                )
            }
            other => panic!("a {other}"),
        };
        (key, (content, (left >= 0).then_some(left)))
    });
    keys.collect()
}
