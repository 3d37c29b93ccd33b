//! Failure policies: what a request gets while Redis is down.

use std::num::NonZeroU32;

use crate::rate::RateType;
use crate::window::{Existing, SetUp, Settings};

/// What a request gets that Redis cannot decide: it cannot be reached, does not answer, or refuses
/// the credentials.
///
/// Set it with [`LimiterOptions::failure_policy`](crate::LimiterOptions::failure_policy), for all
/// limiters of a client or for one. It is for requests only. What sets or reads a limiter's state
/// fails with the error, whatever the policy. Mistakes of the caller are errors too: a limiter
/// without a rate, an invalid argument, a cost above the limit, a missing permission.
///
/// A request waits for its answer until the response timeout, or until the circuit breaker opens:
/// when an attempt to connect fails or is silent for 500 ms, or after three calls in a row without
/// an answer, or refused as all calls are. While the breaker is open, nothing is sent and the
/// policy decides at once. A new connection half opens it: one request at a time is sent, the
/// policy decides the others, and an answer closes it. If there is a connection but calls are not
/// answered, it half opens after a pause of 50 ms, which doubles up to 400 ms.
///
/// A request that was sent and got no answer may have taken its permits in Redis too. They come
/// back when their window has passed; the permits of a limiter with a [`Rate`](crate::Rate) come
/// back as soon as Redis can be reached.
///
/// ```
/// use redisson_rate_limiter::{FailurePolicy, LimiterOptions, LocalShare, MemoryStore, RedissonClient};
/// use std::num::NonZeroU32;
///
/// const CLIENTS: NonZeroU32 = NonZeroU32::new(4).unwrap();
/// # fn main() -> redisson_rate_limiter::Result<()> {
/// let quarter = FailurePolicy::Local(LocalShare::one_of(CLIENTS));
/// let client = RedissonClient::builder()
///     .default_options(LimiterOptions::new().failure_policy(quarter))
///     .in_memory(&MemoryStore::new());
/// let deny = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
/// let limiter = client.rate_limiter("logins").with_options(deny.clone());
/// assert_eq!(*limiter.options(), deny);
/// # Ok(()) }
/// ```
///
/// It is neither `Copy` nor `Hash`, so that later versions may add policies that hold more than
/// numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FailurePolicy {
    /// It waits for Redis until its response timeout, and then fails with the error. Once Redis has
    /// been down for one response timeout, it fails at once with
    /// [`StoreUnavailable`](crate::Error::StoreUnavailable) or
    /// [`AuthenticationFailed`](crate::Error::AuthenticationFailed), which have the cause.
    #[default]
    Error,
    /// It waits for Redis: a request that does not wait for permits as under
    /// [`Error`](Self::Error), and a waiter at its place in the queue until Redis answers again, or
    /// until its timeout. Nothing is granted without Redis. It suits workers that may not exceed a
    /// quota, and have nothing to do without it.
    Wait,
    /// It is denied. A waiter goes on waiting for Redis, as under [`Wait`](Self::Wait).
    Deny,
    /// It is granted, however many requests there are. Nothing is counted: the decision has the
    /// limit [left](crate::Decision::remaining), less what the request costs.
    Allow,
    /// A limiter in this process decides, with a share of the limit. A waiter keeps its place in
    /// the queue, and is served by that limiter or by Redis.
    #[cfg_attr(feature = "serde", serde(rename = "local_one_of"))]
    Local(LocalShare),
}

impl FailurePolicy {
    /// Whether a request that does not wait for permits fails with the error.
    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Error | Self::Wait)
    }
}

