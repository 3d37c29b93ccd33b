//! Sends a batch as one call, and hands each acquire its part of the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{ErrorKind, ServerErrorKind, Value};

use super::batch::PendingAcquire;
use super::{AcquireReply, SharedReply};
use crate::clock::Clock;
use crate::rate::RateType;
use crate::store::redis::connection::Connection;
use crate::store::redis::failure::Failure;
use crate::store::redis::retry::{Limits, Repeat};
use crate::store::redis::script::{self, Args};
use crate::store::redis::server_time::ServerTime;

/// What a shared call is sent with.
pub(super) struct Sender {
    pub(super) connection: Arc<Connection>,
    pub(super) clock: Clock,
    pub(super) server_time: Arc<ServerTime>,
    /// The limiters may be in different slots.
    pub(super) is_spread: AtomicBool,
}

impl Sender {
    /// Sends one call. An entry that is dropped unanswered is sent again alone.
    pub(super) async fn send(self: Arc<Self>, mut entries: Vec<PendingAcquire>) {
        entries.retain(|entry| !entry.answer.is_closed());
        entries.sort_by_key(|entry| entry.rate_type == RateType::PerClient);
        let deadlines = entries
            .iter()
            .map(|entry| (entry.deadline, entry.server_deadline));
        let Some((deadline, server_deadline)) =
            deadlines.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
        else {
            return;
        };
        let now = self.clock.now();
        let (keys, args) = keys_and_args(&entries, server_deadline, now);
        let limits = Limits::new(deadline, Repeat::Safe).at_once();
        let limits = limits.for_requests(entries.iter().map(|entry| entry.requests).sum());
        let sending = script::MULTI_ACQUIRE.run(&self.connection, &keys, &args, limits);
        match sending.await {
            Ok(Value::Array(answers)) if answers.len() == entries.len() => {
                for (entry, answer) in entries.into_iter().zip(answers) {
                    entry.answer(match answer.extract_error() {
                        Ok(answer) => SharedReply::Answered(Ok(AcquireReply { answer, now })),
                        Err(_its_own) => SharedReply::Refused,
                    });
                }
            }
            // It arrived too late for all entries, or is not a reply of the script.
            Ok(answer) => {
                for entry in entries {
                    let answer = answer.clone();
                    entry.answer(SharedReply::Answered(Ok(AcquireReply { answer, now })));
                }
            }
            // For one of them, and it does not say for which.
            Err(Failure::Refused(error)) => {
                if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) {
                    self.is_spread.store(true, Ordering::Relaxed);
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

fn keys_and_args(
    entries: &[PendingAcquire],
    server_deadline: i64,
    now: Option<i64>,
) -> (Vec<&[u8]>, Args) {
    let overall = entries
        .iter()
        .filter(|entry| entry.rate_type == RateType::Overall);
    let mut args = Args::new()
        .number(server_deadline)
        .optional(now)
        .number(entries.len() as i64)
        .number(overall.count() as i64);
    let mut keys = Vec::with_capacity(entries.len() * 3);
    for entry in entries {
        keys.extend(entry.words.iter().take(entry.keys));
        for arg in entry.words.iter().skip(entry.keys) {
            args = args.bytes(arg);
        }
    }
    for (place, entry) in entries.iter().enumerate() {
        if let Some(list) = &entry.list {
            args = args
                .number(place as i64 + 1)
                .number(entry.keys as i64)
                .number(list.len() as i64)
                .all(list);
        }
    }
    (keys, args)
}
