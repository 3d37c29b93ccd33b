//! Taking permits and giving them back.

use std::cmp::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::RateLimiter;
use crate::decision::{Decision, DecisionSource};
use crate::error::{Error, Result};
use crate::event::QueueTime;
use crate::fallback::reset;
use crate::grant::Grant;
#[cfg(test)]
use crate::grant::Origin;
use crate::limiters::Limiter;
use crate::limiters::charge::peek;
use crate::permit::CallId;
use crate::queue::ReadSetUp;
use crate::window::{Acquired, SetUp};

impl RateLimiter {
    /// Takes permits if they are available now, and returns whether it did.
    ///
    /// It never waits for permits, and may overtake callers that do.
    ///
    /// The compiler warns about an unused `Result`, but not about an unused `bool` after `?`,
    /// unless the lint `unused_results` is on. It also warns about an unused [`Decision`] of
    /// [`check`](Self::check) after `?`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(3, Duration::from_secs(10))).await?;
    /// assert!(limiter.try_acquire(2).await?);
    /// assert!(!limiter.try_acquire(2).await?);
    /// assert!(matches!(limiter.try_acquire(4).await, Err(Error::ExceedsLimit { limit: 3, .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`](crate::Error::NotInitialized),
    /// [`Error::ExceedsLimit`](crate::Error::ExceedsLimit),
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for 0 permits.
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing: permits that a call in flight is granted go back.
    #[doc(alias = "tryAcquire")]
    #[must_use = "`false`: the permits were not taken"]
    pub async fn try_acquire(&self, permits: u32) -> Result<bool> {
        let reported = self.reported(permits);
        let answer = match self.try_acquire_now(permits) {
            Ok(Some(is_granted)) if reported.is_off() => return Ok(is_granted),
            Ok(Some(is_granted)) => Ok((is_granted, DecisionSource::Store)),
            Ok(None) => {
                let queue_time = reported.queue_time();
                let decided = self.decide(permits, self.set_up, &queue_time).await;
                decided.map(|decision| (decision.is_granted(), decision.source()))
            }
            Err(error) => Err(error),
        };
        let (is_granted, _) = reported.ended(answer)?;
        Ok(is_granted)
    }

    /// Takes as many permits as are available now, up to `permits`, and returns how many it took.
    /// If fewer than `permits` are available, it makes one call more than
    /// [`try_acquire`](Self::try_acquire), as [`Limiter::check_up_to`](crate::Limiter::check_up_to)
    /// does.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(10))).await?;
    /// assert_eq!(limiter.try_acquire_up_to(3).await?, 3);
    /// assert_eq!(limiter.try_acquire_up_to(3).await?, 2); // take 2 jobs from a queue
    /// assert_eq!(limiter.try_acquire_up_to(3).await?, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), except
    /// [`Error::ExceedsLimit`](crate::Error::ExceedsLimit).
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_up_to(&self, permits: u32) -> Result<u32> {
        let decision = Limiter::check_up_to(self, "", permits).await?;
        Ok(decision.into_grant().map_or(0, |grant| grant.permits()))
    }

