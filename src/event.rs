//! The events that a client reports to the application: the end of each request and call, and each
//! change of a connection.

mod events;
mod queue_time;
#[cfg(test)]
mod queue_time_tests;
mod reported;
pub(crate) mod spans;

use std::fmt;
use std::time::Duration;

use crate::decision::{Decision, DecisionSource};
use crate::error::ErrorKind;
use crate::health::BreakerState;
use crate::rate::Rate;

pub(crate) use events::Events;
pub(crate) use queue_time::QueueTime;
pub(crate) use reported::{Mode, Reported, Reports};

/// What has happened in a client: the argument of the handler that
/// [`on_event`](crate::RedissonClientBuilder::on_event) sets.
///
/// Names of limiters and servers are labels of metrics: no event contains a key of a limiter for
/// keys, nor a secret.
///
/// ```
/// use redisson_rate_limiter::{Event, FixedWindow, MemoryStore, RedissonClient};
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// /// How many requests each limiter had, by how they ended.
/// type Requests = HashMap<(String, &'static str), u64>;
///
/// fn count(requests: &mut Requests, event: &Event<'_>) {
///     if let Event::Request { limiters, result, .. } = event {
///         for limiter in *limiters {
///             // Of several limiters that deny a request, only one is the reason.
///             if limiter.is_deciding {
///                 let labels = (limiter.name.to_owned(), result.as_str());
///                 *requests.entry(labels).or_default() += 1;
///             }
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let requests = Arc::new(Mutex::new(Requests::new()));
/// let counted = Arc::clone(&requests);
/// let client = RedissonClient::builder()
///     .on_event(move |event| count(&mut counted.lock().unwrap(), event))
///     .in_memory(&MemoryStore::new());
///
/// let logins = client.policy_limiter(FixedWindow::new(2, Duration::from_secs(60)))?.with_prefix("login:");
/// for user in ["alice", "alice", "alice", "bob"] {
///     let _ = logins.check(user, 1).await?;
/// }
/// let orders = client.rate_limiter("orders"); // it has no rate
/// orders.try_acquire(1).await.unwrap_err();
///
/// let requests = requests.lock().unwrap();
/// let number = |limiter: &str, label| requests.get(&(limiter.to_owned(), label)).copied();
/// assert_eq!(number("login:", "granted"), Some(3));
/// assert_eq!(number("login:", "denied"), Some(1));
/// assert_eq!(number("orders", "not_initialized"), Some(1));
/// assert_eq!(requests.len(), 3);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request for permits has ended: `acquire`, `try_acquire`, `try_acquire_timeout`, `check`,
    /// `check_with_rate`, `check_without_waiting`, `check_all`, or
    /// [`Rules::check`](crate::Rules::check) where a rule applies. There is one event for each call
    /// of such a method, when it returns or its future is dropped, and one more for its rules in
    /// shadow mode. [`check_up_to`](crate::Limiter::check_up_to) and `try_acquire_up_to` make one
    /// or more calls of `check`, each with its event. A refund, a release and a settlement by a
    /// limiter of this crate have none.
    #[non_exhaustive]
    Request {
        /// The limiters that were asked: one, or those of a joint decision in the order of the
        /// charges. If rules failed because one of them can never grant the request, only that one;
        /// if too many rules apply, all of them. Empty only if
        /// [`check_all`](crate::RedissonClient::check_all) got no charge at all; at most 33 if it
        /// got too many.
        limiters: &'a [AskedLimiter<'a>],
        /// How the request has ended.
        result: RequestResult,
        /// The time from the call of the method until it returned, or until its future was dropped:
        /// waiting for permits, for the turn that a [`LeakyBucket`](crate::LeakyBucket) gives, and
        /// for Redis.
        took: Duration,
        /// How much of `took` the request spent in a queue of this process, until a call was made
        /// that carried it. For a request that waits for permits this is the call that granted
        /// them. A request that came while a call for the same key was in flight is carried by the
        /// next call, which several requests share. Zero if the request was sent at once; the wait
        /// for a connection and further attempts are part of the call. If no call carried the
        /// request, because it was decided in this process, timed out or was dropped while it
        /// waited, this is the time until then. The wait for a [turn](crate::LeakyBucket) comes
        /// afterwards.
        queued: Duration,
        /// Whether the limiters are those of rules in [shadow mode](crate::Rule::in_shadow), whose
        /// decision has no effect on the request. The rules that are enforced have an event of
        /// their own.
        is_shadow: bool,
    },
    /// A script was sent to Redis, and was answered or given up. It may have taken two round trips,
    /// if the server did not know the script. Not in memory.
    #[non_exhaustive]
    Call {
        /// The script's path in `lua/`, without its ending: `acquire`, `multi_acquire`, `joint`,
        /// `refund`, `policies/token_bucket`.
        script: &'static str,
        /// How many requests for permits share the call; 0 if it is for something else, such as a
        /// refund or a peek. A call for a [lease](crate::Lease) is for one, however many permits it
        /// takes.
        requests: u32,
        /// 1 for the first attempt; 2 or more for a retry, which is sent if the attempts before it
        /// were not executed, as far as is known.
        attempt: u32,
        /// Whether the server answered, if only to refuse.
        is_answered: bool,
        /// The time from sending the call until its answer came or the call was given up.
        took: Duration,
    },
    /// A connection was made. Each tokio runtime that makes calls has one to each server.
    #[non_exhaustive]
    Connected {
        /// The server, such as `127.0.0.1:6379`; with Sentinels, the name of the primary: as in
        /// [`ServerHealth`](crate::ServerHealth).
        server: &'a str,
    },
    /// A connection was lost, was silent for too long, or its server is no longer a primary. The
    /// client replaces it.
    #[non_exhaustive]
    ConnectionLost {
        /// The server, as in [`Connected`](Self::Connected).
        server: &'a str,
    },
    /// A circuit breaker has another state. There is one for each connection. When the client stops
    /// using a server, such as a node that has left its cluster, its circuit breaker ends closed.
    #[non_exhaustive]
    BreakerChanged {
        /// The server, as in [`Connected`](Self::Connected).
        server: &'a str,
        /// The state that it has now.
        state: BreakerState,
        /// Why it is open.
        cause: Option<ErrorKind>,
    },
    /// A grant of a limiter has a time ahead of the clock that this client uses: the clock of
    /// another process is wrong. A `tracing` event names the limiter, once.
    #[non_exhaustive]
    ClockAhead {
        /// By how much, in whole milliseconds.
        ahead: Duration,
    },
    /// A request found its limiter with another rate, type or keep alive than the one that it names
    /// ([`with_rate`](crate::RateLimiter::with_rate),
    /// [`AnyPolicy::SharedRate`](crate::AnyPolicy::SharedRate)), and left it as it was: somebody
    /// else has set it. Reported once for each limiter and each such rate. A `tracing` event names
    /// the limiter.
    #[non_exhaustive]
    RateDiffers {
        /// The rate that the request names.
        named: Rate,
        /// The rate that the limiter has, by which the request was decided. It may be one that
        /// cannot be set here, such as 0 permits.
        found: Rate,
    },
}

