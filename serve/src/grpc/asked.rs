//! Turns the descriptors of a request into the parts that rules decide.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::messages::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::part::Part;

/// The most descriptors of a request. Envoy sends a few; a message of the largest size could have
/// many thousands, and each is compared with each rule.
const MOST_DESCRIPTORS: usize = 64;
/// The most entries of a descriptor.
const MOST_ENTRIES: usize = 64;

/// The descriptors of a request as parts. Equal descriptors become one part with their total cost.
#[derive(Default)]
pub(super) struct Asked {
    /// The parts that are charged.
    pub(super) charged: Vec<Part>,
    /// The parts that are only peeked at, because their descriptors add no hits or negative ones.
    pub(super) free: Vec<Part>,
    /// Where the part of each descriptor is: whether in `free` or in `charged`, and its index.
    pub(super) places: Vec<(bool, usize)>,
}

impl Asked {
    /// Returns `None` if there are too many descriptors or entries to decide.
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
            // A part that is only peeked at is asked about one hit.
            parts[at].cost = match is_free {
                true => 1,
                false => parts[at].cost.saturating_add(cost),
            };
            asked.places.push((is_free, at));
        }
        if asked.places.is_empty() {
            // Rules for all requests apply to a request without descriptors too.
            asked.charged.push(part(Vec::new(), default));
        }
        // Rules for all requests apply to one part only: a charged one, if there is any.
        let first = asked.charged.first_mut().or(asked.free.first_mut());
        if let Some(first) = first {
            first.is_first = true;
        }
        Some(asked)
    }
}

/// Decodes a text; U+FFFD replaces what is not UTF-8.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
