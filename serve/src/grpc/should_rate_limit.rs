//! `ShouldRateLimit`: all descriptors of a request, and all rules for them, are decided together;
//! either all are charged or none.
//!
//! Envoy lets a request in when it gets an error, and its clients choose most of the content of a
//! request. So no content causes an error: a request that cannot be decided is over the limit.
//! Only failures of the store are errors.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use futures_util::future::try_join_all;
use hyper::HeaderMap;
use prost::Message;
use redisson_rate_limiter::{BoxFuture, Decision, Error, JointDecision, Verdict};
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::server::UnaryService;
use tonic::{Request, Response, Status};
use tonic_prost::ProstEncoder;

use super::asked::Asked;
use super::messages::{
    self, Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
};
use crate::joint::{denies, state_limits};
use crate::part::Part;
use crate::service::{Service, is_caused_by_request, unavailable};

pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone)]
pub(super) struct ShouldRateLimit {
    pub(super) service: Arc<Service>,
    /// The longest time that a request may wait for its turn in a leaky bucket.
    pub(super) longest_turn: Duration,
}

/// The codec of the protocol. A message that cannot be decoded becomes `None` instead of an error.
pub(super) struct Lenient;

impl Codec for Lenient {
    type Encode = RateLimitResponse;
    type Decode = Option<RateLimitRequest>;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for Lenient {
    type Item = Option<RateLimitRequest>;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let read = RateLimitRequest::decode(&mut *bytes).ok();
        bytes.advance(bytes.remaining());
        Ok(Some(read))
    }
}

type Answered = BoxFuture<'static, Result<Response<RateLimitResponse>, Status>>;

impl UnaryService<Option<RateLimitRequest>> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = Answered;

    fn call(&mut self, request: Request<Option<RateLimitRequest>>) -> Answered {
        let (service, longest_turn) = (Arc::clone(&self.service), self.longest_turn);
        Box::pin(async move {
            let read = request.into_inner();
            let asked = read.and_then(|it| Asked::new(it, longest_turn));
            let answer = match asked {
                Some(asked) => answer(&service, asked).await?,
                None => over_limit(),
            };
            Ok(Response::new(answer))
        })
    }
}

/// The answer to a request that cannot be decoded or has too many descriptors.
fn over_limit() -> RateLimitResponse {
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        ..RateLimitResponse::default()
    }
}

async fn answer(service: &Service, asked: Asked) -> Result<RateLimitResponse, Status> {
    // Descriptors without hits are only peeked at, before any other is charged.
    let peeked = match service.peek(&asked.free).await {
        Ok(verdict) => Decided::peeked(&asked.free, verdict),
        Err(error) => Decided::failed(service, &asked.free, &error).await?,
    };
    let charged = match peeked.is_denied {
        true => Decided::default(),
        false => match service.check(&asked.charged).await {
            Ok(verdict) => Decided::charged(&asked.charged, verdict),
            Err(error) => Decided::failed(service, &asked.charged, &error).await?,
        },
    };
    let is_denied = peeked.is_denied || charged.is_denied;
    let code = if is_denied { Code::OverLimit } else { Code::Ok };
    let statuses = asked.places.iter().map(|(is_free, place)| {
        let decided = if *is_free { &peeked } else { &charged };
        decided.statuses.get(*place).cloned().unwrap_or_else(ok)
    });
    let statuses = statuses.collect();
    let deciding = if peeked.is_denied { peeked } else { charged };
    Ok(RateLimitResponse {
        overall_code: code.into(),
        statuses,
        response_headers_to_add: deciding.headers,
    })
}

/// The outcome for some of the parts: a status for each of them.
#[derive(Default)]
struct Decided {
    is_denied: bool,
    statuses: Vec<DescriptorStatus>,
    headers: Vec<HeaderValue>,
}

impl Decided {
    fn charged(parts: &[Part], verdict: Verdict) -> Self {
        Self::new(parts, verdict, |_| 0)
    }

    /// The outcome of a peek. A granted peek states what would be left after the charge, so the
    /// part's cost is added to get what is left now.
    fn peeked(parts: &[Part], verdict: Verdict) -> Self {
        Self::new(parts, verdict, |part| part.cost)
    }

    fn new(parts: &[Part], verdict: Verdict, uncharged: fn(&Part) -> u64) -> Self {
        let (is_denied, joint) = match verdict {
            Verdict::Granted(granted) => (false, granted.into_decision()),
            Verdict::Denied(joint) => (true, Some(joint)),
        };
        let of_part = |(place, part)| {
            let uncharged = if is_denied { 0 } else { uncharged(part) };
            let strictest = |joint| strictest(joint, place, uncharged);
            joint.as_ref().map_or_else(ok, strictest)
        };
        Self {
            is_denied,
            statuses: parts.iter().enumerate().map(of_part).collect(),
            headers: joint.as_ref().map(headers).unwrap_or_default(),
        }
    }

