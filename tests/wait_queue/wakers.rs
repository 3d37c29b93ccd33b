//! Wakers are the caller's code: they may panic, and call the limiter.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};

use crate::by_hand::{Pending, poll_once};
use crate::in_memory::{HOUR, let_others_work};

type Action = Box<dyn FnOnce() + Send>;

/// Does something the first time that it is woken.
struct Does(Mutex<Option<Action>>);

impl Wake for Does {
    fn wake(self: Arc<Self>) {
        let action = self.0.lock().unwrap().take();
        if let Some(action) = action {
            action();
        }
    }
}

fn waker(action: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Does(Mutex::new(Some(Box::new(action))))))
}

async fn used_up(rate: u64) -> RateLimiter {
    let client = RedissonClient::in_memory();
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(rate as u32).await.unwrap());
    limiter
}

fn acquire(limiter: &RateLimiter, permits: u32) -> Pending<'static, ()> {
    let limiter = limiter.clone();
    Box::pin(async move { limiter.acquire(permits).await.unwrap() })
}

fn poll_with(future: &mut Pending<'_, ()>, waker: &Waker) {
    let poll = future.as_mut().poll(&mut Context::from_waker(waker));
    assert_eq!(poll, Poll::Pending);
}

#[tokio::test]
async fn a_waker_that_panics_keeps_nothing_from_those_behind_it() {
    let limiter = used_up(3).await;
    let mut first = acquire(&limiter, 1);
    poll_with(&mut first, &waker(|| panic!("a waker of the test panics")));
    let others = [(); 2].map(|()| tokio::spawn(acquire(&limiter, 1)));
    let_others_work().await;
    limiter.release(3).await.unwrap();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(poll_once(&mut first), Some(()));
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test]
async fn a_waker_may_drop_other_waiters_and_what_they_were_granted_goes_back() {
    let limiter = used_up(3).await;
    let mut first = acquire(&limiter, 1);
    let mut second = acquire(&limiter, 1);
    let mut third = acquire(&limiter, 3);
    let noop = Waker::noop();
    // The order of the queue is that of the first polls.
    let dropped = Arc::new(Mutex::new(None));
    let drops = Arc::clone(&dropped);
    poll_with(
        &mut first,
        &waker(move || drop(drops.lock().unwrap().take())),
    );
    poll_with(&mut second, noop);
    poll_with(&mut third, noop);
    *dropped.lock().unwrap() = Some((second, third));
    let_others_work().await;
    limiter.release(3).await.unwrap();
    let_others_work().await;
    first.await;
    assert!(dropped.lock().unwrap().is_none());
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
}

#[tokio::test]
async fn a_waker_may_ask_the_limiter() {
    let limiter = used_up(2).await;
    let mut first = acquire(&limiter, 1);
    let asked = Arc::new(Mutex::new(None));
    let (again, asks) = (limiter.clone(), Arc::clone(&asked));
    let asking = waker(move || {
        let mut future = acquire(&again, 1);
        *asks.lock().unwrap() = Some(poll_once(&mut future));
    });
    poll_with(&mut first, &asking);
    let_others_work().await;
    limiter.release(2).await.unwrap();
    let_others_work().await;
    first.await;
    assert_eq!(*asked.lock().unwrap(), Some(Some(())));
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test]
async fn a_waiter_that_is_forgotten_and_not_dropped_holds_up_nobody() {
    let limiter = used_up(2).await;
    let mut forgotten = acquire(&limiter, 1);
    poll_with(&mut forgotten, Waker::noop());
    std::mem::forget(forgotten);
    let waits = tokio::spawn(acquire(&limiter, 1));
    let_others_work().await;
    limiter.release(2).await.unwrap();
    waits.await.unwrap();
    // Like a future that is never polled again, it keeps what it was granted.
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}
