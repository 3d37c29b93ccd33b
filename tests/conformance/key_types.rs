//! A key holds one kind of limiter's state at a time.

use std::fs;
use std::path::Path;

use redisson_rate_limiter::{
    Charge, Chargeable, Decision, Denied, Error, FixedWindow, Granted, Rate, RedissonClient, Result,
};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, SECOND};

/// What a kind keeps under the target's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    Nothing,
    /// A key of this type, and the fields of a hash. A number in a string does not show what it
    /// stands for.
    Key(String, Vec<String>),
    Rate,
}

impl Own {
    /// Whether Redis can tell that another kind wrote it.
    fn differs_from(&self, other: &Self) -> bool {
        *self != Self::Nothing && *other != Self::Nothing && self != other
    }

    pub fn is_a_string(&self) -> bool {
        matches!(self, Self::Key(kind, _) if kind == "string")
    }

    /// What a policy keeps there, by the first case of its vectors.
    fn of(policy: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let vectors = root.join(format!("lua/vectors/policies/{policy}.json"));
        let vectors = fs::read_to_string(vectors).expect("the vectors of each policy");
        let vectors: serde_json::Value = serde_json::from_str(&vectors).unwrap();
        let Some(key) = vectors["cases"][0]["after"].get("t") else {
            return Self::Nothing;
        };
        let fields = key["value"].as_object().into_iter().flatten();
        let fields = fields.map(|(field, _)| field.clone()).collect();
        Self::Key(key["type"].as_str().unwrap().to_owned(), fields)
    }
}

/// A limiter of a kind, with what it keeps under the target's own name, and the unit of its costs.
/// It has 5 units.
pub struct Kind {
    pub own: Own,
    limiter: Box<dyn Chargeable>,
    unit: u32,
}

impl Kind {
    pub async fn check(&self, target: &str, units: u32) -> Result<Decision> {
        let cost = self.unit * units;
        self.limiter.check_without_waiting(target, cost).await
    }

    pub fn charge(&self, target: &str, units: u32) -> Result<Charge> {
        self.limiter.charge(target, self.unit * units)
    }