/// Which part of a limit one client grants by itself while Redis is down.
///
/// The share of one in `n` clients is, with all divisions rounded down:
///
/// | limiter | share |
/// |---|---|
/// | [`Rate::overall`](crate::Rate::overall) of at least `n` permits | `permits / n` in each interval |
/// | [`Rate::overall`](crate::Rate::overall) of fewer | 1 permit in each `interval * n / permits`, rounded up |
/// | [`Rate::per_client`](crate::Rate::per_client) | all of it: it is each client's own |
/// | a policy, such as a [`TokenBucket`](crate::TokenBucket) | each request costs `n` times as much; a request whose cost then exceeds the limit is denied |
///
/// ```
/// # use redisson_rate_limiter::*;
/// # fn main() -> Result<()> {
/// let half = LocalShare::one_of(2.try_into().expect("two clients"));
/// let options = LimiterOptions::new().failure_policy(FailurePolicy::Local(half));
/// let limiter = RedissonClient::in_memory().rate_limiter("logins").with_options(options);
/// # Ok(()) }
/// ```
///
/// # What it bounds
/// `n` clients that are all without Redis together grant no more than the limit in any window (if
/// the rate has fewer than `n` permits, one permit each in any window of the longer interval). What
/// was granted without Redis is not reported to it later. So a window in which Redis goes down or
/// comes back holds at most twice the rate: what Redis granted in it, and what the clients did.
/// What Redis grants to this client by a [`RateLimiter`](crate::RateLimiter) or a
/// [`KeyedRateLimiter`](crate::KeyedRateLimiter) counts toward its share, joint decisions included.
/// So no window in which Redis goes down, and does not come back, holds more than `rate * (2 -
/// 1/n)`, and no more than the rate if all clients were granted the same, or if there is only one.
///
/// A limiter whose rate this client does not know yet denies: the rate was set elsewhere, and no
/// request or `config` has returned it yet. A limiter that is to be created with a rate where it is
/// missing has the share of that rate until then, and one of
/// [`AnyPolicy::SharedRate`](crate::AnyPolicy::SharedRate) always. A request for more than the share
/// is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct LocalShare {
    clients: NonZeroU32,
}

impl LocalShare {
    /// The share of one of `clients` clients, usually one in each process. All of them must pass
    /// the same number.
    ///
    /// ```
    /// use redisson_rate_limiter::LocalShare;
    /// use std::num::NonZeroU32;
    ///
    /// const CLIENTS: NonZeroU32 = NonZeroU32::new(4).unwrap();
    /// assert_eq!(LocalShare::one_of(CLIENTS).clients(), CLIENTS);
    /// ```
    #[must_use]
    pub const fn one_of(clients: NonZeroU32) -> Self {
        Self { clients }
    }

    /// The number of clients that share the limit.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::num::NonZeroU32;
    /// assert_eq!(LocalShare::one_of(NonZeroU32::MIN).clients().get(), 1);
    /// ```
    #[must_use]
    pub const fn clients(self) -> NonZeroU32 {
        self.clients
    }

    /// The settings of the local limiter for a limiter with these.
    pub(crate) fn of(self, settings: Settings) -> SetUp {
        /// Added to a current time, twice this is still a number that Redis's Lua counts exactly,
        /// as the model does.
        const LONGEST: i64 = 1 << 51;
        let clients = i64::from(self.clients.get());
        let Settings { rate, interval, .. } = settings;
        let (rate, interval) = match settings.rate_type {
            RateType::PerClient => (rate, interval),
            // A rate of 0 grants nothing to anybody.
            RateType::Overall if rate == 0 => (0, interval),
            RateType::Overall if rate >= clients => (rate / clients, interval),
            RateType::Overall => {
                let longer = i128::from(interval) * i128::from(clients);
                let longer = (longer + i128::from(rate) - 1) / i128::from(rate);
                (1, i64::try_from(longer).unwrap_or(LONGEST))
            }
        };
        let interval = interval.clamp(1, LONGEST);
        SetUp {
            settings: Settings {
                rate,
                interval,
                // Then nothing is left of it.
                keep_alive: 2 * interval,
                ..settings
            },
            existing: Existing::ReplacedWithKeepAlive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(rate: i64, clients: u32, rate_type: RateType) -> (i64, i64) {
        let settings = Settings {
            rate,
            interval: 1_000,
            rate_type,
            keep_alive: 0,
        };
        let set_up = LocalShare::one_of(clients.try_into().unwrap()).of(settings);
        (set_up.settings.rate, set_up.settings.interval)
    }

    #[test]
    fn shares_of_a_rate_add_up_to_no_more_than_it() {
        let overall = |rate, clients| share(rate, clients, RateType::Overall);
        assert_eq!(overall(10, 1), (10, 1_000));
        assert_eq!(overall(10, 4), (2, 1_000));
        assert_eq!(overall(4, 4), (1, 1_000));
        for (rate, clients) in [(1, 4), (3, 4), (3, 7), (2, 1_000_000)] {
            let (permits, interval) = overall(rate, clients);
            // In the longer interval the rate has room for one permit of each client.
            assert_eq!(permits, 1);
            assert!(rate * interval >= i64::from(clients) * 1_000);
            assert!(rate * (interval - 1) < i64::from(clients) * 1_000);
        }
    }

    #[test]
    fn a_rate_per_client_is_not_shared() {
        assert_eq!(share(10, 4, RateType::PerClient), (10, 1_000));
    }
}
