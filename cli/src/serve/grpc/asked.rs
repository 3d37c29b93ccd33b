//! The descriptors of a request, read and bounded.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::Status;

use super::messages::{RateLimitDescriptor, RateLimitRequest};
use crate::serve::part::Part;

/// A message of the largest size could have many thousands, each of which is held against each rule. Envoy sends a few.
const MOST_DESCRIPTORS: usize = 64;
const MOST_ENTRIES: usize = 64;

/// The descriptors of a request as parts. Those that are the same are one, which costs as much as all of them.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) charged: Vec<Part>,
    pub(super) free: Vec<Part>,
    /// Of each descriptor: whether it is free, and its place among those.
    pub(super) places: Vec<(bool, usize)>,
}

impl Asked {
    pub(super) fn new(request: RateLimitRequest) -> Result<Self, Status> {
        check(&request).map_err(Status::invalid_argument)?;
        let domain: Arc<str> = request.domain.into();
        let default = u64::from(request.hits_addend.max(1));
        let mut asked = Self::default();
        let mut known = HashMap::new();
        for descriptor in request.descriptors {
            let RateLimitDescriptor {
                entries,
                hits_addend,
                ..
            } = descriptor;
            let cost = hits_addend.unwrap_or(default);
            let cost = u32::try_from(cost).map_err(|_| {
                Status::invalid_argument("`hits_addend` must be at most 4294967295")
            })?;
            let is_free = cost == 0;
            let entries: Vec<_> = { entries.into_iter() }
                .map(|entry| (entry.key, text(entry.value)))
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
                    is_first: false,
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
        // A rule for all requests is charged if the request is charged at all.
        let first = asked.charged.first_mut().or(asked.free.first_mut());
        if let Some(first) = first {
            first.is_first = true;
        }
        Ok(asked)
    }
}

/// The text, with a sign in place of what is not UTF-8.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn check(request: &RateLimitRequest) -> Result<(), String> {
    if request.domain.is_empty() {
        return Err("`domain` must not be empty".to_owned());
    }
    let descriptors = &request.descriptors;
    if descriptors.is_empty() {
        return Err("there must be a descriptor".to_owned());
    }
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(format!("`descriptors` are more than {MOST_DESCRIPTORS}"));
    }
    if { descriptors.iter() }.any(|it| it.entries.len() > MOST_ENTRIES) {
        return Err(format!("`entries` are more than {MOST_ENTRIES}"));
    }
    // It would be charged if it were not read.
    if { descriptors.iter() }.any(|it| it.is_negative_hits) {
        return Err("`is_negative_hits`: no hits are given back here".to_owned());
    }
    Ok(())
}
