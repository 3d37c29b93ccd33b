//! The registry of the policies. `lib.rs` has it before all other modules, so that each may use the
//! macro. It depends on nothing: the programs and tests that assemble the scripts have it too.

/// Passes the policies to another macro, behind the arguments for that one. A policy is the name of
/// its folder here and of its files in `lua/`, and the name of its type. The order is that of their
/// functions in `lua/joint.lua`, as it is sent.
macro_rules! policies {
    ($with:ident! { $($arguments:tt)* }) => {
        $with! {
            [$($arguments)*]
            fixed_window: FixedWindow,
            sliding_window_log: SlidingWindowLog,
            sliding_window_counter: SlidingWindowCounter,
            token_bucket: TokenBucket,
            quota_bucket: QuotaBucket,
            leaky_bucket: LeakyBucket,
            penalty_token_bucket: PenaltyTokenBucket,
            gcra: Gcra,
        }
    };
}