/// A limiter that a request asked: see [`Event::Request`].
///
/// ```
/// use redisson_rate_limiter::{AskedLimiter, Event, FixedWindow, MemoryStore, RedissonClient};
/// use std::time::Duration;
///
/// /// Whether a limiter has less than a tenth of its permits left.
/// fn is_near_limit(limiter: &AskedLimiter<'_>) -> bool {
///     limiter.decision.is_some_and(|it| it.remaining() * 10 < it.limit())
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let near = |event: &Event<'_>| match event {
///     Event::Request { limiters, .. } => limiters.iter().any(is_near_limit),
///     _ => false,
/// };
/// let (sender, events) = std::sync::mpsc::channel();
/// let builder = RedissonClient::builder().on_event(move |event| sender.send(near(event)).unwrap());
/// let client = builder.in_memory(&MemoryStore::new());
/// let limiter = client.policy_limiter(FixedWindow::new(20, Duration::from_secs(60)))?;
/// assert!(limiter.check("alice", 18).await?.is_granted());
/// assert!(limiter.check("alice", 1).await?.is_granted());
/// assert_eq!(events.try_iter().collect::<Vec<_>>(), [false, true]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AskedLimiter<'a> {
    /// The limiter's name; of a limiter for keys the one that it was
    /// [given](crate::PolicyLimiter::with_name), or else its prefix, whatever the key.
    pub name: &'a str,
    /// How many permits were asked for: the cost.
    pub permits: u32,
    /// Its decision, if the method that has ended returns decisions. If a joint decision denies the
    /// request, a limiter that would have granted it has a denial with a `retry_after` of zero.
    pub decision: Option<&'a Decision>,
    /// Whether this limiter is the reason for the result: for a denied request only the strictest
    /// limiter, otherwise each of them.
    pub is_deciding: bool,
}

