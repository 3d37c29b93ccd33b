//! The arguments of the acquire and reclaim scripts, in the order that their headers state.

use crate::keys::Keys;
use crate::rate::RateType;
use crate::store::redis::script::Args;
use crate::window::{Acquire, Ahead, Retry};

/// The arguments of an acquire on one limiter.
pub(super) fn acquire_args(
    call: &Acquire,
    retry: Option<&Retry>,
    rate_type: RateType,
    now: Option<i64>,
    deadline: Option<i64>,
) -> Args {
    let args = call_args(Args::new().optional(deadline), call)
        .optional(now)
        .mark(rate_type == RateType::PerClient);
    match list_args(call, retry) {
        Some(list) => args.all(&list),
        None => args.without_empty_end(),
    }
}

/// Member, audited rate, and permits of all requests together.
pub(super) fn call_args(args: Args, call: &Acquire) -> Args {
    let total = call.requests.total();
    // A total that does not fit a member is never granted in full.
    args.bytes(&call.member(total as u32))
        .optional(call.audited_rate)
        .number(total)
}

/// The call's own key, if it has several requests and so may be granted in part.
pub(super) fn call_key(keys: &Keys, call: &Acquire) -> Option<String> {
    call.requests
        .single()
        .is_none()
        .then(|| keys.of_call(&call.id))
}

/// The runs of equal requests and the options; `None` for a single request without options.
pub(super) fn list_args(call: &Acquire, retry: Option<&Retry>) -> Option<Args> {
    let requests = &call.requests;
    let mut args = Args::new();
    if requests.single().is_some() {
        args = args.number(0);
    } else {
        args = args.number(requests.runs.len() as i64);
        for run in &requests.runs {
            args = args.number(run.permits).number(run.count);
        }
        if requests.fifo {
            args = args.bytes(b"fifo");
        }
    }
    if requests.debt {
        args = args.bytes(b"debt");
    }
    if let Some(share) = requests.share {
        args = args
            .bytes(b"share")
            .number(share.permille)
            .number(share.credit);
    }
    if let Some(score) = call.newer_than {
        args = args.bytes(b"newer").number(score);
    }
    if let Some(retry) = retry {
        args = args.bytes(b"retry").number(retry.previous_deadline);
        args = args.number(retry.from).number(retry.to);
    }
    if let Some(Ahead::Reservation { within }) = call.ahead {
        args = args.bytes(b"reserve").number(within);
    }
    if let Some(set_up) = call.set_up {
        let settings = set_up.settings;
        args = args
            .bytes(b"setup")
            .number(settings.rate)
            .number(settings.interval);
        args = args
            .number(settings.rate_type.code())
            .number(settings.keep_alive);
        args = args.number(set_up.existing.code());
    }
    let is_plain = args.len() == 1;
    (!is_plain).then_some(args)
}

/// The arguments of the reclaim script.
pub(super) fn reclaim_args(
    call: &Acquire,
    made: &Retry,
    now: Option<i64>,
    delivered: Option<i64>,
) -> Args {
    Args::new()
        .optional(now)
        .number(made.previous_deadline)
        .bytes(&call.member(call.requests.total() as u32))
        .number(made.from)
        .number(made.to)
        .optional(call.audited_rate)
        .optional(delivered)
}
