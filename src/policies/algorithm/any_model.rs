//! An algorithm as a trait object, so that one call holds several kinds.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Charge, Model, Properties, ShareOf, State, Unusable};
use crate::failure_policy::LocalShare;
use crate::permit::CallId;
use crate::policies::answer::Answer;
use crate::policies::stored_target::{Name, StoredTarget};
use crate::policies::target_keys::TargetKeys;
use crate::quota::Quota;
#[cfg(feature = "redis")]
use crate::window::Settings;
use crate::window::{At, SetUp};

pub(crate) trait AnyModel: fmt::Debug + Send + Sync {
    /// The name of its function in `lua/joint.lua`.
    fn name(&self) -> &'static str;
    fn properties(&self) -> &'static Properties;
    fn set_up(&self) -> Option<SetUp>;
    fn with_longest_turn(&self, longest: Duration) -> Option<Arc<dyn AnyModel>>;
    fn limit(&self) -> Option<i64>;
    fn quota(&self) -> Quota;
    fn touches(&self, cost: u32) -> u32;
    fn keys(&self, target: &str) -> Vec<String>;
    #[cfg(feature = "redis")]
    fn numbers(&self) -> Vec<i64>;
    fn is_of(&self, state: &dyn State) -> bool;
    fn open(&self, keys: &mut TargetKeys) -> Option<Box<dyn State>>;
    /// A new target of this name, with the state beside it; `None` if it is an RRateLimiter.
    fn new_target(&self, name: Name) -> Option<Box<StoredTarget>>;
    fn prepare(
        &self,
        state: &mut dyn State,
        at: At,
        cost: i64,
        most: &mut usize,
    ) -> Result<bool, Unusable>;
    fn share_of(&self, share: LocalShare) -> ShareOf;
    fn evaluate(&self, state: &dyn State, at: At, cost: i64) -> Result<Answer, Unusable>;
    fn peek(&self, state: &dyn State, at: At, cost: i64) -> Result<Answer, Unusable>;
    fn give_back(&self, state: &mut dyn State, at: At, charge: &Charge) -> Result<i64, Unusable>;
    fn reset(&self, state: &mut dyn State, at: At) -> Result<bool, Unusable>;
    fn charge(&self, state: &mut dyn State, at: At, call_id: &CallId, cost: i64);
    fn deny(&self, state: &mut dyn State, at: At);
    fn keep(&self, state: &mut dyn State, at: At);
    fn check(
        &self,
        state: &mut dyn State,
        at: At,
        call_id: &CallId,
        cost: i64,
    ) -> Result<Answer, Unusable>;
    #[cfg(feature = "redis")]
    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Box<dyn State>>;
    #[cfg(feature = "redis")]
    fn evaluate_reply(&self, at: At, numbers: &[i64], cost: i64) -> Option<Answer>;
    #[cfg(feature = "redis")]
    fn left_settings(&self, numbers: &[i64]) -> Option<Settings>;
}

