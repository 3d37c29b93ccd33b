//! One of the algorithms, so that one call holds several kinds.

use std::any::Any;

use super::{Evaluation, Model, Properties, ShareOf, State, Unusable};
use crate::failure_policy::LocalShare;
use crate::permit::CallId;
use crate::policies::shared_rate::SharedRate;
use crate::policies::target_keys::TargetKeys;
use crate::window::{At, SetUp};

macro_rules! any_model {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(use crate::policies::$Policy;)*

        /// One of the algorithms, with its numbers.
        #[derive(Debug, Clone)]
        pub(crate) enum AnyModel {
            $($Policy($Policy),)*
            SharedRate(SharedRate),
        }

        $(impl From<$Policy> for AnyModel {
            fn from(model: $Policy) -> Self {
                Self::$Policy(model)
            }
        })*

        impl AnyModel {
            /// The name of its function in `lua/joint.lua`.
            #[cfg(feature = "redis")]
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$Policy(_) => stringify!($name),)*
                    Self::SharedRate(_) => "shared_rate",
                }
            }
        }
    };
}
policies!(any_model! {});

impl From<SharedRate> for AnyModel {
    fn from(model: SharedRate) -> Self {
        Self::SharedRate(model)
    }
}

/// `with!(any, |model| expression)`: the expression for the model, whatever its type.
macro_rules! with {
    ($any:expr, |$model:ident| $expression:expr) => {
        policies!(with! { $any, |$model| $expression })
    };
    ([$any:expr, |$model:ident| $expression:expr] $($name:ident: $Policy:ident,)*) => {
        match $any {
            $(AnyModel::$Policy($model) => $expression,)*
            AnyModel::SharedRate($model) => $expression,
        }
    };
}

impl AnyModel {
    pub(crate) fn properties(&self) -> &'static Properties {
        fn of<M: Model>(_: &M) -> &'static Properties {
            &M::PROPERTIES
        }
        with!(self, |model| of(model))
    }

    /// Whether its state is RRateLimiter's window, where a grant is found by its random bytes.
    #[inline]
    pub(crate) fn is_on_the_window(&self) -> bool {
        matches!(self, Self::SharedRate(_))
    }

    pub(crate) fn set_up(&self) -> Option<SetUp> {
        match self {
            Self::SharedRate(rate) => rate.set_up(),
            _ => None,
        }
    }

    pub(crate) fn limit(&self) -> Option<i64> {
        with!(self, |model| Model::limit(model))
    }

    pub(crate) fn touches(&self, cost: u32) -> u32 {
        with!(self, |model| Model::touches(model, cost))
    }

    pub(crate) fn keys(&self, target: &str) -> Vec<String> {
        with!(self, |model| Model::keys(model, target))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn numbers(&self) -> Vec<i64> {
        with!(self, |model| Model::numbers(model))
    }

    pub(crate) fn share_of(&self, share: LocalShare) -> ShareOf {
        with!(self, |model| Model::share_of(model, share))
    }

    pub(crate) fn is_of(&self, state: &dyn State) -> bool {
        with!(self, |model| state_of(model, state).is_ok())
    }

    pub(crate) fn open(&self, keys: &mut TargetKeys) -> Option<Box<dyn State>> {
        fn open<M: Model>(_: &M, keys: &mut TargetKeys) -> Option<Box<dyn State>> {
            Some(Box::new(M::open(keys)?))
        }
        with!(self, |model| open(model, keys))
    }

    pub(crate) fn prepare(
        &self,
        state: &mut dyn State,
        at: At,
        cost: i64,
        most: &mut usize,
    ) -> Result<bool, Unusable> {
        with!(self, |model| Model::prepare(
            model,
            state_mut_of(model, state)?,
            at,
            cost,
            most
        ))
    }

    pub(crate) fn evaluate(
        &self,
        state: &dyn State,
        at: At,
        cost: i64,
    ) -> Result<Evaluation, Unusable> {
        with!(self, |model| Model::evaluate(
            model,
            state_of(model, state)?,
            at,
            cost
        ))
    }

    pub(crate) fn charge(&self, state: &mut dyn State, at: At, call_id: &CallId, cost: i64) {
        with!(
            self,
            |model| if let Ok(state) = state_mut_of(model, state) {
                Model::charge(model, state, at, call_id, cost);
            }
        );
    }

    pub(crate) fn deny(&self, state: &mut dyn State, at: At) {
        with!(
            self,
            |model| if let Ok(state) = state_mut_of(model, state) {
                Model::deny(model, state, at);
            }
        );
    }

    pub(crate) fn keep(&self, state: &mut dyn State, at: At) {
        with!(
            self,
            |model| if let Ok(state) = state_mut_of(model, state) {
                Model::keep(model, state, at);
            }
        );
    }

    #[inline]
    pub(crate) fn check(
        &self,
        state: &mut dyn State,
        at: At,
        call_id: &CallId,
        cost: i64,
    ) -> Result<Evaluation, Unusable> {
        with!(self, |model| Model::check(
            model,
            state_mut_of(model, state)?,
            at,
            call_id,
            cost
        ))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Box<dyn State>> {
        with!(self, |model| Some(Box::new(Model::state_from_reply(
            model, at, numbers
        )?)))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn evaluate_reply(&self, at: At, numbers: &[i64], cost: i64) -> Option<Evaluation> {
        with!(self, |model| Model::evaluate_reply(
            model, at, numbers, cost
        ))
    }
}

/// The state, if it is one of this algorithm.
#[inline]
fn state_of<'a, M: Model>(_: &M, state: &'a dyn State) -> Result<&'a M::State, Unusable> {
    let state: &dyn Any = state;
    state.downcast_ref().ok_or(Unusable::OtherKind)
}

#[inline]
fn state_mut_of<'a, M: Model>(
    _: &M,
    state: &'a mut dyn State,
) -> Result<&'a mut M::State, Unusable> {
    let state: &mut dyn Any = state;
    state.downcast_mut().ok_or(Unusable::OtherKind)
}
