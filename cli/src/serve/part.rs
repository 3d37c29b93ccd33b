//! What rules decide: a request, or one descriptor of Envoy's protocol.

use std::sync::Arc;
use std::time::Duration;

/// Entries with names and values, such as `user` and `alice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) domain: Arc<str>,
    pub(super) entries: Vec<(String, String)>,
    /// Whether a rule applies only if it names all entries, in this order, as Envoy's protocol has
    /// it. Otherwise it applies if it names some of them.
    pub(super) is_descriptor: bool,
    /// Whether a rule for all requests applies to it: of the parts of a request to one.
    pub(super) is_first: bool,
    /// As it was asked for, which may be more than limiters can charge.
    pub(super) cost: u64,
    /// How long it may wait for a turn that a leaky bucket gives it: with a later one it is denied.
    pub(super) longest_turn: Duration,
}

impl Part {
    /// The domain and the names of the entries, without their values.
    pub(super) fn source(&self) -> String {
        let names: Vec<&str> = self.entries.iter().map(|(name, _)| &**name).collect();
        match (&*self.domain, names.join(", ")) {
            ("", names) => names,
            (domain, names) => format!("{domain}: {names}"),
        }
    }

    /// What limiters are asked for; `None` if that is more than any limiter charges at once.
    pub(super) fn chargeable(&self) -> Option<u32> {
        u32::try_from(self.cost).ok()
    }
}
