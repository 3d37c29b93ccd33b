//! A policy that is chosen at run time.

use std::fmt;
use std::time::Duration;

use super::algorithm::{Algorithm, quota_of};
use super::model::Model;
use super::shared_rate::SharedRate;
use crate::error::Result;
use crate::quota::Quota;
use crate::rate::Rate;

/// The numbers that a limiter decides by: each policy of this crate, and each type that converts
/// into an [`AnyPolicy`], such as one of your configuration. For an algorithm of your own,
/// implement [`Limiter`](crate::Limiter).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # fn main() -> Result<()> {
/// fn limiter<P: Policy>(client: &RedissonClient, policy: P) -> Result<PolicyLimiter<P>> {
///     Ok(client.policy_limiter(policy)?.with_prefix("login:"))
/// }
///
/// let client = RedissonClient::in_memory();
/// let logins = limiter(&client, FixedWindow::new(5, Duration::from_secs(60)))?;
/// assert_eq!(logins.prefix(), "login:");
/// # Ok(()) }
/// ```
pub trait Policy: fmt::Debug + Clone + Into<AnyPolicy> + Send + Sync + 'static {
    /// How much a target has, and in which time all of it comes back.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    /// assert_eq!(SlidingWindowLog::new(100, minute).quota(), Quota::new(100, minute));
    /// assert_eq!(TokenBucket::per_second(10).with_capacity(50).quota(), Quota::new(50, 5 * second));
    /// // 100 that flow out, and 100 that wait.
    /// assert_eq!(LeakyBucket::new(100, minute).quota(), Quota::new(200, 2 * minute));
    /// # Ok(()) }
    /// ```
    fn quota(&self) -> Quota {
        self.clone().into().known_quota()
    }
}

impl<P: fmt::Debug + Clone + Into<AnyPolicy> + Send + Sync + 'static> Policy for P {}

macro_rules! any_policy {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(use super::$Policy;)*

        /// A policy of any algorithm, chosen at run time, such as by a configuration file. A
        /// limiter with it has all that [`PolicyLimiter`](crate::PolicyLimiter) has.
        ///
        /// With the feature `serde` it is read from and written as the name of the algorithm,
        /// `algorithm`, and the fields that the policy's page shows. `rate` is how much in which
        /// time, such as `5/1m` or `10/s`; times are whole numbers of `ms`, `s`, `m`, `h` or `d`. A
        /// field that is left out has the value that the policy's constructor gives it. An unknown
        /// field is an error, and so is a number that the policy refuses. The same in TOML:
        ///
        /// ```toml
        /// [per-user]
        /// algorithm = "token_bucket"
        /// rate = "10/s"
        /// capacity = 100
        ///
        /// [orders] # RRateLimiters, which Java services share; one that exists keeps its own rate
        /// algorithm = "shared_rate"
        /// rate = "5/s"
        /// ```
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
        ///     let limiter = client.policy_limiter(policy.clone())?.with_prefix(policy.algorithm());
        ///     assert_eq!(limiter.check(":alice", 1).await?.remaining(), 99);
        /// }
        /// # Ok(()) }
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(
            feature = "serde",
            serde(tag = "algorithm", rename_all = "snake_case", try_from = "crate::fields::Fields")
        )]
        #[non_exhaustive]
        pub enum AnyPolicy {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                $Policy($Policy),
            )*
            /// `shared_rate`: each key is an `RRateLimiter`, which Java services share. A request
            /// creates a missing one with this rate, and leaves one that exists as it is, as
            /// [`RateLimiter::with_rate`](crate::RateLimiter::with_rate) does. It expires only with
            /// a keep alive: give one where keys come and go, or use a
            /// [`KeyedRateLimiter`](crate::KeyedRateLimiter), whose limiters are its own. In JSON:
            /// `{"algorithm":"shared_rate","rate":"5/1s","rate_type":"per_client","keep_alive":"1m"}`.
            /// `rate_type` and `keep_alive` may be left out.
            SharedRate(Rate),
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
                    Self::SharedRate(_) => "shared_rate",
                }
            }

            /// A policy of each algorithm, to compare them, or to test what all of them must show:
            /// a new target has `limit`, and when it has used that, all of it is back about a
            /// `window` later. A [`TokenBucket`] that gets less than a token a second has a
            /// multiple of the limit, which a request costs as many times.
            ///
            /// ```
            /// # use redisson_rate_limiter::*;
            /// # use std::time::Duration;
            /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
            /// # async fn main() -> Result<()> {
            /// let client = RedissonClient::in_memory();
            /// for policy in AnyPolicy::examples(100, Duration::from_secs(10)) {
            ///     let limiter = client.policy_limiter(policy.clone())?.with_prefix(policy.algorithm());
            ///     assert!(limiter.check(":alice", 100).await?.is_granted());
            ///     assert!(!limiter.check(":alice", 100).await?.is_granted());
            /// }
            /// # Ok(()) }
            /// ```
            pub fn examples(limit: u32, window: Duration) -> impl Iterator<Item = Self> {
                let policies = [$(Self::$Policy($Policy::example(limit, window)),)*];
                let rate = Rate::overall(limit.into(), window);
                policies.into_iter().chain([Self::SharedRate(rate)])
            }
        }

        #[cfg(feature = "serde")]
        impl TryFrom<crate::fields::Fields> for AnyPolicy {
            type Error = String;

            fn try_from(mut fields: crate::fields::Fields) -> Result<Self, String> {
                use crate::fields::AsFields;
                let algorithm: String = fields.require("algorithm")?;
                match &*algorithm {
                    $(stringify!($name) => $Policy::of(fields).map(Self::$Policy),)*
                    SharedRate::NAME => Rate::of(fields).map(Self::SharedRate),
                    other => {
                        let known = [$(stringify!($name),)* SharedRate::NAME];
                        Err(crate::fields::unknown("variant", other, &known))
                    }
                }
            }
        }

        impl fmt::Display for AnyPolicy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$Policy(policy) => policy.fmt(f),)*
                    Self::SharedRate(rate) => write!(f, "shared rate: {rate}"),
                }
            }
        }

        impl AnyPolicy {
            /// The algorithm with these numbers, for the client of this id. Refuses numbers that
            /// the algorithm cannot work with.
            pub(crate) fn model(self, client_id: &str) -> Result<Algorithm> {
                match self {
                    $(Self::$Policy(policy) => {
                        policy.validate()?;
                        Ok(policy.into())
                    })*
                    Self::SharedRate(rate) => {
                        let shared = SharedRate::where_missing(client_id.into(), rate)?;
                        Ok(shared.into())
                    }
                }
            }

            fn known_quota(&self) -> Quota {
                match self {
                    $(Self::$Policy(policy) => quota_of(policy),)*
                    Self::SharedRate(rate) => rate.quota(),
                }
            }
        }
    };
}
policies!(any_policy! {});

