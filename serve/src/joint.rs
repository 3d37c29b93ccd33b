//! What is reported of the decision of several limiters.

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use redisson_rate_limiter::{Decision, DecisionSource, JointDecision};
use redisson_rate_limiter_tower::fields::{Fields, Limit, retry_after};

/// Whether this limiter is why a request was denied: one that would have granted it says that it
/// could be asked at once.
pub(super) fn denies(decision: &Decision) -> bool {
    decision.retry_after().is_some_and(|time| !time.is_zero())
}

/// Each limiter's name and decision, the one that decides first.
pub(super) fn strictest_first(joint: &JointDecision) -> Vec<(&str, &Decision)> {
    let deciding = joint.deciding();
    let is_other = |it: &(&str, &Decision)| !std::ptr::eq(it.1, deciding.1);
    let others = joint.by_limiter().filter(is_other);
    std::iter::once(deciding).chain(others).collect()
}

/// Adds the header fields that state the limits.
pub(super) fn state_limits(headers: &mut HeaderMap, joint: &JointDecision) {
    let deciding = joint.deciding().1;
    // Of one that a rule blocks no end is known.
    let is_blocked = deciding.source() == DecisionSource::Rule;
    if let Some(time) = deciding.retry_after().filter(|_| !is_blocked) {
        headers.insert(RETRY_AFTER, retry_after(time));
    }
    let limits = strictest_first(joint).into_iter();
    let limits: Vec<_> = limits
        .filter_map(|(name, decision)| Limit::of(name, decision))
        .collect();
    Fields::Ietf.add_to(headers, &limits);
}

/// Adds the header field that states the limit of a rule which a request costs more than.
pub(super) fn state_limit(headers: &mut HeaderMap, rule: &str, limit: u64) {
    let mut stated = Limit::default();
    (stated.name, stated.limit) = (rule.into(), Some(limit));
    Fields::Ietf.add_policies_to(headers, &[stated]);
}
