//! All keys of a limiter, in a form that both sides have.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};

use super::{CLIENTS, TTL_UNIT};
use crate::keys::Keys;
use crate::permit;
use crate::window::{Pool, Settings, Timed, Window};

/// One key: what it holds and its time to live.
type Held<T> = Option<(T, Option<i64>)>;

/// One pool's value and members.
type PoolState = (Held<i64>, Held<Vec<(i64, Vec<u8>)>>);

/// All keys, in a form that both sides have.
#[derive(Debug, PartialEq)]
pub(super) struct Keyspace {
    hash: Held<BTreeMap<String, String>>,
    overall: PoolState,
    clients: [PoolState; 2],
}

pub(super) fn of_model(window: &Window) -> Keyspace {
    let hash = held(&window.settings).map(|(settings, ttl)| {
        let Settings {
            rate,
            interval,
            rate_type,
            keep_alive,
        } = settings;
        let fields = [
            ("rate", rate),
            ("interval", interval),
            ("type", rate_type.code()),
            ("keepAliveTime", keep_alive),
        ];
        let fields = fields.map(|(field, number)| (field.to_owned(), number.to_string()));
        (BTreeMap::from(fields), ttl)
    });
    let pool = |pool: &Pool| {
        let grants = held(&pool.grants).map(|(grants, ttl)| {
            let members = grants
                .iter()
                .map(|(score, member)| (score, member.to_vec()));
            (members.collect(), ttl)
        });
        (held(&pool.value), grants)
    };
    let nothing = Pool::default();
    Keyspace {
        hash,
        overall: pool(&window.overall),
        clients: CLIENTS.map(|client| pool(window.clients.get(client).unwrap_or(&nothing))),
    }
}

impl Keyspace {
    /// The permits left plus those of all grants, and the rate. `None` unless the limiter has one
    /// pool for all clients.
    pub(super) fn balance(&self) -> Option<(i64, i64)> {
        let number = |field: &str| Some(self.hash.as_ref()?.0[field].parse().unwrap());
        let ((left, _), rate) = (self.overall.0.as_ref()?, number("rate")?);
        let members = self.overall.1.iter().flat_map(|(members, _)| members);
        let held =
            members.map(|(_, member)| permit::decode(member).map_or(0, |it| i64::from(it.1)));
        (number("type") == Some(0)).then(|| (left + held.sum::<i64>(), rate))
    }
}

fn held<T: Clone>(key: &Timed<T>) -> Held<T> {
    key.get().map(|value| (value.clone(), key.expires_at()))
}

const READ_ALL: &str = r"
local function ttl(key) return redis.call('pttl', key) end
local answer = { redis.call('hgetall', KEYS[1]), ttl(KEYS[1]) }
for i = 2, #KEYS, 2 do
  table.insert(answer, redis.call('get', KEYS[i]))
  table.insert(answer, ttl(KEYS[i]))
  table.insert(answer, redis.call('zrange', KEYS[i + 1], 0, -1, 'withscores'))
  table.insert(answer, ttl(KEYS[i + 1]))
end
return answer
";

type Members = Vec<(Vec<u8>, i64)>;
type RawPool = (Option<i64>, i64, Members, i64);

pub(super) async fn of_redis(connection: &mut MultiplexedConnection, keys: &[Keys; 2]) -> Keyspace {
    let [[name, value, a_value, permits, a_permits], b] = keys.each_ref().map(Keys::in_order);
    let mut command = redis::cmd("EVAL");
    command.arg(READ_ALL).arg(7);
    command.arg(&[name, value, permits, a_value, a_permits, b[2], b[4]]);
    let answer: Vec<Value> = command.query_async(connection).await.unwrap();
    let hash: BTreeMap<String, String> = from_redis_value(answer[0].clone()).unwrap();
    let ttl: i64 = from_redis_value(answer[1].clone()).unwrap();
    let pool = |at: usize| {
        let raw = Value::Array(answer[at..at + 4].to_vec());
        let (value, value_ttl, members, ttl): RawPool = from_redis_value(raw).unwrap();
        let members: Vec<_> = members.into_iter().map(|(m, score)| (score, m)).collect();
        (
            value.map(|value| (value, as_set(value_ttl))),
            (!members.is_empty()).then(|| (members, as_set(ttl))),
        )
    };
    Keyspace {
        hash: (!hash.is_empty()).then(|| (hash, as_set(ttl))),
        overall: pool(2),
        clients: [pool(6), pool(10)],
    }
}

/// The time to live that was set, computed from what is left of it.
pub(super) fn as_set(left: i64) -> Option<i64> {
    (left >= 0).then(|| (left + TTL_UNIT - 1) / TTL_UNIT * TTL_UNIT)
}