impl From<Rate> for AnyPolicy {
    fn from(rate: Rate) -> Self {
        Self::SharedRate(rate)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::client::RedissonClient;
    use crate::error::Error;
    use crate::policies::differential_tests::POLICIES;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_policy_of_another_algorithm_does_not_replace_one_in_force() {
        let client = RedissonClient::in_memory();
        let limiter = client.policy_limiter(AnyPolicy::from(FixedWindow::new(5, MINUTE)));
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
    fn each_policy_prints_its_numbers() {
        let printed = AnyPolicy::examples(100, MINUTE).map(|policy| policy.to_string());
        let expected = include_str!("../../docs/memory.md");
        for policy in printed {
            assert!(expected.contains(&format!("| {policy} |")), "{policy}");
        }
        let aligned = FixedWindow::new(100, MINUTE).aligned_to_clock();
        let printed = AnyPolicy::from(aligned).to_string();
        assert_eq!(printed, "fixed window: 100 per 60s, aligned to the clock");
    }

    #[test]
    fn there_is_an_example_of_each_policy_whatever_its_quota() {
        let client = RedissonClient::in_memory();
        for (limit, window) in [(2, 9), (5, 5 * 3_600_000), (100, 60_000), (10_000, 10)] {
            let examples = AnyPolicy::examples(limit, Duration::from_millis(window));
            let names = examples.map(|policy| {
                let name = policy.algorithm();
                client.policy_limiter(policy).unwrap();
                name
            });
            let names: BTreeSet<_> = names.collect();
            assert_eq!(names.len(), POLICIES + 1);
        }
        // Numbers out of range are refused when a client is given the policy.
        for policy in AnyPolicy::examples(0, Duration::ZERO) {
            assert!(client.policy_limiter(policy).is_err());
        }
    }

    /// The form that the documentation of each shows, which has all of its fields.
    #[cfg(feature = "serde")]
    #[test]
    fn the_documented_form_of_each_is_the_one_that_is_read_and_written() {
        macro_rules! pages {
            ([] $($name:ident: $Policy:ident,)*) => {
                [$((stringify!($name), include_str!(concat!(stringify!($name), "/mod.rs")))),*]
            };
        }
        let own = ("shared_rate", include_str!("any_policy.rs"));
        for (name, page) in policies!(pages! {}).into_iter().chain([own]) {
            let start = format!("`{{\"algorithm\":\"{name}\"");
            let form = page
                .split_once(&start)
                .map(|(_, rest)| rest.split('`').next());
            let form = format!("{}{}", &start[1..], form.flatten().unwrap_or_default());
            let read: AnyPolicy = serde_json::from_str(&form).unwrap();
            assert_eq!(read.algorithm(), name);
            assert_eq!(serde_json::to_string(&read).unwrap(), form);
        }
    }
}
