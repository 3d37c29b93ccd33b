//! The algorithms other than RRateLimiter's, as pure models: numbers, the state of a target and a request in, answer out.
//!
//! A policy, such as [`TokenBucket`](crate::TokenBucket), holds its numbers (`NAME/mod.rs`). Its algorithm exists as a pure model
//! (`NAME/model.rs`) and as a script (`lua/policies/NAME.lua`). A [`PolicyLimiter`](crate::PolicyLimiter) applies it to
//! targets. The path of a request: `PolicyLimiter -> combining -> Store::check -> lua/policies/NAME.lua`.
//!
//! CONTRIBUTING.md says what a new policy needs.

#[macro_use]
mod numbers;

pub(crate) mod algorithm;
mod any_policy;
mod bucket;
pub(crate) mod call;
mod counters;
#[cfg(all(test, feature = "redis"))]
mod differential_tests;
#[cfg(all(any(test, fuzzing), feature = "redis"))]
pub(crate) mod every_kind;
mod example;
#[cfg(all(test, feature = "redis"))]
mod history_tests;
mod lengths;
#[cfg(feature = "redis")]
pub(crate) mod reply;
pub(crate) mod shared_rate;
mod starts;
pub(crate) mod target_keys;

pub use algorithm::Policy;
pub use any_policy::AnyPolicy;

macro_rules! modules {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(
            mod $name;
            pub use $name::$Policy;
        )*
    };
}
policies!(modules! {});

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn each_policy_prints_its_numbers() {
        let policies = [
            FixedWindow::new(100, MINUTE).to_string(),
            SlidingWindowLog::new(100, MINUTE).to_string(),
            SlidingWindowCounter::new(100, MINUTE).to_string(),
            TokenBucket::per_second(10).to_string(),
            QuotaBucket::new(10, MINUTE).with_capacity(20).to_string(),
            LeakyBucket::new(10, MINUTE).with_capacity(5).to_string(),
            PenaltyTokenBucket::new(10, MINUTE)
                .aligned_to_clock()
                .to_string(),
        ];
        let expected = [
            "fixed window: 100 per 60s",
            "sliding window log: 100 per 60s",
            "sliding window counter: 100 per 60s, by 6s",
            "token bucket: 10 per 1s, up to 10",
            "quota bucket: 10 per 60s, up to 20",
            "leaky bucket: 10 per 60s, up to 5 waiting",
            "penalty token bucket: 10 per 60s, up to 10, aligned to the clock",
        ];
        assert_eq!(policies, expected);
    }

    #[test]
    fn each_policy_returns_its_numbers() {
        let fixed = FixedWindow::new(1, MINUTE);
        assert_eq!((fixed.limit(), fixed.window()), (1, MINUTE));
        assert!(!fixed.is_aligned_to_clock());
        assert!(fixed.aligned_to_clock().is_aligned_to_clock());
        let log = SlidingWindowLog::new(2, MINUTE);
        assert_eq!((log.limit(), log.window()), (2, MINUTE));
        let counter = SlidingWindowCounter::new(3, MINUTE).with_period(MINUTE / 4);
        assert_eq!((counter.limit(), counter.window()), (3, MINUTE));
        assert_eq!(counter.period(), MINUTE / 4);
        let tokens = TokenBucket::per_second(4).with_capacity(5);
        assert_eq!((tokens.rate(), tokens.capacity()), (4, 5));
        let quota = QuotaBucket::new(6, MINUTE).with_capacity(7);
        assert_eq!((quota.quota(), quota.capacity()), (6, 7));
        assert_eq!(quota.period(), MINUTE);
        let leaky = LeakyBucket::new(8, MINUTE).with_capacity(9);
        assert_eq!((leaky.quantity(), leaky.capacity()), (8, 9));
        assert_eq!(leaky.unit(), MINUTE);
        let penalty = PenaltyTokenBucket::new(10, MINUTE).with_capacity(11);
        assert_eq!((penalty.quantity(), penalty.capacity()), (10, 11));
        assert_eq!(penalty.unit(), MINUTE);
    }
}
