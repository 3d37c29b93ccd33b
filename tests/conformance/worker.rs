//! Workers, which do jobs at the pace of a limiter.

use std::future::{pending, ready};
use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, RateLimiter, Worker};

use crate::fixture::{Fixture, HOUR, SECOND, granted, ms};
use crate::stopped_time::until;

async fn limiter_of(fixture: &Fixture, permits: u64) -> RateLimiter {
    let limiter = fixture.limiter().await;
    limiter
        .set_rate(Rate::overall(permits, HOUR))
        .await
        .unwrap();
    limiter
}

/// Starts to wait for a permit to do this job.
async fn wait(mut worker: Worker<u32>, job: u32) -> (Result<(), Error>, Option<u32>) {
    let result = worker.next(ready(Some(job))).await.map(|_job| ());
    (result, worker.into_job())
}

pub async fn a_job_is_repeated_until_it_is_marked_as_done(fixture: Fixture) {
    let limiter = limiter_of(&fixture, 9).await;
    let mut worker = limiter.worker();
    for _ in 0..2 {
        let job = worker.next(ready(Some(1))).await.unwrap().unwrap();
        assert_eq!(*job, 1);
        drop(job);
    }
    let job = worker.next(pending()).await.unwrap().unwrap();
    assert_eq!(*job, 1);
    job.done();
    let job = worker.next(ready(Some(2))).await.unwrap().unwrap();
    assert_eq!(*job, 2);
    job.done();
    assert!(worker.next(ready(None)).await.unwrap().is_none());
    assert_eq!(worker.into_job(), None);
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
}

pub async fn a_worker_waits_for_its_job_without_a_permit(fixture: Fixture) {
    let limiter = limiter_of(&fixture, 1).await;
    let mut worker = limiter.worker::<u32>();
    let waiting = tokio::time::timeout(Duration::ZERO, worker.next(pending())).await;
    assert!(waiting.is_err());
    assert_eq!(granted(&limiter, 1).await, 1);
}

pub async fn a_closed_client_ends_its_workers_which_keep_their_jobs(fixture: Fixture) {
    let client = fixture.client("client").await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    assert_eq!(granted(&limiter, 1).await, 1);
    let without_a_permit = tokio::spawn(wait(limiter.worker(), 7));
    let mut idle = limiter.worker::<u32>();
    let without_a_job = tokio::spawn(async move { idle.next(pending()).await.map(|_job| ()) });
    until("the first one waits", async || limiter.waiters() == 1).await;
    assert!(client.close(HOUR).await);
    let (result, job) = without_a_permit.await.unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    assert_eq!(job, Some(7));
    let result = without_a_job.await.unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
}

pub async fn a_cancelled_wait_keeps_the_job_and_no_permit(fixture: Fixture) {
    let limiter = limiter_of(&fixture, 1).await;
    assert_eq!(granted(&limiter, 1).await, 1);
    let mut worker = limiter.worker();
    {
        let mut waiting = Box::pin(worker.next(ready(Some(7))));
        let waiters = until("it waits", async || limiter.waiters() == 1);
        tokio::select! {
            () = waiters => {}
            _ = &mut waiting => panic!("there is no permit"),
        }
    }
    fixture.pass(HOUR);
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
    assert_eq!(worker.into_job(), Some(7));
}

pub async fn a_job_to_be_done_again_later_holds_the_limiter_for_all(fixture: Fixture) {
    let limiter = limiter_of(&fixture, 10).await;
    let mut worker = limiter.worker();
    let job = worker.next(ready(Some(7))).await.unwrap().unwrap();
    job.again_after(30 * SECOND).await.unwrap();
    let other = fixture.limiter_of("other").await;
    fixture.pass(30 * SECOND - ms(1));
    assert_eq!(granted(&other, 1).await, 0);
    fixture.pass(ms(1));
    let job = worker.next(pending()).await.unwrap().unwrap();
    assert_eq!(*job, 7);
    job.done();
    assert_eq!(granted(&other, 10).await, 8);
}

pub async fn a_job_to_be_done_again_at_once_is_the_next_one(fixture: Fixture) {
    let limiter = limiter_of(&fixture, 10).await;
    let mut worker = limiter.worker();
    let job = worker.next(ready(Some(7))).await.unwrap().unwrap();
    job.again_after(Duration::ZERO).await.unwrap();
    fixture.pass(ms(1));
    let job = worker.next(pending()).await.unwrap().unwrap();
    assert_eq!(*job, 7);
}
