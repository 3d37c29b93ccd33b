//! Reporting the joint decision of several limiters.

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use redisson_rate_limiter::{Decision, DecisionSource, JointDecision};
use redisson_rate_limiter_tower::fields::{Fields, Limit, retry_after};

/// Whether this limiter's decision denies the request. In a joint decision, a limiter that would
/// have granted the request states a time to retry of zero.
pub(super) fn denies(decision: &Decision) -> bool {
    decision.retry_after().is_some_and(|time| !time.is_zero())
}

/// The name and decision of each limiter; the one that decides comes first.
pub(super) fn strictest_first(joint: &JointDecision) -> Vec<(&str, &Decision)> {
    let deciding = joint.deciding();
    let is_other = |it: &(&str, &Decision)| !std::ptr::eq(it.1, deciding.1);
    let others = joint.by_limiter().filter(is_other);
    std::iter::once(deciding).chain(others).collect()
}

/// Adds the header fields that state the limits.
pub(super) fn state_limits(headers: &mut HeaderMap, joint: &JointDecision) {
    let deciding = joint.deciding().1;
    // A blocked request gets no time to retry, because it is unknown when the block ends.
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

/// Adds the header field that states the limit of a rule, for a request that costs more than that.
pub(super) fn state_limit(headers: &mut HeaderMap, rule: &str, limit: u64) {
    let mut stated = Limit::default();
    (stated.name, stated.limit) = (rule.into(), Some(limit));
    Fields::Ietf.add_policies_to(headers, &[stated]);
}
