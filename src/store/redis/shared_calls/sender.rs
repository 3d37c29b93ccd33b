//! Sends a batch as one call, and hands each part its answer.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use redis::{ErrorKind, ServerErrorKind, Value};
use tokio::time::{Instant, sleep_until};

use super::batch::{Caller, PendingPart};
use super::{Part, PartReply, SharedReply};
use crate::clock::Clock;
use crate::link::Connection;
use crate::link::failure::Failure;
use crate::link::limits::Limits;
use crate::link::server_time::ServerTime;

/// What shared calls are sent with.
pub(in crate::store::redis) struct CallSender {
    pub(in crate::store::redis) connection: Arc<Connection>,
    pub(in crate::store::redis) clock: Clock,
    pub(in crate::store::redis) server_time: Arc<ServerTime>,
}

impl CallSender {
    /// Sends one call.
    pub(super) async fn send<P: Part>(self: Arc<Self>, mut entries: Vec<PendingPart<P>>) {
        let now = Instant::now();
        entries.retain(|entry| entry.caller.is_waiting() && entry.caller.deadline > now);
        entries.sort_by_key(|entry| entry.part.rank());
        // Each caller waits until its own deadline. The server decides nothing after the first of
        // their deadlines; callers that have more time ask again then.
        let (parts, mut callers): (Vec<P>, Vec<Caller>) =
            entries.into_iter().map(|it| (it.part, it.caller)).unzip();
        let deadline = callers.iter().map(|caller| caller.deadline).max();
        let server_deadline = callers.iter().map(|caller| caller.server_deadline).min();
        let Some(deadline) = deadline else {
            return;
        };
        let now = self.clock.now();
        let parts: Vec<&P> = parts.iter().collect();
        let (keys, args) = P::keys_and_args(&parts, server_deadline, now);
        let limits = Limits::new(deadline, P::REPEAT).at_once().on_one_server();
        let limits = limits.for_requests(parts.iter().map(|part| part.requests()).sum());
        let sending = P::script().run(&self.connection, &keys, &args, limits);
        match answer_in_time(sending, &mut callers).await {
            Ok(Value::Array(answers)) if answers.len() == callers.len() => {
                for (caller, answer) in callers.into_iter().zip(answers) {
                    caller.answer(match answer.extract_error() {
                        Ok(answer) => SharedReply::Answered(Ok(PartReply { answer, now })),
                        Err(error) => P::refused(error),
                    });
                }
            }
            // The call arrived after its deadline, for all parts. An array of another length is no
            // reply to these parts, and none of them may read it.
            Ok(answer) => {
                let answer = match answer {
                    Value::Array(_) => Value::Nil,
                    late => late,
                };
                for caller in callers {
                    let answer = answer.clone();
                    caller.answer(SharedReply::Answered(Ok(PartReply { answer, now })));
                }
            }
            // The error is that of one part, and does not say of which. Or nothing was sent,
            // because another connection is open now.
            Err(Failure::Refused(error) | Failure::NotSent(error)) => {
                if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) {
                    self.connection.refuses_several_keys();
                }
                for caller in callers {
                    caller.answer(SharedReply::Refused);
                }
            }
            Err(failure) => {
                for caller in callers {
                    caller.answer(SharedReply::Answered(Err(failure.clone())));
                }
            }
        }
    }
}

/// Waits for the call's result, and meanwhile drops the senders of callers whose time is up. One
/// timer for the call costs less than one for each caller.
async fn answer_in_time<T>(sending: impl Future<Output = T>, callers: &mut [Caller]) -> T {
    let mut sending = pin!(sending);
    loop {
        let waiting = callers.iter().filter(|caller| caller.answer.is_some());
        let Some(next) = waiting.map(|caller| caller.deadline).min() else {
            return sending.await;
        };
        tokio::select! {
            biased;
            result = &mut sending => return result,
            () = sleep_until(next) => {}
        }
        let now = Instant::now();
        for caller in callers.iter_mut().filter(|caller| caller.deadline <= now) {
            caller.answer = None;
        }
    }
}