impl<M: Model> AnyModel for M {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn properties(&self) -> &'static Properties {
        &M::PROPERTIES
    }

    fn set_up(&self) -> Option<SetUp> {
        Model::set_up(self)
    }

    fn with_longest_turn(&self, longest: Duration) -> Option<Arc<dyn AnyModel>> {
        let bounded = Model::with_longest_turn(self, longest)?;
        Some(Arc::new(bounded))
    }

    fn limit(&self) -> Option<i64> {
        Model::limit(self)
    }

    fn quota(&self) -> Quota {
        Model::known_quota(self)
    }

    fn touches(&self, cost: u32) -> u32 {
        Model::touches(self, cost)
    }

    fn keys(&self, target: &str) -> Vec<String> {
        Model::keys(self, target)
    }

    #[cfg(feature = "redis")]
    fn numbers(&self) -> Vec<i64> {
        Model::numbers(self)
    }

    fn is_of(&self, state: &dyn State) -> bool {
        let state: &dyn Any = state;
        state.is::<M::State>()
    }

    fn open(&self, keys: &mut TargetKeys) -> Option<Box<dyn State>> {
        let state: Box<dyn State> = Box::new(M::State::open(keys)?);
        Some(state)
    }

    fn new_target(&self, name: Name) -> Option<Box<StoredTarget>> {
        if M::PROPERTIES.is_on_the_window {
            return None;
        }
        let state = M::State::open(&mut TargetKeys::default())?;
        Some(Box::new(StoredTarget::new(name, state)))
    }

    fn prepare(
        &self,
        state: &mut dyn State,
        at: At,
        cost: i64,
        most: &mut usize,
    ) -> Result<bool, Unusable> {
        let state: &mut dyn Any = state;
        let state = state.downcast_mut().ok_or(Unusable::OtherKind)?;
        Model::prepare(self, state, at, cost, most)
    }

    fn share_of(&self, share: LocalShare) -> ShareOf {
        Model::share_of(self, share)
    }

    fn evaluate(&self, state: &dyn State, at: At, cost: i64) -> Result<Answer, Unusable> {
        let state: &dyn Any = state;
        let state = state.downcast_ref().ok_or(Unusable::OtherKind)?;
        Model::evaluate(self, state, at, cost)
    }

    fn peek(&self, state: &dyn State, at: At, cost: i64) -> Result<Answer, Unusable> {
        let state: &dyn Any = state;
        let state = state.downcast_ref().ok_or(Unusable::OtherKind)?;
        Model::peek(self, state, at, cost)
    }

    fn give_back(&self, state: &mut dyn State, at: At, charge: &Charge) -> Result<i64, Unusable> {
        let state: &mut dyn Any = state;
        let state: &mut M::State = state.downcast_mut().ok_or(Unusable::OtherKind)?;
        state.drop_expired(at.server);
        Ok(Model::give_back(self, state, at, charge))
    }

    fn reset(&self, state: &mut dyn State, at: At) -> Result<bool, Unusable> {
        let state: &mut dyn Any = state;
        let state = state.downcast_mut().ok_or(Unusable::OtherKind)?;
        Model::reset(self, state, at)
    }

    fn charge(&self, state: &mut dyn State, at: At, call_id: &CallId, cost: i64) {
        let state: &mut dyn Any = state;
        if let Some(state) = state.downcast_mut() {
            Model::charge(self, state, at, call_id, cost);
        }
    }

    fn deny(&self, state: &mut dyn State, at: At) {
        let state: &mut dyn Any = state;
        if let Some(state) = state.downcast_mut() {
            Model::deny(self, state, at);
        }
    }

    fn keep(&self, state: &mut dyn State, at: At) {
        let state: &mut dyn Any = state;
        if let Some(state) = state.downcast_mut() {
            Model::keep(self, state, at);
        }
    }

    fn check(
        &self,
        state: &mut dyn State,
        at: At,
        call_id: &CallId,
        cost: i64,
    ) -> Result<Answer, Unusable> {
        let state: &mut dyn Any = state;
        let state: &mut M::State = state.downcast_mut().ok_or(Unusable::OtherKind)?;
        state.drop_expired(at.server);
        Model::check(self, state, at, call_id, cost)
    }

    #[cfg(feature = "redis")]
    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Box<dyn State>> {
        let state: Box<dyn State> = Box::new(Model::state_from_reply(self, at, numbers)?);
        Some(state)
    }

    #[cfg(feature = "redis")]
    fn evaluate_reply(&self, at: At, numbers: &[i64], cost: i64) -> Option<Answer> {
        Model::evaluate_reply(self, at, numbers, cost)
    }

    #[cfg(feature = "redis")]
    fn left_settings(&self, numbers: &[i64]) -> Option<Settings> {
        Model::left_settings(self, numbers)
    }
}
