//! `ShouldRateLimit`: all descriptors of a request, and all rules for them, are decided together, and charged all or none.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use redisson_rate_limiter::{Decision, Error, ErrorKind, JointDecision, Verdict};
use tonic::server::UnaryService;
use tonic::{Request, Response, Status};

use super::messages::{
    self, Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitRequest,
    RateLimitResponse, Unit,
};
use crate::serve::joint::{denies, state_limits};
use crate::serve::part::Part;
use crate::serve::service::Service;

pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(super) struct ShouldRateLimit(pub(super) Arc<Service>);

type Answered = Pin<Box<dyn Future<Output = Result<Response<RateLimitResponse>, Status>> + Send>>;

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = Answered;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Answered {
        let service = Arc::clone(&self.0);
        Box::pin(async move {
            answer(&service, request.into_inner())
                .await
                .map(Response::new)
        })
    }
}

async fn answer(service: &Service, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid_argument("`domain` must not be empty"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid_argument("there must be a descriptor"));
    }
    let asked = Asked::new(request)?;
    // What adds no hits is only looked at, before anything is charged.
    let looked_at = decided(service.peek(&asked.free).await)?;
    let charged = match &looked_at {
        Decided {
            is_denied: true, ..
        } => Decided::default(),
        _ => decided(service.check(&asked.charged).await)?,
    };
    let is_denied = looked_at.is_denied || charged.is_denied;
    let code = if is_denied { Code::OverLimit } else { Code::Ok };
    let statuses = asked.places.iter().map(|(is_free, place)| {
        let decided = if *is_free { &looked_at } else { &charged };
        decided.status(*place)
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
        response_headers_to_add: deciding.joint.as_ref().map(headers).unwrap_or_default(),
    })
}

/// The descriptors of a request as parts. Those that are the same are one, which costs as much as all of them.
#[derive(Default)]
struct Asked {
    charged: Vec<Part>,
    free: Vec<Part>,
    /// Of each descriptor: whether it is free, and its place among those.
    places: Vec<(bool, usize)>,
}

impl Asked {
    fn new(request: RateLimitRequest) -> Result<Self, Status> {
        let domain: Arc<str> = request.domain.into();
        let default = u64::from(request.hits_addend.max(1));
        let mut asked = Self::default();
        let mut known = HashMap::new();
        for (place, descriptor) in request.descriptors.into_iter().enumerate() {
            let RateLimitDescriptor {
                entries,
                hits_addend,
            } = descriptor;
            let cost = hits_addend.unwrap_or(default);
            let cost = u32::try_from(cost).map_err(|_| {
                Status::invalid_argument("`hits_addend` must be at most 4294967295")
            })?;
            let is_free = cost == 0;
            let entries: Vec<_> = { entries.into_iter() }
                .map(|entry| (entry.key, entry.value))
                .collect();
            let parts = if is_free {
                &mut asked.free
            } else {
                &mut asked.charged
            };
            let key = (is_free, entries.clone());
            let at = *known.entry(key).or_insert_with(|| {
                parts.push(Part {
                    domain: Arc::clone(&domain),
                    entries,
                    is_descriptor: true,
                    is_first: place == 0,
                    cost: 0,
                });
                parts.len() - 1
            });
            // What only looks asks for one.
            let cost = if is_free {
                1
            } else {
                parts[at].cost.saturating_add(cost)
            };
            parts[at].cost = cost;
            asked.places.push((is_free, at));
        }
        Ok(asked)
    }
}

/// What some of the descriptors got.
#[derive(Default)]
struct Decided {
    is_denied: bool,
    joint: Option<JointDecision>,
}

fn decided(verdict: redisson_rate_limiter::Result<Verdict<()>>) -> Result<Decided, Status> {
    match verdict {
        Ok(Verdict::Granted(joint)) => Ok(Decided {
            is_denied: false,
            joint,
        }),
        Ok(Verdict::Rejected((), joint)) => Ok(Decided {
            is_denied: true,
            joint: Some(joint),
        }),
        Err(error) if error.kind() == ErrorKind::ExceedsLimit => Ok(Decided {
            is_denied: true,
            joint: None,
        }),
        Err(error) => Err(status(&error)),
    }
}

impl Decided {
    /// Of the strictest rule for a descriptor; without limit if there is none.
    fn status(&self, place: usize) -> DescriptorStatus {
        let ok = DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        };
        let Some(joint) = &self.joint else { return ok };
        let strictest = joint.of_part(place).max_by_key(|(_, decision)| {
            let retry_after = decision.retry_after().unwrap_or_default();
            (retry_after, std::cmp::Reverse(decision.remaining()))
        });
        let Some((name, decision)) = strictest else {
            return ok;
        };
        let code = if denies(decision) {
            Code::OverLimit
        } else {
            Code::Ok
        };
        DescriptorStatus {
            code: code.into(),
            current_limit: current_limit(name, decision),
            limit_remaining: u32::try_from(decision.remaining()).unwrap_or(u32::MAX),
            duration_until_reset: Some(duration(decision.reset())),
        }
    }
}

/// `None` where the failure policy decided. The unit is unknown if the window is not one of those that the protocol has.
fn current_limit(name: &str, decision: &Decision) -> Option<RateLimit> {
    let unit = match decision.window().as_millis() {
        1_000 => Unit::Second,
        60_000 => Unit::Minute,
        3_600_000 => Unit::Hour,
        86_400_000 => Unit::Day,
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
    { headers.iter() }
        .map(|(name, value)| HeaderValue {
            key: name.to_string(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        })
        .collect()
}

fn status(error: &Error) -> Status {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::InvalidArgument | ErrorKind::InvalidName => Status::invalid_argument(text),
        ErrorKind::StoreUnavailable
        | ErrorKind::Indeterminate
        | ErrorKind::AuthenticationFailed
        | ErrorKind::QueueFull
        | ErrorKind::Closed => Status::unavailable(text),
        _ => Status::internal(text),
    }
}
