//! A policy that is chosen at run time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::algorithm::{Algorithm, Internal, Model, Policy, Sealed};
use super::example::Example;
use crate::error::{Error, Result};

macro_rules! any_policy {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(use super::$Policy;)*

        /// A policy of any algorithm, chosen at run time, such as by a configuration file.
        ///
        /// ```
        /// use redisson_rate_limiter::{AnyPolicy, FixedWindow, RedissonClient, TokenBucket};
        /// use std::time::Duration;
        ///
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
        /// # async fn main() -> redisson_rate_limiter::Result<()> {
        /// let client = RedissonClient::in_memory();
        /// let policies: [AnyPolicy; 2] = [
        ///     FixedWindow::new(100, Duration::from_secs(60)).into(),
        ///     TokenBucket::per_second(2).with_capacity(100).into(),
        /// ];
        /// for policy in policies {
        ///     let limiter = client.limiter(policy.clone())?.with_prefix(policy.algorithm());
        ///     assert_eq!(limiter.check(":alice", 1).await?.remaining(), 99);
        /// }
        /// # Ok(()) }
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AnyPolicy {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                $Policy($Policy),
            )*
        }

        $(impl From<$Policy> for AnyPolicy {
            fn from(policy: $Policy) -> Self {
                Self::$Policy(policy)
            }
        })*

        impl AnyPolicy {
            /// The name of the algorithm.
            ///
            /// ```
            /// # use redisson_rate_limiter::*;
            /// let policy = AnyPolicy::from(TokenBucket::per_second(10));
            /// assert_eq!(policy.algorithm(), "token_bucket");
            /// ```
            #[must_use]
            pub fn algorithm(&self) -> &'static str {
                match self {
                    $(Self::$Policy(_) => stringify!($name),)*
                }
            }

            /// A policy of each algorithm, to compare them, or to test what all of them must show: a new target has `limit`,
            /// and when it has used that, all of it is back about a `window` later. A [`TokenBucket`] that gets less than a
            /// token a second has a multiple of the limit, which a request costs as many times.
            ///
            /// ```
            /// # use redisson_rate_limiter::*;
            /// # use std::time::Duration;
            /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
            /// # async fn main() -> Result<()> {
            /// let client = RedissonClient::in_memory();
            /// for policy in AnyPolicy::examples(100, Duration::from_secs(10)) {
            ///     let limiter = client.limiter(policy.clone())?.with_prefix(policy.algorithm());
            ///     assert!(limiter.check(":alice", 100).await?.is_granted());
            ///     assert!(!limiter.check(":alice", 100).await?.is_granted());
            /// }
            /// # Ok(()) }
            /// ```
            pub fn examples(limit: u32, window: Duration) -> impl Iterator<Item = Self> {
                [$(Self::$Policy($Policy::example(limit, window)),)*].into_iter()
            }
        }

        impl fmt::Display for AnyPolicy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$Policy(policy) => policy.fmt(f),)*
                }
            }
        }

        impl Policy for AnyPolicy {}

        impl Sealed for AnyPolicy {
            fn validate(&self, _: Internal) -> Result<()> {
                match self {
                    $(Self::$Policy(policy) => Model::validate(policy),)*
                }
            }

            fn after(&self, before: &Self, _: Internal) -> Result<(Self, Duration)> {
                match (self, before) {
                    $((Self::$Policy(policy), Self::$Policy(before)) => {
                        let (policy, time) = Model::after(policy, before);
                        Ok((Self::$Policy(policy), time))
                    })*
                    _ => Err(Error::InvalidArgument {
                        argument: "policy",
                        reason: "must have the same algorithm as the one before, which the state of the targets is of",
                    }),
                }
            }

            fn model(&self, _: Internal) -> Algorithm {
                Algorithm(Arc::new(match self {
                    $(Self::$Policy(policy) => policy.clone().into(),)*
                }))
            }
        }
    };
}
policies!(any_policy! {});

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::client::RedissonClient;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_policy_of_another_algorithm_does_not_replace_one_in_force() {
        let client = RedissonClient::in_memory();
        let limiter = client.limiter(AnyPolicy::from(FixedWindow::new(5, MINUTE)));
        let limiter = limiter.unwrap();
        let larger = AnyPolicy::from(FixedWindow::new(9, MINUTE));
        limiter.set_policy(larger.clone()).unwrap();
        let refused = limiter.set_policy(SlidingWindowLog::new(5, MINUTE).into());
        let argument = |error| match error {
            Error::InvalidArgument { argument, .. } => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused.map_err(argument), Err("policy"));
        assert_eq!(limiter.policy(), larger);
    }

    #[test]
    fn there_is_an_example_of_each_policy_whatever_its_quota() {
        let client = RedissonClient::in_memory();
        for (limit, window) in [(2, 9), (5, 5 * 3_600_000), (100, 60_000), (10_000, 10)] {
            let examples = AnyPolicy::examples(limit, Duration::from_millis(window));
            let names = examples.map(|policy| {
                let name = policy.algorithm();
                client.limiter(policy).unwrap();
                name
            });
            let names: BTreeSet<_> = names.collect();
            assert_eq!(names.len(), crate::policies::differential_tests::POLICIES);
        }
        // What is out of range is refused when a client gets it.
        for policy in AnyPolicy::examples(0, Duration::ZERO) {
            assert!(client.limiter(policy).is_err());
        }
    }
}
