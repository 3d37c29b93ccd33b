//! Limiters in Redis: a typed step becomes keys and arguments, a script runs, and its reply becomes
//! typed.
//!
//! A call takes at most the response timeout. Within it, a call that did not reach the server is
//! sent again. A call whose answer was lost is sent again only if the script recognizes the
//! repetition, as acquire does by its call id, or if it only reads. A call that reaches the server
//! after its deadline takes nothing, so giving up is safe.
//!
//! Each module imports only from the lines below its own:
//!
//! ```layers
//! fuzzing
//! steps
//! acquire
//! limiter
//! acquire_answer check large_audit
//! client
//! hints multi_acquire multi_check
//! acquire_args audit shared_calls
//! audit_budget audit_pages background failure script script_keys
//! ```

mod acquire;
mod acquire_answer;
mod acquire_args;
#[cfg(test)]
mod attempt_tests;
mod audit;
mod audit_budget;
mod audit_pages;
pub(crate) mod background;
pub(crate) mod check;
mod client;
#[cfg(test)]
mod differential_tests;
mod failure;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod hints;
mod large_audit;
mod limiter;
mod multi_acquire;
pub(crate) mod multi_check;
pub(crate) mod script;
mod script_keys;
pub(crate) mod shared_calls;
mod steps;
#[cfg(test)]
mod time_budget_tests;
#[cfg(test)]
mod unsent_acquire_tests;

use std::sync::Arc;

use tokio::time::Instant;

use super::{GivingBack, LimiterStore, Store};
use crate::box_future::BoxFuture;
use crate::breaker::Breaker;
use crate::error::Result;
use crate::health::ServerHealth;
use crate::keys::Keys;
use crate::link::limits::Repeat;
use crate::policies::call::{Answers, Call};
use crate::policies::reply::{self, TargetReply};
pub(crate) use client::RedisStore;
use limiter::RedisLimiter;

impl Store for RedisStore {
    fn is_cluster(&self) -> bool {
        self.connection.is_cluster()
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(RedisLimiter::new(self.clone(), keys))
    }

    fn breaker(&self, key: &str) -> Option<Arc<Breaker>> {
        self.connection.breaker(key)
    }

    fn is_healthy(&self) -> bool {
        self.connection.is_healthy()
    }

    fn check<'a>(
        &'a self,
        call: &'a Arc<Call>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answers>> {
        Box::pin(self.run_call(call, deadline, move |replies| reply::answers(call, replies)))
    }

    fn undo<'a>(&'a self, call: &'a Arc<Call>, deadline: Instant) -> BoxFuture<'a, Result<u32>> {
        let undone = |replies: &[TargetReply]| {
            let undone = replies.first()?.state.first()?;
            u32::try_from(*undone).ok()
        };
        Box::pin(self.run_call(call, deadline, undone))
    }

    fn call_deadline(&self) -> Instant {
        self.deadline()
    }

    fn health(&self) -> Vec<ServerHealth> {
        let breakers = self.connection.breakers();
        breakers.iter().map(|breaker| breaker.health()).collect()
    }

    fn ping(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let deadline = self.deadline();
            let servers = self.servers()?;
            for server in &servers {
                let ping = redis::cmd("PING");
                self.ask(server, &ping, deadline, Repeat::Safe).await?;
            }
            Ok(())
        })
    }

    fn close(&self) {
        self.subscriber.close();
    }

    fn given_back(&self) -> BoxFuture<'_, bool> {
        Box::pin(self.background.unsettled.given_back())
    }

    fn give_back_in_background(&self, task: GivingBack) {
        self.background.give_back(task);
    }

    fn redis(&self) -> Option<&RedisStore> {
        Some(self)
    }
}
