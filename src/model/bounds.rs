//! How much work a call may do.

/// The bounds of a call's work, as in `lua/limits.lua`. In unit tests they are so small that few grants are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// So many grants are summed in any call.
    pub(crate) few: usize,
    /// Of more grants none are summed.
    pub(crate) summed: usize,
    /// So many expired grants any call removes.
    pub(crate) spare: usize,
    /// So many it removes where a request needs their permits, and so many grants it reads.
    pub(crate) page: usize,
}

impl Bounds {
    pub(crate) const SHIPPED: Self = Self {
        few: 32,
        summed: 100,
        spare: 64,
        page: 500,
    };
    #[cfg(test)]
    pub(crate) const OF_TESTS: Self = Self {
        few: 2,
        summed: 4,
        spare: 2,
        page: 5,
    };
}

#[cfg(not(test))]
pub(crate) const BOUNDS: Bounds = Bounds::SHIPPED;
#[cfg(test)]
pub(crate) const BOUNDS: Bounds = Bounds::OF_TESTS;
