//! The algorithms by name.

/// An algorithm without its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    FixedWindow,
    LeakyBucket,
    PenaltyTokenBucket,
    QuotaBucket,
    SharedRate,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
}

#[cfg(feature = "redis")]
impl Kind {
    /// The name of its function in `lua/joint.lua`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::LeakyBucket => "leaky_bucket",
            Self::PenaltyTokenBucket => "penalty_token_bucket",
            Self::QuotaBucket => "quota_bucket",
            Self::SharedRate => "shared_rate",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::TokenBucket => "token_bucket",
        }
    }
}
