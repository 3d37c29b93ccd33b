//! What the keys of a rate limiter hold, raw.
//!
//! Key names and members are read here by the format alone, without the crate under test, so that
//! it can be held against this.

use std::{collections::BTreeMap, fmt};

use redis::{FromRedisValue, Value, aio::ConnectionLike};

/// All keys of one limiter. `M` is how the members of a permits zset stand: [`RawMember`], or
/// [`Member`] to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump<M = RawMember> {
    /// The hash under the limiter's name.
    pub config: Option<Stored<BTreeMap<String, String>>>,
    /// The state that all clients share.
    pub overall: State<M>,
    /// The state of each client asked for, in the order asked for.
    pub clients: Vec<State<M>>,
}

/// A value key and its permits zset.
#[derive(Clone, Debug, PartialEq)]
pub struct State<M = RawMember> {
    pub value: Option<Stored<String>>,
    /// In the order of their scores.
    pub permits: Option<Stored<Vec<M>>>,
}

/// A key that exists.
#[derive(Clone, PartialEq)]
pub struct Stored<T> {
    pub data: T,
    /// What PTTL says, in ms; `None` where the key does not expire.
    pub ttl: Option<i64>,
}

/// A member of a permits zset as it is.
#[derive(Clone, PartialEq)]
pub struct RawMember {
    pub score: f64,
    pub bytes: Vec<u8>,
}

/// A member without its random bytes.
#[derive(Clone, PartialEq)]
pub struct Member {
    pub score: f64,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    Grant { random_len: usize, permits: u32 },
    Malformed(Vec<u8>),
}

/// Reads all keys of the limiter `name` (as mapped by a name mapper) at one moment.
pub async fn read(connection: &mut impl ConnectionLike, name: &str, client_ids: &[&str]) -> Dump {
    let mut transaction = redis::pipe();
    transaction
        .atomic()
        .cmd("PTTL")
        .arg(name)
        .cmd("HGETALL")
        .arg(name);
    let suffixes = suffixes(client_ids);
    for suffix in &suffixes {
        let value = key(name, "value") + suffix;
        let permits = key(name, "permits") + suffix;
        transaction.cmd("PTTL").arg(&value).cmd("GET").arg(&value);
        transaction
            .cmd("PTTL")
            .arg(&permits)
            .cmd("ZRANGE")
            .arg(&permits)
            .arg(&[0, -1])
            .arg("WITHSCORES");
    }
    let answers: Vec<Value> = transaction
        .query_async(connection)
        .await
        .expect("the keys of a limiter");

    let mut answers = answers.into_iter();
    let config = stored(&mut answers);
    let mut states = suffixes.iter().map(|_| State {
        value: stored(&mut answers),
        permits: stored(&mut answers).map(|Stored { data, ttl }| Stored {
            data: members(data),
            ttl,
        }),
    });
    let overall = states.next().expect("the state that all clients share");
    Dump {
        config,
        overall,
        clients: states.collect(),
    }
}

/// The names of all keys: the hash's, then value and permits that all share, then those of each
/// client.
pub fn keys(name: &str, client_ids: &[&str]) -> Vec<String> {
    let mut keys = vec![name.to_owned()];
    for suffix in suffixes(client_ids) {
        keys.extend(["value", "permits"].map(|kind| key(name, kind) + &suffix));
    }
    keys
}

fn suffixes(client_ids: &[&str]) -> Vec<String> {
    let clients = client_ids.iter().map(|id| format!(":{id}"));
    [String::new()].into_iter().chain(clients).collect()
}

/// The name of a sibling key of the hash: braces make the name the hash tag, unless it contains
/// some.
fn key(name: &str, suffix: &str) -> String {
    if name.contains('{') {
        format!("{name}:{suffix}")
    } else {
        format!("{{{name}}}:{suffix}")
    }
}

/// Takes a key's PTTL and its content.
fn stored<T: FromRedisValue>(answers: &mut impl Iterator<Item = Value>) -> Option<Stored<T>> {
    let ttl: i64 = take(answers);
    let content = answers.next().expect("a content for each PTTL");
    let ttl = match ttl {
        -2 => return None,
        -1 => None,
        ttl => Some(ttl),
    };
    Some(Stored {
        data: T::from_redis_value(content).expect("a key of its kind"),
        ttl,
    })
}

fn take<T: FromRedisValue>(answers: &mut impl Iterator<Item = Value>) -> T {
    T::from_redis_value(answers.next().expect("an answer a command"))
        .expect("an answer of its kind")
}

fn members(data: Vec<(Vec<u8>, f64)>) -> Vec<RawMember> {
    data.into_iter()
        .map(|(bytes, score)| RawMember { score, bytes })
        .collect()
}

impl Dump {
    /// Without the random bytes, and members of one score in an order that does not depend on them.
    pub fn normal(self) -> Dump<Member> {
        Dump {
            config: self.config,
            overall: self.overall.normal(),
            clients: self.clients.into_iter().map(State::normal).collect(),
        }
    }
}

impl Dump<Member> {
    /// Without what depends on when it was written.
    pub fn without_scores(mut self) -> Self {
        for state in [&mut self.overall].into_iter().chain(&mut self.clients) {
            for member in state.permits.iter_mut().flat_map(|it| &mut it.data) {
                member.score = 0.0;
            }
        }
        self
    }
}

impl State {
    fn normal(self) -> State<Member> {
        let permits = self.permits.map(|Stored { data, ttl }| {
            let mut data: Vec<Member> = data.into_iter().map(RawMember::normal).collect();
            data.sort_by(|a, b| {
                a.score
                    .total_cmp(&b.score)
                    .then_with(|| a.content.cmp(&b.content))
            });
            Stored { data, ttl }
        });
        State {
            value: self.value,
            permits,
        }
    }
}

impl RawMember {
    pub fn normal(self) -> Member {
        let random_len = self.bytes.first().map_or(0, |&len| len.into());
        let content = match self.bytes.get(1 + random_len..).map(<[u8; 4]>::try_from) {
            Some(Ok(permits)) => Content::Grant {
                random_len,
                permits: u32::from_le_bytes(permits),
            },
            _ => Content::Malformed(self.bytes),
        };
        Member {
            score: self.score,
            content,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Stored<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.fmt(f)?;
        match self.ttl {
            Some(ttl) => write!(f, " for {ttl} ms"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for RawMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.bytes.escape_ascii(), self.score)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Grant {
                random_len,
                permits,
            } => {
                write!(
                    f,
                    "{permits} permits ({random_len} random bytes) at {}",
                    self.score
                )
            }
            Content::Malformed(bytes) => {
                write!(f, "malformed {} at {}", bytes.escape_ascii(), self.score)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_well_formed_when_its_first_byte_gives_its_length() {
        let content = |bytes: &[u8]| {
            RawMember {
                score: 1.0,
                bytes: bytes.to_vec(),
            }
            .normal()
            .content
        };
        assert_eq!(
            content(b"\x02ab\x03\0\0\x01"),
            Content::Grant {
                random_len: 2,
                permits: 0x0100_0003
            }
        );
        for malformed in [&b""[..], b"\x02", b"\x02ab\x03\0\0", b"\x02ab\x03\0\0\0\0"] {
            assert_eq!(content(malformed), Content::Malformed(malformed.to_vec()));
        }
    }
}
