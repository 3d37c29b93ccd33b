//! A waiter that has left holds up nobody: the time of the next call belongs to the waiter behind
//! it.

use crate::by_hand::poll_once;
use crate::in_memory::{HOUR, let_others_work, limiter, wait};

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_that_leave_hold_up_nobody() {
    let limiter = limiter(2, HOUR).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let mut waiters: Vec<_> = (0..100_000).map(|_| Some(wait(&limiter, 2))).collect();
    for waiter in waiters.iter_mut().flatten() {
        assert!(poll_once(waiter).is_none());
    }
    let mut last = wait(&limiter, 1);
    assert!(poll_once(&mut last).is_none());
    let_others_work().await;
    // They leave from the back, so that none of them is at the head.
    for waiter in waiters.iter_mut().rev() {
        assert!(poll_once(&mut last).is_none());
        *waiter = None;
    }
    let_others_work().await;
    poll_once(&mut last).expect("its permit is there").unwrap();
}
