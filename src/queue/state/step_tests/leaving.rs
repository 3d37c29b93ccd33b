//! Waiters that leave.

use super::*;

#[test]
fn a_waiter_that_joins_again_during_its_call_leaves_that_call_once() {
    let mut queue = Queue::new();
    let moved = queue.join(1, 1, None);
    let mut stays = queue.join(2, 1, None);
    let call = queue.call();
    drop(moved);
    assert!(!is_abandoned(queue.leave(1)));
    drop(queue.join_on(1, 1, 1, None));
    assert!(!is_abandoned(queue.leave(1)), "the second one still waits");
    assert_eq!(queue.answer(&call, 0, 2), rest(1));
    assert_eq!(stays.try_recv().unwrap().unwrap().permits(), 1);
}

#[test]
fn a_call_is_abandoned_when_the_last_of_its_waiters_leaves() {
    let mut queue = Queue::new();
    let waiters = [1, 2, 3].map(|sequence| (sequence, queue.join(sequence, 1, None)));
    let call = queue.call();
    let left = waiters.map(|(sequence, waiter)| {
        drop(waiter);
        queue.leave(sequence)
    });
    assert!(matches!(
        &left,
        [Left::Unwatched, Left::Watched, Left::Abandoned(abandoned)] if Arc::ptr_eq(abandoned, &call)
    ));
    // The call was executed anyway.
    assert_eq!(queue.answer(&call, 0, 5), rest(3));
}

#[test]
fn waiters_that_left_take_no_more_room_than_those_who_stay() {
    let mut queue = Queue::new();
    let mut waiters: Vec<_> = (0..10_000)
        .map(|it| Some(queue.join(it, 1, None)))
        .collect();
    for sequence in (1..10_000).rev() {
        waiters[sequence as usize] = None;
        queue.leave(sequence);
        assert!(queue.state.waiters.len() as u64 <= 2 * sequence + 1);
    }
}

#[test]
fn a_grant_of_one_that_left_is_handed_on_in_order_and_the_rest_asked_for() {
    let mut queue = Queue::new();
    let left = queue.join(1, 3, None);
    let _stays = queue.join(2, 1, None);
    let call = queue.call();
    drop(left);
    assert!(!is_abandoned(queue.leave(1)));
    let (mut head, mut second) = (queue.join(3, 2, None), queue.join(4, 1, None));
    let mut third = queue.join(5, 1, None);
    assert_eq!(queue.answer(&call, 0, 10).permits, 0);
    for waiter in [&mut head, &mut second] {
        let grant = waiter.try_recv().unwrap().unwrap();
        assert_eq!(grant.call_id, call.id);
    }
    assert!(third.try_recv().is_err());
    assert_eq!(permits(&queue.call()), [1]);
}

#[test]
fn a_grant_too_small_for_the_head_is_given_back_and_not_handed_past_it() {
    let mut queue = Queue::new();
    let left = queue.join(1, 3, None);
    let _stays = queue.join(2, 1, None);
    let call = queue.call();
    drop(left);
    assert!(!is_abandoned(queue.leave(1)));
    let (mut head, mut behind) = (queue.join(3, 4, None), queue.join(4, 1, None));
    assert_eq!(queue.answer(&call, 0, 4).permits, 3);
    assert!(head.try_recv().is_err() && behind.try_recv().is_err());
}

#[test]
fn an_old_answer_does_not_apply_to_a_waiter_after_all_others_left() {
    let mut queue = Queue::new();
    let denied = queue.join(1, 1, None);
    let call = queue.call();
    queue.answer(&call, 0, 0);
    drop(denied);
    assert!(!is_abandoned(queue.leave(1)));
    let _later = queue.join(2, 1, None);
    queue.call();
}

#[test]
fn a_denied_waiter_that_left_meanwhile_is_not_queued_again() {
    let mut queue = Queue::new();
    let _stays = queue.join(1, 1, None);
    let left = queue.join(2, 1, None);
    let call = queue.call();
    drop(left);
    queue.leave(2);
    queue.answer(&call, 0, 0);
    assert_eq!(queue.state.waiters.len(), 1);
}
