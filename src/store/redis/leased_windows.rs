//! The calls of leases of a policy's windows.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::RedisStore;
use super::retry::Repeat;
use super::script::{self, Args};
use super::script_keys::of_call;
use super::{Connection, Store, read};
use crate::error::Result;
use crate::keys::sibling;
use crate::policies::answer::Answer;
use crate::policies::call::Call;
use crate::policies::reply;
use crate::store::leased_windows::{LeasedWindows, Unused};
use crate::store::{GivingBack, Task};

/// The keys of the script, in its order.
pub(crate) fn keys(unused: &Unused) -> [String; 3] {
    let Unused { key, id, .. } = unused;
    [key.to_string(), sibling(key, "-window"), of_call(key, id)]
}

/// The arguments of the script; `deadline` is in ms of the server's clock.
pub(crate) fn args(unused: &Unused, deadline: i64) -> Args {
    let permits = i64::from(unused.permits);
    let numbers = [deadline, unused.ends, unused.length, permits];
    Args::new().doubles(numbers.map(Some))
}

#[async_trait]
impl LeasedWindows for RedisStore {
    async fn take(&self, call: &Arc<Call>) -> Result<(Answer, i64)> {
        self.run_call(call, self.deadline(), |replies| {
            let answers = reply::answers(call, replies)?.answers;
            Some((answers.into_iter().next()?, replies.first()?.server))
        })
        .await
    }

    async fn give_back(&self, unused: &Unused) -> Result<u32> {
        let _turn = self.settling.acquire().await;
        let (name, keys, call_deadline) = (&unused.key, keys(unused), self.deadline());
        let calling = async {
            let mut attempts = self.attempts(name, call_deadline, Repeat::Safe);
            // The same for all attempts: until then the server knows what one has given back.
            let args = args(unused, self.server_deadline(name, &attempts).await?);
            loop {
                let connection: &Connection = &self.connection;
                let running = script::GIVE_BACK.run(connection, &keys, &args, attempts.limits());
                if let Some(answer) = attempts.step(running).await? {
                    return read(name, answer);
                }
            }
        };
        // In a box of its own: while it waits for its turn it is small.
        Box::pin(self.guarded(name, call_deadline, calling)).await
    }

    fn call_deadline(&self) -> Instant {
        Store::call_deadline(self)
    }

    fn is_healthy(&self) -> bool {
        Store::is_healthy(self)
    }

    fn run_in_background(&self, task: Task) {
        self.background().spawn(task);
    }

    fn give_back_in_background(&self, task: GivingBack) {
        self.background().give_back(task);
    }
}
