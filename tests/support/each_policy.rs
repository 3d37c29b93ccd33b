//! The list of policies: what each policy must show, a test asks of all of these. `tests/scripts` holds it to the scripts.

/// Evaluates the body for each policy, with its name, a function that makes it with so much capacity (2 or more), and its
/// unit, in which costs are counted. No whole unit flows back before an hour has passed.
macro_rules! each_policy {
    (|$name:ident, $make:ident, $unit:ident| $body:expr) => {{
        let hour = std::time::Duration::from_secs(3600);
        each_policy! { $name, $make, $unit, $body;
            "fixed_window", 1, |all| redisson_rate_limiter::FixedWindow::new(all, hour);
            "sliding_window_log", 1, |all| redisson_rate_limiter::SlidingWindowLog::new(all, hour);
            "sliding_window_counter", 1, |all| {
                redisson_rate_limiter::SlidingWindowCounter::new(all, hour).with_period(hour)
            };
            "token_bucket", 3600, |all| {
                redisson_rate_limiter::TokenBucket::per_second(1).with_capacity(3600 * all)
            };
            "quota_bucket", 1, |all| {
                redisson_rate_limiter::QuotaBucket::new(1, hour).with_capacity(all)
            };
            "leaky_bucket", 1, |all| {
                redisson_rate_limiter::LeakyBucket::new(1, hour).with_capacity(all - 1)
            };
            "penalty_token_bucket", 1, |all| {
                redisson_rate_limiter::PenaltyTokenBucket::new(1, hour).with_capacity(all)
            };
        }
    }};
    ($name:ident, $make:ident, $unit:ident, $body:expr;
        $($policy:literal, $costs:literal, |$all:ident| $with:expr;)*) => {
        $({
            let ($name, $unit): (&str, u32) = ($policy, $costs);
            let $make = |$all: u32| $with;
            $body
        })*
    };
}