    /// What a decision is on every store, in units. Times are left out: the store's own clock tells
    /// some of them.
    fn shown(&self, decision: &Result<Decision>) -> String {
        let units = |remaining: &u64| remaining.div_ceil(u64::from(self.unit));
        match decision {
            Ok(Decision::Granted(Granted { remaining, .. })) => {
                format!("granted, {} left", units(remaining))
            }
            Ok(Decision::Denied(Denied { remaining, .. })) => {
                format!("denied, {} left", units(remaining))
            }
            Err(Error::BadState { name, .. }) => format!("bad state of {name}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// A limiter of each kind.
pub fn kinds(client: &RedissonClient) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (policy, unit) in every_policy(5) {
        kinds.push(Kind {
            own: Own::of(policy.algorithm()),
            limiter: Box::new(client.policy_limiter(policy).unwrap()),
            unit,
        });
    }
    let keyed = client.keyed_rate_limiter("", Rate::overall(5, HOUR));
    kinds.push(Kind {
        own: Own::Rate,
        limiter: Box::new(keyed.unwrap()),
        unit: 1,
    });
    kinds
}

/// Asks each pair of kinds in turns, on a target of the pair's own.
async fn in_turns(fixture: &Fixture, name: &str) -> Vec<String> {
    let client = fixture.client("client").await;
    let kinds = kinds(&client);
    let mut all = Vec::new();
    for (one_place, one) in kinds.iter().enumerate() {
        for (other_place, other) in kinds.iter().enumerate() {
            let target = format!("{name}:{one_place}:{other_place}");
            for (limiter, cost) in [(one, 2), (other, 1), (one, 1), (other, 2), (one, 2)] {
                let decision = limiter.check(&target, cost).await;
                let is_bad = decision.is_err();
                let is_refused = std::ptr::eq(limiter, other) && other.own.differs_from(&one.own);
                assert_eq!(is_bad, is_refused, "{target} {decision:?}");
                let shown = limiter.shown(&decision).replace(name, "");
                all.push(format!("{one_place} {other_place}: {shown}"));
            }
        }
    }
    all
}

pub async fn two_kinds_on_one_target_get_the_same_answers_on_every_store(fixture: Fixture) {
    let in_memory = in_turns(&Fixture::in_memory(), "limiter").await;
    assert_eq!(in_turns(&fixture, fixture.name()).await, in_memory);
}

pub async fn two_charges_of_one_name_are_refused_whatever_their_kinds(fixture: Fixture) {
    let client = fixture.client("client").await;
    let key = fixture.name();
    let limiter = client.rate_limiter(key);
    let kinds = kinds(&client);
    let charge = |place: usize| -> Charge {
        match kinds.get(place) {
            Some(kind) => kind.charge(key, 1).unwrap(),
            None => limiter.charge(1).unwrap(),
        }
    };
    let elsewhere = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let elsewhere = || {
        elsewhere
            .charge(&format!("{{{key}}}:elsewhere"), 1)
            .unwrap()
    };
    for one in 0..=kinds.len() {
        for other in 0..=kinds.len() {
            for charges in [
                vec![charge(one), charge(other)],
                vec![charge(one), elsewhere(), charge(other)],
                vec![charge(one), charge(other), charge(one)],
            ] {
                let refused = client.check_all(charges).await;
                let Err(Error::InvalidArgument { argument, reason }) = refused else {
                    panic!("{one} {other}: {refused:?}");
                };
                assert_eq!(
                    (argument, reason),
                    ("charges", "must all have different names")
                );
            }
        }
    }
    // No limiter was charged or locked its target out, and each still decides alone.
    assert!(!limiter.exists().await.unwrap());
    for (place, kind) in kinds.iter().enumerate() {
        let target = format!("{key}:{place}");
        assert!(kind.check(&target, 5).await.unwrap().is_granted());
    }
    limiter.set_rate(Rate::overall(5, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(5).await.unwrap());
}

pub async fn an_rratelimiter_finds_the_state_of_other_kinds_bad_but_not_of_windows(
    fixture: Fixture,
) {
    let client = fixture.client("client").await;
    for (place, kind) in kinds(&client).iter().enumerate() {
        let key = format!("{}:{place}", fixture.name());
        let limiter = client.rate_limiter(&key);
        assert!(kind.check(&key, 2).await.unwrap().is_granted());
        let tried = limiter.try_acquire(1).await;
        match kind.own {
            Own::Nothing => {
                assert!(
                    matches!(tried, Err(Error::NotInitialized { .. })),
                    "{tried:?}"
                );
                limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
                assert!(limiter.try_acquire(1).await.unwrap());
                assert!(!limiter.try_acquire(1).await.unwrap());
                assert_eq!(kind.shown(&kind.check(&key, 1).await), "granted, 2 left");
            }
            Own::Rate => assert!(tried.unwrap()),
            _ => {
                assert!(
                    matches!(tried, Err(Error::BadState { .. })),
                    "{place} {tried:?}"
                );
                assert_eq!(kind.shown(&kind.check(&key, 3).await), "granted, 0 left");
            }
        }
    }
}

pub async fn a_limiter_of_another_kind_does_not_use_an_rratelimiters_state(fixture: Fixture) {
    let client = fixture.client("client").await;
    for (place, kind) in kinds(&client).iter().enumerate() {
        let key = format!("{}:{place}", fixture.name());
        let limiter = client.rate_limiter(&key);
        limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
        let decision = kind.check(&key, 1).await;
        match kind.own {
            Own::Rate => assert_eq!(limiter.available_permits().await.unwrap(), 4),
            Own::Nothing => assert!(decision.unwrap().is_granted()),
            _ => assert!(matches!(decision, Err(Error::BadState { .. }))),
        }
        assert!(limiter.delete().await.unwrap());
        let cost = if kind.own == Own::Nothing { 4 } else { 5 };
        assert!(kind.check(&key, cost).await.unwrap().is_granted());
    }
}
