//! A target that gets back a charge has at most what it would have if it had not been charged.

use proptest::prelude::*;

use super::differential_tests::{Compared, START};
use super::model::{Charge, Model};
use super::state::State;
use crate::window::At;

#[derive(Debug, Clone)]
struct Step {
    pause: i64,
    cost: i64,
}

fn a_step<M: Compared>() -> impl Strategy<Value = Step> {
    (M::pauses(), 1..6_i64).prop_map(|(pause, cost)| Step { pause, cost })
}

/// What a target has left.
fn left<M: Model>(model: &M, state: &M::State, at: At) -> i64 {
    let answer = model.evaluate(state, at, 1);
    answer.remaining + i64::from(answer.is_granted())
}

/// Takes the same requests on two targets. One of them is charged for an additional request, which
/// is given back later. Returns how much was given back.
fn compare<M: Model>(model: &M, steps: &[Step], charged: usize, pause: i64) -> i64 {
    let (mut one, mut other) = (M::State::default(), M::State::default());
    let mut at = At {
        now: START,
        server: 0,
    };
    let mut charge = None;
    for (place, Step { pause, cost }) in steps.iter().enumerate() {
        at.now += pause.max(&0);
        at.server += pause.max(&0);
        one.drop_expired(at.server);
        other.drop_expired(at.server);
        let cost = *cost.min(&model.limit());
        let answer = model.check(&mut one, at, cost);
        if place == charged && answer.is_granted() {
            let mark = answer.mark;
            charge = Some(Charge { mark, cost });
        } else if answer.is_granted() {
            model.charge(&mut other, at, cost);
        }
    }
    let Some(charge) = charge else { return 0 };
    at.now += pause.max(0);
    at.server += pause.max(0);
    one.drop_expired(at.server);
    other.drop_expired(at.server);
    let before = left(model, &one, at);
    let back = model.give_back(&mut one, at, &charge);
    assert!((0..=charge.cost).contains(&back));
    assert_eq!(left(model, &one, at), before + back);
    if back > 0 {
        let without = left(model, &other, at);
        assert!(
            before + back <= without,
            "{before} + {back}, and {without} without"
        );
    }
    back
}

macro_rules! tests {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(mod $name {
            use super::*;

            proptest! {
                #[test]
                fn no_more_is_given_back_than_was_charged_and_has_not_come_back_since(
                    model in crate::policies::$Policy::policies(),
                    steps in prop::collection::vec(a_step::<crate::policies::$Policy>(), 2..12),
                    charged in 1..12_usize,
                    pause in crate::policies::$Policy::pauses(),
                ) {
                    compare(&model, &steps, charged % steps.len(), pause);
                }
            }
        })*
    };
}
policies!(tests! {});
