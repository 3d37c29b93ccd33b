//! How much work a call may do.

/// The bounds of a call's work, as in `lua/shared/limits.lua`. In unit tests they are so low that a
/// few grants exceed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Any call sums up to this many grants.
    pub(crate) always_summed: usize,
    /// No call sums more grants than this.
    pub(crate) most_summed: usize,
    /// Any call removes up to this many expired grants.
    pub(crate) always_removed: usize,
    /// A joint decision removes up to this many expired grants of each of its limiters.
    pub(crate) always_removed_jointly: usize,
    /// A call reads up to this many grants, and removes up to this many expired ones if a request
    /// needs their permits.
    pub(crate) most_read: usize,
    /// A call reads up to this many live grants to find when enough of them have expired.
    pub(crate) most_walked: usize,
    /// A call for several limiters reads up to this many live grants of each for that.
    pub(crate) most_walked_jointly: usize,
}

impl Bounds {
    #[cfg(any(feature = "redis", not(test)))]
    pub(crate) const SHIPPED: Self = Self {
        always_summed: 32,
        most_summed: 100,
        always_removed: 64,
        always_removed_jointly: 16,
        most_read: 500,
        most_walked: 2000,
        most_walked_jointly: 50,
    };
    #[cfg(test)]
    pub(crate) const OF_TESTS: Self = Self {
        always_summed: 2,
        most_summed: 4,
        always_removed: 2,
        always_removed_jointly: 1,
        most_read: 5,
        most_walked: 6,
        most_walked_jointly: 6,
    };
}

#[cfg(not(test))]
pub(crate) const BOUNDS: Bounds = Bounds::SHIPPED;
#[cfg(test)]
pub(crate) const BOUNDS: Bounds = Bounds::OF_TESTS;
