//! RRateLimiter as one of several limiters, or created by its first request.

use std::sync::Arc;

use crate::error::Result;
use crate::failure_policy::LocalShare;
use crate::keys::Keys;
use crate::policies::answer::{Answer, Outcome};
use crate::quota::Quota;
use crate::rate::{Rate, RateType};
use crate::window::{At, Expired, NotInitialized, Reading, SetUp, Settings, Window};

/// The permits of an RRateLimiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedRate {
    pub(super) client_id: Arc<str>,
    /// The settings that a request brings, and what it does with stored ones; `None` if requests
    /// fail unless the limiter has settings.
    set_up: Option<SetUp>,
    /// The settings that this client has last read of a limiter that keeps its own.
    known: Option<Settings>,
}

impl SharedRate {
    /// The name of its function in `lua/joint.lua`.
    pub(crate) const NAME: &str = "shared_rate";

    /// A limiter whose requests bring no settings: they fail while it has none.
    pub(crate) fn as_it_is(client_id: &str, known: Option<Settings>) -> Self {
        Self {
            client_id: client_id.into(),
            set_up: None,
            known,
        }
    }

    /// A limiter that gets this rate with each request. If the rate has no keep alive, the limiter
    /// expires an interval after its last request.
    pub(crate) fn owned(client_id: Arc<str>, rate: Rate) -> Result<Self> {
        let set_up = SetUp::expiring(Settings::valid(rate)?);
        Ok(Self::with_set_up(client_id, set_up))
    }

    /// A limiter that gets this rate if it is missing, and otherwise keeps its own.
    pub(crate) fn where_missing(client_id: Arc<str>, rate: Rate) -> Result<Self> {
        let set_up = SetUp::where_missing(Settings::valid(rate)?);
        Ok(Self::with_set_up(client_id, set_up))
    }

    /// Sets the settings that this client has last read of the limiter.
    pub(crate) fn with_known(self, known: Option<Settings>) -> Self {
        Self { known, ..self }
    }

    /// A limiter whose requests bring these settings.
    pub(crate) fn with_set_up(client_id: Arc<str>, set_up: SetUp) -> Self {
        Self {
            client_id,
            set_up: Some(set_up),
            known: None,
        }
    }

    /// The settings by which a request replaces the limiter's; `None` if it leaves them.
    fn replacing(&self) -> Option<Settings> {
        let set_up = self.set_up.and_then(SetUp::replacing);
        set_up.map(|it| it.settings)
    }

    /// The limiter's settings, or if they are unknown, those that it would be created with.
    fn settings(&self) -> Option<Settings> {
        let given = self.set_up.map(|it| it.settings);
        self.replacing().or(self.known).or(given)
    }

    /// The settings that a request brings; `None` if it brings none.
    pub(crate) fn set_up(&self) -> Option<SetUp> {
        self.set_up
    }

    /// The largest cost that can be granted; `None` if it depends on the limiter's settings.
    pub(crate) fn limit(&self) -> Option<i64> {
        self.replacing().map(|it| it.rate)
    }

    pub(super) fn quota(&self) -> Quota {
        self.settings().map_or_else(Quota::default, Settings::quota)
    }

    /// In the script's order.
    pub(super) fn keys(&self, target: &str) -> Vec<String> {
        let keys = Keys::new(target, Arc::clone(&self.client_id));
        keys.in_order().map(str::to_owned).to_vec()
    }

    /// In the script's order.
    pub(super) fn numbers(&self) -> Vec<i64> {
        let Some(set_up) = self.set_up else {
            return vec![0; 5];
        };
        let Settings {
            rate,
            interval,
            rate_type,
            keep_alive,
        } = set_up.settings;
        vec![
            rate,
            interval,
            rate_type.code(),
            keep_alive,
            set_up.existing.code(),
        ]
    }

    /// What a request of `cost` gets if these expired grants are counted.
    pub(super) fn evaluate(
        &self,
        window: &Window,
        at: At,
        cost: i64,
        expired: Expired,
    ) -> Result<Answer, NotInitialized> {
        let reading = window.read(at, &self.client_id, self.set_up, cost, expired)?;
        Ok(answer_of(&reading, cost <= reading.available, cost))
    }

