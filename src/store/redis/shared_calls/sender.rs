//! Sends a batch as one call, and hands each part its answer.

use std::sync::Arc;

use redis::{ErrorKind, ServerErrorKind, Value};

use super::batch::PendingPart;
use super::{Part, PartReply, SharedReply};
use crate::clock::Clock;
use crate::store::redis::connection::Connection;
use crate::store::redis::failure::Failure;
use crate::store::redis::retry::Limits;
use crate::store::redis::server_time::ServerTime;

/// What a shared call is sent with.
pub(super) struct Sender {
    pub(super) connection: Arc<Connection>,
    pub(super) clock: Clock,
    pub(super) server_time: Arc<ServerTime>,
}

impl Sender {
    /// Sends one call.
    pub(super) async fn send<P: Part>(self: Arc<Self>, mut entries: Vec<PendingPart<P>>) {
        entries.retain(|entry| !entry.answer.is_closed());
        entries.sort_by_key(|entry| entry.part.rank());
        // Each caller waits for as long as it wants. The server decides none after the time of any of them; then those that
        // have more time ask again.
        let deadline = entries.iter().map(|entry| entry.deadline).max();
        let server_deadline = entries.iter().map(|entry| entry.server_deadline).min();
        let Some(deadline) = deadline else {
            return;
        };
        let now = self.clock.now();
        let parts: Vec<&P> = entries.iter().map(|entry| &entry.part).collect();
        let (keys, args) = P::keys_and_args(&parts, server_deadline, now);
        let limits = Limits::new(deadline, P::REPEAT).at_once().on_one_server();
        let limits = limits.for_requests(parts.iter().map(|part| part.requests()).sum());
        let sending = P::script().run(&self.connection, &keys, &args, limits);
        match sending.await {
            Ok(Value::Array(answers)) if answers.len() == entries.len() => {
                for (entry, answer) in entries.into_iter().zip(answers) {
                    entry.answer(match answer.extract_error() {
                        Ok(answer) => SharedReply::Answered(Ok(PartReply { answer, now })),
                        Err(error) => P::refused(error),
                    });
                }
            }
            // It arrived too late for all of them. Any other array is no reply to these parts, and none of them may read it.
            Ok(answer) => {
                let answer = match answer {
                    Value::Array(_) => Value::Nil,
                    late => late,
                };
                for entry in entries {
                    let answer = answer.clone();
                    entry.answer(SharedReply::Answered(Ok(PartReply { answer, now })));
                }
            }
            // The error is that of one of them, and does not say of which; or another connection is open now.
            Err(Failure::Refused(error) | Failure::NotSent(error)) => {
                if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) {
                    self.connection.refuses_several_keys();
                }
                for entry in entries {
                    entry.answer(SharedReply::Refused);
                }
            }
            Err(failure) => {
                for entry in entries {
                    entry.answer(SharedReply::Answered(Err(failure.clone())));
                }
            }
        }
    }
}