    /// Waits for permits in the order of arrival (FIFO in this process); returns `false` if
    /// `timeout` passes first. A timeout of zero is the same as [`try_acquire`](Self::try_acquire).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(1))).await?;
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_millis(300)).await?);
    /// assert!(!limiter.try_acquire_timeout(1, Duration::from_millis(300)).await?);
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_millis(900)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), and [`Error::QueueFull`](crate::Error::QueueFull) for
    /// a limiter with a [bound](crate::LimiterOptions::max_waiters).
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing: it leaves the queue, and permits that a call in flight is
    /// granted go to the next waiter or back to the store.
    ///
    /// A future that is kept but not polled keeps its place in the queue. Permits that it is
    /// granted belong to the caller, and count in the window, from the moment of the grant, however
    /// late the future is polled.
    #[doc(alias = "tryAcquire")]
    #[must_use = "`false`: the permits were not taken"]
    pub async fn try_acquire_timeout(&self, permits: u32, timeout: Duration) -> Result<bool> {
        if timeout.is_zero() {
            return self.try_acquire(permits).await;
        }
        Ok(self.wait(permits, Some(timeout)).await?.is_some())
    }

    /// Waits for permits in the order of arrival (FIFO in this process).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_millis(500))).await?;
    /// let start = tokio::time::Instant::now();
    /// limiter.acquire(1).await?;
    /// limiter.acquire(1).await?; // asks again 3 ms after the first is back
    /// assert_eq!(start.elapsed(), Duration::from_millis(503));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout).
    pub async fn acquire(&self, permits: u32) -> Result<()> {
        self.acquire_grant(permits).await?;
        Ok(())
    }

    /// Waits as [`acquire`](Self::acquire) does, and returns the grant, which can be
    /// [settled](Self::settle) once it is known how much was used, or [refunded](Self::refund).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let tokens = RedissonClient::in_memory().rate_limiter("model:tokens");
    /// tokens.set_rate(Rate::overall(1_000, minute)).await?;
    /// tokens.acquire(900).await?;
    /// let start = tokio::time::Instant::now();
    /// let estimate = tokens.acquire_grant(300).await?; // when the 900 are back
    /// assert!(start.elapsed() >= minute);
    /// tokens.settle(estimate, 100).await?;
    /// assert_eq!(tokens.available_permits().await?, 900);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout): with a
    /// [`timeout`](tokio::time::timeout) around it no permit is lost. Once it has returned,
    /// dropping the grant does not give the permits back.
    pub async fn acquire_grant(&self, permits: u32) -> Result<Grant> {
        let grant = self.wait(permits, None).await?;
        // Without a timeout, waiting ends with a grant or an error.
        Ok(grant.expect("there is no timeout"))
    }

    /// Takes permits if they are available now, and returns the numbers that a response header or a
    /// retry needs: the rate, the permits left, the time until permits come back, and the [`Grant`]
    /// for a [`refund`](Self::refund). Does not wait for permits.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(10))).await?;
    /// let granted = limiter.check(4).await?;
    /// assert!(granted.is_granted());
    /// assert_eq!((granted.remaining(), granted.limit()), (1, 5));
    /// tokio::time::advance(Duration::from_secs(3)).await;
    /// let denied = limiter.check(4).await?;
    /// assert!(!denied.is_granted());
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(7)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn check(&self, permits: u32) -> Result<Decision> {
        let reported = self.reported(permits);
        let answer = match self.acquire_now(permits, self.set_up) {
            Ok(Some((id, answer))) if reported.is_off() => {
                return self.queue.unguarded.decided(id, permits, &answer);
            }
            Ok(Some((id, answer))) => self.queue.unguarded.decided(id, permits, &answer),
            Ok(None) => {
                let queue_time = reported.queue_time();
                self.ask(permits, self.set_up, &queue_time).await
            }
            Err(error) => Err(error),
        };
        reported.ended(answer)
    }

    /// Gives a grant back, exactly and once, and returns how many permits came back: 0 if its
    /// window has passed or the limiter is gone, fewer than it had if others
    /// [released](Self::release) part of it.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Decision, Rate, RedissonClient};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("l");
    /// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
    /// if let Decision::Granted(granted) = limiter.check(3).await? {
    ///     assert_eq!(limiter.refund(granted.grant).await?, 3);
    /// }
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those that [`RateLimiter`] lists. No permit has come back then, and a [clone](Grant) of the
    /// grant can be refunded later. On [`Error::Indeterminate`](crate::Error::Indeterminate) the
    /// permits may have come back, and no clone can be refunded.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have given the grant back; if not, its permits come
    /// back when their window has passed.
    pub async fn refund(&self, grant: Grant) -> Result<u32> {
        grant.spend(|grant| self.refund_spent(grant)).await
    }

    /// Gives back a grant that is marked as spent.
    async fn refund_spent(&self, grant: Grant) -> Result<u32> {
        self.validated()?;
        let answer = self.freeing(self.queue.refund(&grant)).await;
        self.queue.unguarded.permits_freed();
        match answer {
            Err(Error::NotInitialized { .. }) => Ok(0),
            answer => answer,
        }
    }

    /// Corrects a grant that was an estimate, once it is known how much was used: `permits` count
    /// as used instead of those of the grant. If the estimate was too high, the rest goes back, as
    /// by [`refund`](Self::refund). If it was too low, the missing permits are taken even if they
    /// are not available, because they have been used already: the number of permits left may fall
    /// below zero, more than the rate may be in use, and later requests, those of Java services
    /// too, wait until enough permits have come back. A grant that is never settled counts as it
    /// is. Only the first call of `settle` or [`refund`](Self::refund) has an effect on a grant and
    /// its clones.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// // 1,000 tokens of a language model a minute, and a request with an estimated use.
    /// let tokens = RedissonClient::in_memory().rate_limiter("model:tokens");
    /// tokens.set_rate(Rate::overall(1_000, Duration::from_secs(60))).await?;
    /// let estimate = tokens.check(300).await?.into_grant().expect("granted");
    /// tokens.settle(estimate, 100).await?;
    /// assert_eq!(tokens.available_permits().await?, 900);
    ///
    /// let estimate = tokens.check(300).await?.into_grant().expect("granted");
    /// tokens.settle(estimate, 1_500).await?;
    /// assert_eq!(tokens.available_permits().await?, 0);
    /// tokio::time::advance(Duration::from_secs(60)).await;
    /// assert_eq!(tokens.available_permits().await?, 1_000);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`](crate::Error::NotInitialized) if the limiter is gone, unless this
    /// handle [creates it](Self::with_rate). An existing limiter keeps its rate. On an error the
    /// estimate stands, and a clone of the grant can be settled later; on
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) it may have been corrected, and no
    /// clone can be settled.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have corrected the grant.
    pub async fn settle(&self, grant: Grant, permits: u32) -> Result<()> {
        let settle = |grant: Grant| async move {
            let granted = grant.permits();
            match permits.cmp(&granted) {
                Ordering::Less => {
                    let excess = grant.with_permits(granted - permits);
                    self.refund_spent(excess).await.map(|_| ())
                }
                Ordering::Equal => self.validated().map(|_| ()),
                Ordering::Greater => {
                    self.validated()?;
                    let missing = permits - granted;
                    self.queue.owe(grant.origin, missing, self.set_up).await
                }
            }
        };
        grant.spend(settle).await
    }

    /// Gives permits back without naming their grant. They come out of the oldest grants, so that
    /// no window ever holds more than the rate. Permits beyond the rate are ignored.
    /// [`refund`](Self::refund) gives back a known grant exactly.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
    /// limiter.try_acquire(4).await?;
    /// limiter.release(3).await?;
    /// assert_eq!(limiter.available_permits().await?, 4);
    /// limiter.release(3).await?; // two more than were taken
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`](crate::Error::NotInitialized),
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for 0 permits.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have given the permits back.
    pub async fn release(&self, permits: u32) -> Result<()> {
        let queue = self.asked_for(permits)?;
        let releasing = queue.release(permits, self.options.policy());
        let answer = self.freeing(releasing).await;
        self.queue.unguarded.permits_freed();
        self.or_unused(answer, |_| ())
    }

    /// How many permits are available now. Changes nothing.
    ///
    /// For a rate [per client](crate::RateType::PerClient) these are the permits of this client.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// limiter.try_acquire(4).await?;
    /// assert_eq!(limiter.available_permits().await?, 1);
    /// tokio::time::advance(Duration::from_secs(1)).await;
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`](crate::Error::NotInitialized).
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    #[doc(alias = "availablePermits")]
    pub async fn available_permits(&self) -> Result<u64> {
        let store = self.validated()?;
        let leased_before = self.queue.unguarded.leased();
        let answer = store.available_permits().await;
        let permits = self.or_unused(answer, |set_up| set_up.settings.rate)?;
        // A call in flight may take or return a lease: its permits are counted once at most.
        let leased = leased_before.min(self.queue.unguarded.leased());
        let permits = permits.saturating_add(leased);
        // The permits of an Answer are never below zero.
        Ok(permits.max(0).unsigned_abs())
    }

    /// Returns what [`check`](Self::check) would return now, and takes nothing. Changes nothing in
    /// Redis, not even a time to live.
    ///
    /// Always asks the store: no remembered denial is returned. The permits of a granted decision
    /// were not taken, so that [`refund`](Self::refund) of its grant gives back 0.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// limiter.try_acquire(3).await?;
    /// assert!(limiter.peek(2).await?.is_granted());
    /// assert!(limiter.peek(2).await?.is_granted()); // still
    /// assert_eq!(limiter.peek(3).await?.retry_after(), Some(Duration::from_secs(1)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check). The [`FailurePolicy`](crate::FailurePolicy) applies as there.
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    pub async fn peek(&self, permits: u32) -> Result<Decision> {
        let queue = self.requested(permits)?;
        if let Some(decided) = queue.peek_leased(permits, self.set_up) {
            return decided;
        }
        let (store, local) = (&queue.client_store, queue.local_store());
        peek(store, local, self.charge(permits)?).await
    }

    /// Forgets the permits in use, so that all are available, and returns whether there was
    /// anything to forget. The rate and the times to live stay. Waiters are served at once.
    ///
    /// The permits that were in use may still be used: until their window has passed, more than the
    /// rate may be in use. To give back permits that were not used, see [`refund`](Self::refund)
    /// and [`release`](Self::release). To change the rate as well, see
    /// [`set_rate`](Self::set_rate); to delete the limiter, [`delete`](Self::delete). For a rate
    /// [per client](crate::RateType::PerClient) the permits are those of this client.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// assert!(!limiter.reset().await?); // it does not exist
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// limiter.acquire(5).await?;
    /// assert!(limiter.reset().await?);
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those that [`RateLimiter`] lists.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have reset the limiter.
    pub async fn reset(&self) -> Result<bool> {
        self.validated()?;
        let (store, target) = (&self.queue.client_store, self.target_as_it_is());
        let resetting = reset(&**store, self.queue.local_store(), target);
        let answer = self.change(resetting).await;
        self.queue.unguarded.permits_freed();
        answer
    }

    /// Whether the permits are granted, if the store decides without waiting; `None` for a request
    /// that is still to be decided.
    #[inline]
    fn try_acquire_now(&self, permits: u32) -> Result<Option<bool>> {
        if self.set_up.is_some() {
            return Ok(None);
        }
        let queue = self.requested(permits)?;
        queue.unguarded.try_acquire_now(permits)
    }

    /// The call's id and the answer, if the store decides without waiting. Creates the limiter, or
    /// gives it these settings, in the same step.
    #[inline]
    pub(crate) fn acquire_now(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        let queue = self.requested(permits)?;
        queue.unguarded.acquire_now(permits, set_up)
    }

    /// Like [`RateLimiter::check`], and creates the limiter, or gives it these settings, in the
    /// same step.
    pub(crate) async fn decide(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        match self.acquire_now(permits, set_up)? {
            Some((id, answer)) => self.queue.unguarded.decided(id, permits, &answer),
            None => self.ask(permits, set_up, queue_time).await,
        }
    }

    /// Asks a store that does not decide without waiting, or returns a remembered denial.
    async fn ask(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        let asking = self.queue.ask(permits, set_up, &self.options, queue_time);
        let decision = asking.await?;
        if !decision.is_granted() {
            self.queue.keep_denial(self.options.denial_age());
        }
        Ok(decision)
    }

    /// Waits until the permits are granted, or returns `None` after the timeout.
    async fn wait(&self, permits: u32, timeout: Option<Duration>) -> Result<Option<Grant>> {
        let reported = self.reported(permits);
        let (set_up, queue_time) = (self.read_set_up(), reported.queue_time());
        let waiting = self.wait_set_up(permits, timeout, set_up, &queue_time);
        reported.ended(waiting.await)
    }

    /// Waits until the permits are granted, or returns `None` after the timeout; creates the
    /// limiter as [`decide`](Self::decide) does.
    pub(crate) async fn wait_set_up(
        &self,
        permits: u32,
        timeout: Option<Duration>,
        set_up: Option<ReadSetUp>,
        queue_time: &QueueTime,
    ) -> Result<Option<Grant>> {
        // A timeout beyond what the clock can count never ends.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let queue = self.requested(permits)?;
        let waiting = queue.wait(permits, until, set_up, &self.options, queue_time);
        waiting.await
    }

    /// Waits for the permits, and returns the origin of the grant.
    #[cfg(test)]
    pub(crate) async fn wait_for_anyone(
        &self,
        permits: u32,
        until: Option<Instant>,
    ) -> Result<Option<Origin>> {
        let (set_up, queue_time) = (self.read_set_up(), QueueTime::default());
        let queue = &self.queue;
        let waiting = queue.wait(permits, until, set_up, &self.options, &queue_time);
        Ok(waiting.await?.map(|grant| grant.origin))
    }
}