    /// What one request of `cost` gets, as the script of a joint decision has decided.
    pub(super) fn evaluate_reply(&self, numbers: &[i64], cost: i64) -> Option<Answer> {
        let &[
            limit,
            fits,
            available,
            until_more,
            reset,
            window,
            _,
            _,
            until_fits,
        ] = numbers
        else {
            return None;
        };
        let reading = Reading {
            rate: limit,
            available,
            interval: window,
            until_fits,
            until_more,
            until_all: reset,
        };
        Some(answer_of(&reading, fits == 1 && cost <= limit, cost))
    }

    /// The settings that the limiter of this reply keeps, if they are not those that the request
    /// would have created it with.
    pub(super) fn left_settings(&self, numbers: &[i64]) -> Option<Settings> {
        let &[rate, _, _, _, _, interval, rate_type, keep_alive, _] = numbers else {
            return None;
        };
        let stored = Settings {
            rate,
            interval,
            rate_type: RateType::of_code(rate_type)?,
            keep_alive,
        };
        self.set_up?.leaves(stored)
    }

    pub(super) fn share_of(&self, share: LocalShare) -> ShareOf {
        let Some(settings) = self.settings() else {
            return ShareOf::Unknown;
        };
        ShareOf::Rate {
            client_id: Arc::clone(&self.client_id),
            set_up: share.of(settings),
        }
    }
}

/// What decides a client's share of a limit.
#[derive(Debug)]
pub(crate) enum ShareOf {
    /// The same algorithm with the same numbers: a request costs its cost times the number of
    /// clients.
    Costs,
    /// RRateLimiter's window with these settings.
    Rate { client_id: Arc<str>, set_up: SetUp },
    /// The limit is unknown.
    Unknown,
}