/// How a request has ended: see [`Event::Request`].
///
/// ```
/// # use redisson_rate_limiter::*;
/// let result = RequestResult::Denied(DecisionSource::FailurePolicy);
/// assert_eq!(result.as_str(), "denied");
/// assert_eq!(result.source().map(DecisionSource::as_str), Some("failure_policy"));
/// assert_eq!(RequestResult::Failed(ErrorKind::Closed).as_str(), "closed");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestResult {
    /// The permits were taken, or were granted without being taken by
    /// [`FailurePolicy::Allow`](crate::FailurePolicy::Allow).
    Granted(DecisionSource),
    /// The request was denied.
    Denied(DecisionSource),
    /// The request had a timeout. Its permits did not come in that time, or certainly would not
    /// have.
    TimedOut,
    /// The method returned an error of this kind.
    Failed(ErrorKind),
    /// The request's future was dropped.
    Cancelled,
}

impl AskedLimiter<'_> {
    /// Whether this request has raised the use of its key to this share of the limit or above: the
    /// request that leaves 2 of 10 permits or fewer, where more were left before, reaches a share
    /// of 0.8. Only one granted request of a key reaches it, until permits have come back.
    ///
    /// False for a request that was denied, for one that a failure policy granted, which does not
    /// know what was used, and for one by a method that returns no decision.
    ///
    /// ```
    /// use redisson_rate_limiter::{Event, FixedWindow, MemoryStore, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let (sender, near_limit) = std::sync::mpsc::channel();
    /// let builder = RedissonClient::builder().on_event(move |event| {
    ///     if let Event::Request { limiters, .. } = event {
    ///         for limiter in limiters.iter().filter(|it| it.reaches(0.8)) {
    ///             sender.send(limiter.name.to_owned()).unwrap();
    ///         }
    ///     }
    /// });
    /// let client = builder.in_memory(&MemoryStore::new());
    /// let limiter = client.policy_limiter(FixedWindow::new(10, Duration::from_secs(60)))?.with_name("logins");
    /// for _ in 0..12 {
    ///     let _ = limiter.check("alice", 1).await?;
    /// }
    /// assert!(limiter.check("bob", 7).await?.is_granted());
    /// assert_eq!(near_limit.try_iter().collect::<Vec<_>>(), ["logins"]); // alice, once
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reaches(&self, share: f64) -> bool {
        let Some(Decision::Granted(granted)) = self.decision else {
            return false;
        };
        if granted.source == DecisionSource::FailurePolicy {
            return false;
        }
        let used = granted.limit.saturating_sub(granted.remaining);
        let before = used.saturating_sub(u64::from(self.permits));
        let bound = granted.limit as f64 * share;
        granted.limit > 0 && used as f64 >= bound && (before as f64) < bound
    }
}

impl RequestResult {
    /// The variant's name in snake case, or the [error's kind](ErrorKind::as_str), for labels of
    /// metrics. Later versions do not change it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Denied(_) => "denied",
            Self::TimedOut => "timed_out",
            Self::Failed(kind) => kind.as_str(),
            Self::Cancelled => "cancelled",
        }
    }

    /// Who decided, if the request was granted or denied.
    #[must_use]
    pub const fn source(self) -> Option<DecisionSource> {
        match self {
            Self::Granted(source) | Self::Denied(source) => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for RequestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Granted;
    use crate::quota::Quota;

    #[test]
    fn what_a_failure_policy_has_granted_reaches_no_share_of_the_limit() {
        let granted = Granted::new(1)
            .with_quota(Quota::new(10, Duration::from_secs(60)))
            .with_remaining(2);
        for (source, reaches) in [
            (DecisionSource::Store, true),
            (DecisionSource::FailurePolicy, false),
        ] {
            let decision = Decision::from(Granted {
                source,
                ..granted.clone()
            });
            let limiter = AskedLimiter {
                name: "limiter",
                permits: 1,
                decision: Some(&decision),
                is_deciding: true,
            };
            assert_eq!(limiter.reaches(0.8), reaches, "{source:?}");
        }
    }
}
