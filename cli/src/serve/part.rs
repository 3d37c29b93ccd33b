//! What rules decide: a request, or one descriptor of Envoy's protocol.

use std::sync::Arc;

/// Entries with names and values, such as `user` and `alice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) domain: Arc<str>,
    pub(super) entries: Vec<(String, String)>,
    /// Whether a rule applies only if it names all entries, in this order, as Envoy's protocol has it. Otherwise it applies if it
    /// names some of them.
    pub(super) is_descriptor: bool,
    /// Whether a rule for all requests applies to it: of the parts of a request to one.
    pub(super) is_first: bool,
    pub(super) cost: u32,
}
