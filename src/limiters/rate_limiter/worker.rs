//! A worker that does jobs at the pace of a limiter.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use tokio::time::sleep;

use super::RateLimiter;
use crate::error::{Error, Result};
use crate::failure_policy::FailurePolicy;
use crate::limiter_options::LimiterOptions;

/// Does jobs one after the other, each with a permit of its limiter. From [`RateLimiter::worker`].
///
/// It keeps a job until that is [done](Job::done). A job that an error or a cancelled future has
/// interrupted is the next job again, so no job is lost, but a job that was under way may be done
/// twice.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # use tokio::sync::mpsc;
/// # use tokio::time::Instant;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let partner = RedissonClient::in_memory().rate_limiter("partner-api");
/// let partner = partner.with_rate(Rate::overall(2, Duration::from_secs(1)))?;
/// let (orders, mut received) = mpsc::unbounded_channel();
/// ["a", "b", "c"].map(|order| orders.send(order).unwrap());
/// drop(orders);
///
/// let (start, mut sent) = (Instant::now(), Vec::new());
/// let mut worker = partner.worker();
/// while let Some(order) = worker.next(received.recv()).await? {
///     sent.push((*order, start.elapsed().as_secs()));
///     match sent.len() {
///         1 => order.again_after(Duration::from_secs(30)).await?, // 429, `Retry-After: 30`
///         _ => order.done(),
///     }
/// }
/// assert_eq!(sent, [("a", 0), ("a", 30), ("b", 30), ("c", 31)]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Worker<T> {
    limiter: RateLimiter,
    job: Option<T>,
}

/// A job of a [`Worker`], with a permit to do it now.
#[derive(Debug)]
#[must_use = "a job that is not done is the worker's next one again"]
pub struct Job<'a, T> {
    limiter: &'a RateLimiter,
    /// Never `None`.
    job: &'a mut Option<T>,
}

impl RateLimiter {
    /// A worker that does jobs at the pace of this limiter, one permit a job: see [`Worker`].
    ///
    /// While Redis is unavailable its jobs wait, whatever the [`FailurePolicy`] of this handle.
    #[must_use]
    pub fn worker<T>(&self) -> Worker<T> {
        let options = LimiterOptions::new().failure_policy(FailurePolicy::Wait);
        Worker {
            limiter: self.clone().with_options(options),
            job: None,
        }
    }
}

impl<T> Worker<T> {
    /// Waits for a job, and then for a permit to do it: `None` if there are no more jobs. A worker
    /// that still has a job does not poll `next`.
    ///
    /// # Errors
    /// [`Error::Closed`] once the client is closed. Those of [`acquire`](RateLimiter::acquire),
    /// except those of an outage, in which jobs wait.
    ///
    /// # Cancel safety
    /// The worker keeps a job that it has got, and no permit. `next` is dropped, and must be cancel
    /// safe, as the `recv` of tokio's channels is.
    pub async fn next(
        &mut self,
        next: impl Future<Output = Option<T>>,
    ) -> Result<Option<Job<'_, T>>> {
        if self.job.is_none() {
            tokio::select! {
                biased;
                () = self.limiter.queue.client.closed() => return Err(Error::Closed),
                job = next => self.job = job,
            }
        }
        if self.job.is_none() {
            return Ok(None);
        }
        self.limiter.acquire(1).await?;
        Ok(Some(Job {
            limiter: &self.limiter,
            job: &mut self.job,
        }))
    }

    /// The job that was not done, if there is one.
    #[must_use]
    pub fn into_job(self) -> Option<T> {
        self.job
    }
}

impl<T> Job<'_, T> {
    /// Marks the job as done: the worker goes on to the next one.
    pub fn done(self) {
        *self.job = None;
    }

    /// Keeps the job, to be done again after this time, and [holds](RateLimiter::hold) the limiter
    /// until then, so that no other process, Java services included, is granted a permit. In an
    /// outage only this worker waits.
    ///
    /// # Errors
    /// [`Error::Closed`] once the client is closed. Those of [`hold`](RateLimiter::hold), except
    /// those of an outage.
    ///
    /// # Cancel safety
    /// The worker keeps the job. The limiter may or may not be held.
    pub async fn again_after(self, time: Duration) -> Result<()> {
        let held = self.limiter.hold(time.max(Duration::from_millis(1))).await;
        match held {
            Err(error) if error.is_unavailable() => tokio::select! {
                () = self.limiter.queue.client.closed() => Err(Error::Closed),
                () = sleep(time) => Ok(()),
            },
            held => held,
        }
    }
}

impl<T> Deref for Job<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // A `Job` is made with a job, and only `done` takes that, which consumes the `Job`.
        self.job.as_ref().expect("there is a job")
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Instant, advance};

    use super::*;
    use crate::client::RedissonClient;
    use crate::rate::Rate;
    use crate::store::memory::{Faults, MemoryStore};

    /// A worker, its client, and the faults of its store.
    async fn worker() -> (Worker<u32>, RedissonClient, Faults) {
        let faults = Faults::new();
        let client = RedissonClient::builder().in_memory_with_faults(&MemoryStore::new(), &faults);
        let limiter = client.rate_limiter("partner-api");
        let rate = Rate::overall(1, Duration::from_secs(1));
        limiter.set_rate(rate).await.unwrap();
        (limiter.worker(), client, faults)
    }

    #[tokio::test(start_paused = true)]
    async fn in_an_outage_jobs_wait_and_none_is_lost() {
        let (mut worker, _client, faults) = worker().await;
        let job = worker.next(ready(Some(7))).await.unwrap().unwrap();
        faults.lose_store();
        let start = Instant::now();
        job.again_after(Duration::from_secs(30)).await.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(30));
        let again =
            tokio::spawn(async move { worker.next(pending()).await.map(|job| *job.unwrap()) });
        advance(Duration::from_secs(60)).await;
        assert!(!again.is_finished());
        faults.end();
        assert_eq!(again.await.unwrap().unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_in_an_outage_is_kept_as_its_client_closes() {
        let (mut worker, client, faults) = worker().await;
        let job = worker.next(ready(Some(7))).await.unwrap().unwrap();
        faults.lose_store();
        let start = Instant::now();
        let waiting = job.again_after(Duration::from_secs(24 * 3_600));
        let closing = async {
            sleep(Duration::from_secs(60)).await;
            client.close(Duration::from_secs(1)).await;
        };
        let (waited, ()) = tokio::join!(waiting, closing);
        assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
        assert!(start.elapsed() < Duration::from_secs(3_600));
        assert_eq!(worker.into_job(), Some(7));
    }
}
