//! All keys of a limiter, in the form in which both sides must be equal.

use std::{
    collections::BTreeMap,
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    dump::{self, Content, Dump, Stored},
    redisson::Version,
};

use super::{TTL_UNIT, UNIT};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Keys {
    pub(super) hash: Option<Lasting<BTreeMap<String, String>>>,
    pub(super) overall: Pool,
    pub(super) client: Pool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pool {
    pub(super) value: Option<Lasting<i64>>,
    pub(super) grants: Option<Lasting<Vec<Grant>>>,
}

/// What a key holds, and its time to live in units of 100 s.
#[derive(Clone, PartialEq)]
pub(super) struct Lasting<T> {
    pub(super) holds: T,
    pub(super) lives: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grant {
    pub(super) permits: i64,
    /// In units.
    pub(super) age: i64,
}

impl Keys {
    pub(super) fn of(dump: Dump, version: Version) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = now.as_millis() as i64;
        let dump = dump.normal();
        let hash = dump.config.map(|mut hash| {
            if !version.has_keep_alive()
                && hash.data.get("keepAliveTime").is_some_and(|it| it == "0")
            {
                hash.data.remove("keepAliveTime");
            }
            lasting(hash, |fields| fields)
        });
        let pool = |state: dump::State<dump::Member>| Pool {
            value: state
                .value
                .map(|value| lasting(value, |text| text.parse().unwrap())),
            grants: state.permits.map(|permits| {
                lasting(permits, |members| {
                    let grants = members.into_iter().map(|member| Grant::of(&member, now));
                    grants.collect()
                })
            }),
        };
        let [client] = dump.clients.try_into().unwrap();
        Self {
            hash,
            overall: pool(dump.overall),
            client: pool(client),
        }
    }

    pub(super) fn pool_mut(&mut self, is_per_client: bool) -> &mut Pool {
        if is_per_client {
            &mut self.client
        } else {
            &mut self.overall
        }
    }
}

impl Grant {
    fn of(member: &dump::Member, now: i64) -> Self {
        let Content::Grant { permits, .. } = member.content else {
            panic!("not a grant: {member:?}")
        };
        Self {
            permits: permits.into(),
            age: (now - member.score as i64).div_euclid(UNIT),
        }
    }
}

fn lasting<T, U>(stored: Stored<T>, holds: impl FnOnce(T) -> U) -> Lasting<U> {
    Lasting {
        holds: holds(stored.data),
        lives: stored.ttl.map(units_up),
    }
}

impl<T: fmt::Debug> fmt::Debug for Lasting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:?}", self.holds, self.lives)
    }
}

pub(super) fn units_up(millis: i64) -> i64 {
    (millis + TTL_UNIT - 1) / TTL_UNIT
}
