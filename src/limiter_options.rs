//! The options of a limiter: how its requests wait, and what they get that Redis is not asked for
//! or cannot decide.

use std::time::Duration;

use crate::failure_policy::FailurePolicy;

/// Options of limiters, for all limiters of a client with
/// [`default_options`](crate::RedissonClientBuilder::default_options), or for one limiter with its
/// `with_options`, such as [`RateLimiter::with_options`](crate::RateLimiter::with_options).
///
/// An option that is not set for a limiter is as its client has it.
///
/// ```
/// use redisson_rate_limiter::{FailurePolicy, LimiterOptions, MemoryStore, RedissonClient};
///
/// let client = RedissonClient::builder()
///     .default_options(LimiterOptions::new().failure_policy(FailurePolicy::Deny).max_waiters(1_000))
///     .in_memory(&MemoryStore::new());
/// let limiter = client.rate_limiter("orders:api").with_options(LimiterOptions::new().max_waiters(10));
/// let options = LimiterOptions::new().failure_policy(FailurePolicy::Deny).max_waiters(10);
/// assert_eq!(*limiter.options(), options);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct LimiterOptions {
    failure_policy: Option<FailurePolicy>,
    remember_denials: Option<Duration>,
    max_waiters: Option<usize>,
    fail_fast: Option<bool>,
}

impl LimiterOptions {
    /// Sets no option.
    pub fn new() -> Self {
        Self::default()
    }

    /// What requests get while Redis is unavailable. The default is [`FailurePolicy::Error`].
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let half = LocalShare::one_of(2.try_into().expect("two clients"));
    /// let half = LimiterOptions::new().failure_policy(FailurePolicy::Local(half));
    /// let limiter = RedissonClient::in_memory()
    ///     .policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?
    ///     .with_options(half.clone());
    /// assert_eq!(*limiter.options(), half);
    /// # Ok(()) }
    /// ```
    pub fn failure_policy(self, policy: FailurePolicy) -> Self {
        Self {
            failure_policy: Some(policy),
            ..self
        }
    }

    /// Remembers the last denial, for `max_age` from the time that its call was sent: if it shows
    /// that fewer than n permits are left until some time, requests for n or more are denied until
    /// that time without another call. So a client that is mostly denied sends one call per
    /// `max_age`, however many requests it has. The default, zero, asks Redis for each request.
    ///
    /// Changes by other clients (permits given back, a new rate, a deleted limiter), and the end of
    /// a time to live, are seen up to `max_age` late. Changes by this client take effect at once:
    /// those of a method, and the rate of a request to a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter) or of a joint decision. Permits that come back
    /// with time are never late. Only an answer that says exactly how many permits are left is
    /// remembered.
    ///
    /// The client remembers the 1,024 limiters that were denied last, by name: handles may be made
    /// anew for each request, and a flood of requests for one key of a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter) sends few calls.
    ///
    /// It applies to `try_acquire`, a timeout of zero, and `check`. A remembered denial has the
    /// time that is left until the first permit comes back and otherwise the numbers of the
    /// remembered answer; it is from
    /// [`DecisionSource::Remembered`](crate::DecisionSource::Remembered). Waiters and
    /// [`check_all`](crate::RedissonClient::check_all) ask Redis as if nothing was remembered. A
    /// client that is used from several tokio runtimes may send one call for each of them.
    ///
    /// It changes nothing [in memory](crate::RedissonClient::in_memory), where a decision takes no
    /// longer than remembering one, nor for a [`PolicyLimiter`](crate::PolicyLimiter).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .rate_limiter("logins")
    ///     .with_options(LimiterOptions::new().remember_denials(Duration::from_millis(100)));
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// assert!(!limiter.try_acquire(1).await?);
    /// limiter.release(1).await?; // a change by this client
    /// assert!(limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    pub fn remember_denials(self, max_age: Duration) -> Self {
        Self {
            remember_denials: Some(max_age),
            ..self
        }
    }

    /// Bounds the callers in this process that wait for permits of one limiter: once there are
    /// `max`, `acquire` and its timed form fail at once with
    /// [`Error::QueueFull`](crate::Error::QueueFull). The default is no bound; with 0, all of them
    /// fail. All handles of a limiter share one queue; each refuses callers by its own bound.
    ///
    /// A caller counts from its call until its answer, including while its first call to Redis is
    /// in flight: choose a bound larger than the number of callers that come at once when permits
    /// are available.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?
    ///     .with_options(LimiterOptions::new().max_waiters(1));
    /// limiter.acquire("user:123", 1).await?;
    /// let (waited, refused) = tokio::join!(limiter.acquire("user:123", 1), limiter.acquire("user:123", 1));
    /// waited?;
    /// assert!(matches!(refused, Err(Error::QueueFull { waiters: 1, .. })));
    /// assert!(!limiter.try_acquire("user:123", 1).await?); // does not wait
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ArrayBlockingQueue")]
    pub fn max_waiters(self, max: usize) -> Self {
        Self {
            max_waiters: Some(max),
            ..self
        }
    }

    /// Whether the timed form of `acquire` returns `false` at once if its permits certainly come
    /// back after its timeout. By default it waits for the timeout.
    ///
    /// It uses [`RateLimiter::estimated_wait`](crate::RateLimiter::estimated_wait), without the
    /// waiters in front whose timeouts pass first. So it refuses no caller that would have been
    /// served, unless waiters in front are dropped, permits are given back or the rate is raised in
    /// the meantime. If nothing is known, the caller waits. More permits than the rate are an error
    /// as ever.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .rate_limiter("mail")
    ///     .with_options(LimiterOptions::new().fail_fast(true));
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// limiter.acquire(1).await?;
    /// let start = tokio::time::Instant::now();
    /// assert!(!limiter.try_acquire_timeout(1, Duration::from_secs(59)).await?);
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_secs(61)).await?);
    /// # Ok(()) }
    /// ```
    pub fn fail_fast(self, fail_fast: bool) -> Self {
        Self {
            fail_fast: Some(fail_fast),
            ..self
        }
    }

    /// These options, with those of `others` where they set none.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            failure_policy: self.failure_policy.or(others.failure_policy),
            remember_denials: self.remember_denials.or(others.remember_denials),
            max_waiters: self.max_waiters.or(others.max_waiters),
            fail_fast: self.fail_fast.or(others.fail_fast),
        }
    }

    pub(crate) fn policy(&self) -> &FailurePolicy {
        let policy = self.failure_policy.as_ref();
        policy.unwrap_or(&FailurePolicy::Error)
    }

    /// For how long after its call was sent a denial may be repeated without asking the store. Zero
    /// means never.
    pub(crate) fn denial_age(&self) -> Duration {
        self.remember_denials.unwrap_or_default()
    }

    pub(crate) fn most_waiters(&self) -> usize {
        self.max_waiters.unwrap_or(usize::MAX)
    }

    /// Whether a timed wait that cannot be served in time is refused at once.
    pub(crate) fn fails_fast(&self) -> bool {
        self.fail_fast.unwrap_or_default()
    }
}
