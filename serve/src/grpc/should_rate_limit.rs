//! `ShouldRateLimit`: all descriptors of a request, and all rules for them, are decided together,
//! and charged all or none.
//!
//! Envoy lets a request in at an error, and its clients choose most of what a request holds. So
//! whatever that is, it is decided: what cannot be decided is over the limit. Errors are those of
//! the store, which no client has caused.

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
    /// How long a request may wait for a turn that a leaky bucket gives it.
    pub(super) longest_turn: Duration,
}

/// The codec of the protocol, for which a message that cannot be read is none.
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

/// The answer to a request that is not read, or that has too many descriptors.
fn over_limit() -> RateLimitResponse {
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        ..RateLimitResponse::default()
    }
}

async fn answer(service: &Service, asked: Asked) -> Result<RateLimitResponse, Status> {
    // Descriptors without hits are only looked at, before anything is charged.
    let looked_at = match service.peek(&asked.free).await {
        Ok(verdict) => Decided::seen(&asked.free, verdict),
        Err(error) => Decided::failed(service, &asked.free, &error).await?,
    };
    let charged = match looked_at.is_denied {
        true => Decided::default(),
        false => match service.check(&asked.charged).await {
            Ok(verdict) => Decided::charged(&asked.charged, verdict),
            Err(error) => Decided::failed(service, &asked.charged, &error).await?,
        },
    };
    let is_denied = looked_at.is_denied || charged.is_denied;
    let code = if is_denied { Code::OverLimit } else { Code::Ok };
    let statuses = asked.places.iter().map(|(is_free, place)| {
        let decided = if *is_free { &looked_at } else { &charged };
        decided.statuses.get(*place).cloned().unwrap_or_else(ok)
    });
    let statuses = statuses.collect();
    let deciding = if looked_at.is_denied {
        looked_at
    } else {
        charged
    };
    Ok(RateLimitResponse {
        overall_code: code.into(),
        statuses,
        response_headers_to_add: deciding.headers,
    })
}

/// What some of the descriptors got: a status for each of them.
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

    /// Of a look, which says what would be left of each limit if it were charged.
    fn seen(parts: &[Part], verdict: Verdict) -> Self {
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

    /// If a descriptor cannot be decided, such as one that asks for more than is ever granted at
    /// once, nothing is charged, and each is looked at by itself: of one that cannot, the rule is
    /// told, and of another what is left. If they cannot be decided together only, none that has a
    /// rule can.
    async fn failed(service: &Service, parts: &[Part], error: &Error) -> Result<Self, Status> {
        if !is_caused_by_request(error) {
            return Err(status(error));
        }
        let each = parts.iter().map(|part| look_alone(service, part));
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

async fn look_alone(service: &Service, part: &Part) -> Result<DescriptorStatus, Status> {
    let refusing = match service.peek(slice::from_ref(part)).await {
        Err(Error::ExceedsLimit { name: rule, .. }) => Some(rule),
        Err(error) if is_caused_by_request(&error) => None,
        Err(error) => return Err(status(&error)),
        Ok(verdict) => {
            let seen = Decided::seen(slice::from_ref(part), verdict);
            return Ok(seen.statuses.into_iter().next().unwrap_or_else(ok));
        }
    };
    // What is left of the limit is asked with a request that it could grant. If no limit refuses it
    // alone, the strictest one is reported.
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

/// Without limit.
fn ok() -> DescriptorStatus {
    DescriptorStatus {
        code: Code::Ok.into(),
        ..DescriptorStatus::default()
    }
}

/// Of the strictest rule for a descriptor; without limit if there is none.
fn strictest(joint: &JointDecision, place: usize, uncharged: u64) -> DescriptorStatus {
    let strictest = joint.of_part(place).max_by_key(|(_, decision)| {
        let retry_after = decision.retry_after().unwrap_or_default();
        (retry_after, std::cmp::Reverse(decision.remaining()))
    });
    strictest.map_or_else(ok, |(name, decision)| of_rule(name, decision, uncharged))
}

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

/// `None` where the failure policy decided. The unit is unknown if the window is not one of those
/// that the protocol has.
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
        // Below a thousand millions.
        nanos: time.subsec_nanos().cast_signed(),
    }
}

/// The header fields that the proxy adds to the answer of a request.
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