fn answer_of(reading: &Reading, granted: bool, cost: i64) -> Answer {
    // A copy of a call that was granted finds fewer permits than its cost.
    let taken = if granted && cost <= reading.available {
        cost
    } else {
        0
    };
    let remaining = (reading.available - taken).max(0);
    Answer {
        outcome: Outcome::of(granted),
        limit: reading.rate,
        window: reading.interval,
        remaining,
        retry_after: reading.until_fits,
        available_in: match remaining {
            0 => reading.until_more,
            _ => 0,
        },
        // The permits of this request are the last to come back.
        reset: if granted {
            reading.interval
        } else {
            reading.until_all
        },
        delay: 0,
        mark: 0, // a grant is found by its score
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::permit;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, TTL_UNIT, compare, show_key, timed, times_to_live,
    };
    use crate::policies::history_tests::{Versioned, units};
    use crate::rate::RateType;
    use crate::window::{Existing, Grants, Pool, Timed, any_existing};

    const CLIENT: &str = "client";

    fn settings() -> impl Strategy<Value = Settings> {
        let rate_type = prop_oneof![3 => Just(RateType::Overall), 1 => Just(RateType::PerClient)];
        let keep_alive = prop_oneof![1 => Just(0), 2 => (1..9_i64).prop_map(|n| n * TTL_UNIT)];
        // Also longer than the keep alive of other settings.
        let interval = prop_oneof![3 => 1..4_000_i64, 1 => (1..9_i64).prop_map(|n| n * TTL_UNIT)];
        (1..20_i64, interval, rate_type, keep_alive).prop_map(
            |(rate, interval, rate_type, keep_alive)| Settings {
                rate,
                interval,
                rate_type,
                keep_alive,
            },
        )
    }

    fn pools() -> impl Strategy<Value = Pool> {
        let call_id = prop_oneof![
            prop::collection::vec(any::<u8>(), 16),
            prop::collection::vec(any::<u8>(), 8)
        ];
        let member = (0..4_000_i64, call_id, 0..6_u32)
            .prop_map(|(age, call_id, permits)| (START - age, permit::encode(&call_id, permits)));
        let members = prop_oneof![
            6 => prop::collection::vec(member.clone(), 0..4),
            2 => prop::collection::vec(member, 4..14),
        ];
        (prop::option::of(-3..30_i64), members, times_to_live()).prop_map(
            |(value, members, time_to_live)| {
                let mut grants = Grants::new();
                for (score, member) in &members {
                    grants.insert_member(*score, member);
                }
                Pool {
                    value: value.map_or_else(Timed::default, |value| timed(value, time_to_live)),
                    grants: if members.is_empty() {
                        Timed::default()
                    } else {
                        timed(grants, time_to_live)
                    },
                }
            },
        )
    }

    impl Compared for SharedRate {
        fn policies() -> BoxedStrategy<Self> {
            let set_up = (settings(), any_existing()).prop_map(|(settings, existing)| SetUp {
                existing: match existing {
                    // The keep alive that represents none is short, and Redis would count it down.
                    Existing::Replaced if settings.keep_alive == 0 => {
                        Existing::ReplacedWithKeepAlive
                    }
                    existing => existing,
                },
                settings,
            });
            prop::option::weighted(0.8, set_up)
                .prop_map(|set_up| SharedRate {
                    client_id: CLIENT.into(),
                    set_up,
                    known: None,
                })
                .boxed()
        }

        fn states() -> BoxedStrategy<Window> {
            let settings = prop::option::weighted(0.9, (settings(), times_to_live()));
            (settings, pools(), pools())
                .prop_map(|(settings, overall, of_client)| Window {
                    settings: settings.map_or_else(Timed::default, |(settings, time_to_live)| {
                        timed(settings, time_to_live)
                    }),
                    overall,
                    clients: [(CLIENT.to_owned(), of_client)].into(),
                })
                .boxed()
        }

        fn show(state: &Window, target: &str) -> Keyspace {
            let keys = Keys::new(target, CLIENT);
            let mut keyspace = Keyspace::new();
            let [name, value, client_value, permits, client_permits] =
                keys.in_order().map(str::to_owned);
            show_key(&mut keyspace, name, &state.settings, |settings| {
                let fields = [
                    ("rate", settings.rate),
                    ("interval", settings.interval),
                    ("type", settings.rate_type.code()),
                    ("keepAliveTime", settings.keep_alive),
                ];
                let fields = fields.map(|(field, number)| (field.to_owned(), number.to_string()));
                Content::Hash(BTreeMap::from(fields))
            });
            let nothing = Pool::default();
            let of_client = state.clients.get(CLIENT).unwrap_or(&nothing);
            for (pool, value, permits) in [
                (&state.overall, value, permits),
                (of_client, client_value, client_permits),
            ] {
                show_key(&mut keyspace, value, &pool.value, |value| {
                    Content::Text(value.to_string())
                });
                show_key(&mut keyspace, permits, &pool.grants, |grants| {
                    let members = grants.iter();
                    Content::Zset(
                        members
                            .map(|(score, member)| (score, member.to_vec()))
                            .collect(),
                    )
                });
            }
            keyspace
        }
    }

    impl Versioned for SharedRate {
        /// A change of the type resets the limiter, so that most have one type.
        fn versions() -> BoxedStrategy<Self> {
            let is_overall = prop::bool::weighted(0.9);
            (1..8_u64, 1..9_u32, prop::option::of(0..4_u32), is_overall)
                .prop_map(|(permits, n, longer, is_overall)| {
                    let rate = match is_overall {
                        true => Rate::overall(permits, units(n)),
                        false => Rate::per_client(permits, units(n)),
                    };
                    let rate = longer.map_or(rate, |longer| rate.keep_alive(units(n + longer)));
                    Self::owned("client".into(), rate).unwrap()
                })
                .boxed()
        }
    }

    #[test]
    fn script_and_model_agree() {
        compare::<SharedRate>();
    }

    #[test]
    fn a_rate_without_a_keep_alive_expires_an_interval_after_the_last_request() {
        let second = Duration::from_secs(1);
        let rate = SharedRate::owned(CLIENT.into(), Rate::overall(5, second));
        assert_eq!(rate.unwrap().numbers(), [5, 1_000, 0, 1_000, 0]);
        let kept = Rate::per_client(5, second).keep_alive(2 * second);
        let rate = SharedRate::owned(CLIENT.into(), kept);
        assert_eq!(rate.unwrap().numbers(), [5, 1_000, 1, 2_000, 1]);
    }
}
