//! The targets of the other limiters, in this process: the pure models behind a lock.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::limiters::call::{self, Answers, Call, Opened};
use crate::limiters::model::{State, Unusable};
use crate::window::{At, Timed};

/// The states by their targets' keys.
#[derive(Debug, Default)]
pub(super) struct Targets {
    by_key: HashMap<String, Kept>,
    /// Expired ones are looked for when there are this many, so that forgotten targets cost no memory for ever.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 32;

#[derive(Debug)]
struct Kept {
    state: Box<dyn State>,
    lock: Timed<()>,
}

impl Kept {
    fn is_gone(&mut self, server: i64) -> bool {
        self.lock.drop_expired(server);
        !self.state.drop_expired(server) && self.lock.get().is_none()
    }
}

impl Targets {
    pub(super) fn decide(&mut self, call: &Call, at: At) -> Result<Answers> {
        let mut kept: Vec<_> = call
            .limiters
            .iter()
            .map(|target| {
                let mut kept = self.by_key.remove(&target.key);
                if let Some(kept) = &mut kept {
                    kept.lock.drop_expired(at.server);
                    if !kept.state.drop_expired(at.server) {
                        kept.state = target.model.new_state();
                    }
                }
                kept.unwrap_or_else(|| Kept {
                    state: target.model.new_state(),
                    lock: Timed::default(),
                })
            })
            .collect();
        let mut opened: Vec<_> = call
            .limiters
            .iter()
            .zip(&mut kept)
            .map(|(target, kept)| Opened {
                target,
                state: &mut *kept.state,
                lock: &mut kept.lock,
            })
            .collect();
        let answers = call::decide(&mut opened, at, &call.random, &call.costs);
        for (target, mut kept) in call.limiters.iter().zip(kept) {
            if !kept.is_gone(at.server) {
                self.insert(&target.key, kept, at.server);
            }
        }
        answers.map_err(|(place, unusable)| {
            let name = call.limiters[place].key.clone();
            match unusable {
                Unusable::OtherKind => Error::BadState { name, source: None },
                Unusable::NotInitialized => Error::NotInitialized { name },
            }
        })
    }

    fn insert(&mut self, key: &str, kept: Kept, server: i64) {
        if self.by_key.len() >= self.sweep_at {
            self.by_key.retain(|_, kept| !kept.is_gone(server));
            self.sweep_at = SMALLEST_SWEEP.max(self.by_key.len() * 2);
        }
        self.by_key.insert(key.to_owned(), kept);
    }
}
