//! The algorithms by name.

macro_rules! kinds {
    ($($kind:ident = $name:literal;)*) => {
        /// An algorithm without its numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// Every algorithm: what each must show is tested by this list.
            #[cfg(any(test, fuzzing))]
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name of its function in `lua/joint.lua`.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    FixedWindow = "fixed_window";
    LeakyBucket = "leaky_bucket";
    PenaltyTokenBucket = "penalty_token_bucket";
    QuotaBucket = "quota_bucket";
    SharedRate = "shared_rate";
    SlidingWindowCounter = "sliding_window_counter";
    SlidingWindowLog = "sliding_window_log";
    TokenBucket = "token_bucket";
}
