//! How much work a call may do.

/// The bounds of a call's work, as in `lua/shared/limits.lua`. In unit tests they are so small that a few grants exceed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Any call sums up to this many grants.
    pub(crate) few: usize,
    /// No call sums more grants than this.
    pub(crate) summed: usize,
    /// Any call removes up to this many expired grants.
    pub(crate) spare: usize,
    /// The same of each limiter of a joint decision.
    pub(crate) jointly: usize,
    /// A call removes up to this many if a request needs their permits, and reads up to this many grants.
    pub(crate) page: usize,
}

impl Bounds {
    #[cfg(any(feature = "redis", not(test)))]
    pub(crate) const SHIPPED: Self = Self {
        few: 32,
        summed: 100,
        spare: 64,
        jointly: 16,
        page: 500,
    };
    #[cfg(test)]
    pub(crate) const OF_TESTS: Self = Self {
        few: 2,
        summed: 4,
        spare: 2,
        jointly: 1,
        page: 5,
    };
}

#[cfg(not(test))]
pub(crate) const BOUNDS: Bounds = Bounds::SHIPPED;
#[cfg(test)]
pub(crate) const BOUNDS: Bounds = Bounds::OF_TESTS;
