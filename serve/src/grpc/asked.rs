//! The descriptors of a request, as the parts that rules decide.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::messages::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::part::Part;

/// A message of the largest size could have many thousands, each of which is held against each
/// rule. Envoy sends a few.
const MOST_DESCRIPTORS: usize = 64;
const MOST_ENTRIES: usize = 64;

/// The descriptors of a request as parts. Those that are the same are one, which costs as much as
/// all of them.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) charged: Vec<Part>,
    /// Those that are only looked at: they add no hits, or would give some back.
    pub(super) free: Vec<Part>,
    /// Of each descriptor: whether it is free, and its place among those.
    pub(super) places: Vec<(bool, usize)>,
}

impl Asked {
    /// `None` if there are more descriptors or entries than are decided.
    pub(super) fn new(request: RateLimitRequest, longest_turn: Duration) -> Option<Self> {
        let descriptors = request.descriptors;
        let has_too_many = |it: &RateLimitDescriptor| it.entries.len() > MOST_ENTRIES;
        if descriptors.len() > MOST_DESCRIPTORS || descriptors.iter().any(has_too_many) {
            return None;
        }
        let mut asked = Self::default();
        let domain: Arc<str> = text(request.domain).into();
        let part = |entries, cost| Part {
            domain: Arc::clone(&domain),
            entries,
            is_descriptor: true,
            is_first: false,
            cost,
            longest_turn,
        };
        let default = u64::from(request.hits_addend.max(1));
        let mut known = HashMap::new();
        for descriptor in descriptors {
            let cost = descriptor.hits_addend.unwrap_or(default);
            let is_free = cost == 0 || descriptor.is_negative_hits;
            let entries: Vec<_> = descriptor
                .entries
                .into_iter()
                .map(|Entry { key, value }| (text(key), text(value)))
                .collect();
            let parts = match is_free {
                true => &mut asked.free,
                false => &mut asked.charged,
            };
            let key = (is_free, entries.clone());
            let at = *known.entry(key).or_insert_with(|| {
                parts.push(part(entries, 0));
                parts.len() - 1
            });
            // A descriptor that is only looked at asks for one hit.
            parts[at].cost = match is_free {
                true => 1,
                false => parts[at].cost.saturating_add(cost),
            };
            asked.places.push((is_free, at));
        }
        if asked.places.is_empty() {
            // A rule for all requests is for this one too.
            asked.charged.push(part(Vec::new(), default));
        }
        // A rule for all requests is charged if the request is charged at all.
        let first = asked.charged.first_mut().or(asked.free.first_mut());
        if let Some(first) = first {
            first.is_first = true;
        }
        Some(asked)
    }
}

/// The text, with a sign in place of what is not UTF-8.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