    /// The outcome if the parts could not be decided, for example because one asks for more than
    /// is ever granted at once. Nothing is charged, and each part is peeked at alone: one that
    /// cannot be decided is over the limit of its rule, and any other reports what is left. If each
    /// can be decided alone, but not all together, every part with a rule is over its limit.
    async fn failed(service: &Service, parts: &[Part], error: &Error) -> Result<Self, Status> {
        if !is_caused_by_request(error) {
            return Err(status(error));
        }
        let each = parts.iter().map(|part| peek_alone(service, part));
        let mut statuses = try_join_all(each).await?;
        if statuses.iter().all(|it| it.code() == Code::Ok) {
            let limited = statuses.iter_mut().filter(|it| it.current_limit.is_some());
            limited.for_each(|it| it.set_code(Code::OverLimit));
        }
        Ok(Self {
            is_denied: true,
            statuses,
            headers: Vec::new(),
        })
    }
}

/// The status of a part that is peeked at without the others.
async fn peek_alone(service: &Service, part: &Part) -> Result<DescriptorStatus, Status> {
    let refusing = match service.peek(slice::from_ref(part)).await {
        Err(Error::ExceedsLimit { name: rule, .. }) => Some(rule),
        Err(error) if is_caused_by_request(&error) => None,
        Err(error) => return Err(status(&error)),
        Ok(verdict) => {
            let peeked = Decided::peeked(slice::from_ref(part), verdict);
            return Ok(peeked.statuses.into_iter().next().unwrap_or_else(ok));
        }
    };
    // A peek with cost 1 finds out what is left, because the limit could grant that. If no one
    // limit has refused the part, the strictest limit is reported.
    let one = Part {
        cost: 1,
        ..part.clone()
    };
    let (joint, uncharged) = match service.peek(slice::from_ref(&one)).await {
        Ok(Verdict::Granted(granted)) => (granted.into_decision(), 1),
        Ok(Verdict::Denied(joint)) => (Some(joint), 0),
        Err(error) if is_caused_by_request(&error) => (None, 0),
        Err(error) => return Err(status(&error)),
    };
    let rule = joint.as_ref().map_or_else(ok, |joint| {
        let mut rules = joint.of_part(0);
        match rules.find(|(name, _)| refusing.as_deref() == Some(*name)) {
            Some((name, it)) => of_rule(name, it, uncharged),
            None => strictest(joint, 0, uncharged),
        }
    });
    Ok(DescriptorStatus {
        code: Code::OverLimit.into(),
        ..rule
    })
}

/// The status of a descriptor to which no limit applies.
fn ok() -> DescriptorStatus {
    DescriptorStatus {
        code: Code::Ok.into(),
        ..DescriptorStatus::default()
    }
}

/// The status of the strictest rule for the part at `place`; `ok` if there is none.
fn strictest(joint: &JointDecision, place: usize, uncharged: u64) -> DescriptorStatus {
    let strictest = joint.of_part(place).max_by_key(|(_, decision)| {
        let retry_after = decision.retry_after().unwrap_or_default();
        (retry_after, std::cmp::Reverse(decision.remaining()))
    });
    strictest.map_or_else(ok, |(name, decision)| of_rule(name, decision, uncharged))
}

/// The status of one rule. `uncharged` is added to what the decision states as left.
fn of_rule(name: &str, decision: &Decision, uncharged: u64) -> DescriptorStatus {
    let code = if denies(decision) {
        Code::OverLimit
    } else {
        Code::Ok
    };
    let remaining = decision.remaining().saturating_add(uncharged);
    let remaining = remaining.min(decision.limit());
    DescriptorStatus {
        code: code.into(),
        current_limit: current_limit(name, decision),
        limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        duration_until_reset: Some(duration(decision.reset())),
    }
}

/// The limit that a decision states; `None` if the failure policy decided. The unit is unknown if
/// the protocol has none for the window.
fn current_limit(name: &str, decision: &Decision) -> Option<RateLimit> {
    const DAY: u128 = 86_400_000;
    let unit = match decision.window().as_millis() {
        1_000 => Unit::Second,
        60_000 => Unit::Minute,
        3_600_000 => Unit::Hour,
        DAY => Unit::Day,
        week if week == 7 * DAY => Unit::Week,
        month if month % DAY == 0 && (28..=31).contains(&(month / DAY)) => Unit::Month,
        year if year == 365 * DAY || year == 366 * DAY => Unit::Year,
        _ => Unit::Unknown,
    };
    (decision.limit() > 0).then(|| RateLimit {
        requests_per_unit: u32::try_from(decision.limit()).unwrap_or(u32::MAX),
        unit: unit.into(),
        name: name.to_owned(),
    })
}

fn duration(time: Duration) -> messages::Duration {
    messages::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        // Less than a billion, so it fits an i32.
        nanos: time.subsec_nanos().cast_signed(),
    }
}

/// The header fields that the proxy adds to its client's response.
fn headers(joint: &JointDecision) -> Vec<HeaderValue> {
    let mut headers = HeaderMap::new();
    state_limits(&mut headers, joint);
    headers
        .iter()
        .map(|(name, value)| HeaderValue {
            key: name.to_string(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        })
        .collect()
}

fn status(error: &Error) -> Status {
    match unavailable(error) {
        Some(why) => Status::unavailable(why),
        None => Status::internal(error.to_string()),
    }
}
