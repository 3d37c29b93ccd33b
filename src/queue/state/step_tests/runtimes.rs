//! Drivers of several runtimes.

use super::*;

#[test]
fn another_runtimes_driver_takes_a_call_over_only_once_in_a_while() {
    let mut queue = Queue::new();
    let _waiting = queue.join(1, 1, None);
    let _elsewhere = queue.join_on(1, 2, 1, None);
    let call = queue.call();
    assert!(matches!(queue.next_on(1), Next::Sleep(until) if until == queue.now + LONGEST_HOLD_UP));
    queue.now += LONGEST_HOLD_UP;
    assert!(matches!(queue.next_on(1), Next::Call(same, _) if Arc::ptr_eq(&same, &call)));
    assert!(matches!(queue.next_on(0), Next::Sleep(until) if until == queue.now + LONGEST_HOLD_UP));
}

#[test]
fn a_call_whose_runtime_shuts_down_is_taken_over_at_once() {
    let mut queue = Queue::new();
    let _waiting = queue.join(1, 1, None);
    let _elsewhere = queue.join_on(1, 2, 1, None);
    let call = queue.call();
    assert!(queue.lose_driver(0, Some(&call)).is_none());
    queue.now = Instant::now();
    assert!(matches!(queue.next_on(1), Next::Call(same, _) if Arc::ptr_eq(&same, &call)));
}

#[test]
fn a_call_whose_runtime_shuts_down_is_abandoned_if_there_is_no_other() {
    let mut queue = Queue::new();
    let mut waiting = queue.join(1, 1, None);
    let call = queue.call();
    let mut behind = queue.join(2, 1, None);
    assert!(queue.lose_driver(0, Some(&call)).is_some());
    for waiter in [&mut waiting, &mut behind] {
        let closed = oneshot::error::TryRecvError::Closed;
        assert_eq!(waiter.try_recv().unwrap_err(), closed);
    }
}

#[test]
fn a_call_of_several_drivers_is_reclaimed_once_at_the_first_outcome() {
    for (available, is_lost) in [
        (Some(0), false),
        (Some(1), true),
        (Some(1), false),
        (None, false),
    ] {
        let mut queue = Queue::new();
        let _waiting = queue.join(1, 1, None);
        let _elsewhere = queue.join_on(1, 2, 1, None);
        let call = queue.call();
        if is_lost {
            assert!(queue.lose_driver(0, Some(&call)).is_none());
        }
        queue.now += LONGEST_HOLD_UP;
        assert!(matches!(queue.next_on(1), Next::Call(same, _) if Arc::ptr_eq(&same, &call)));
        let is_reclaimed = match available {
            Some(available) => queue.answer(&call, 7, available).is_reclaimed,
            None => queue.fail(&call),
        };
        assert!(is_reclaimed, "{available:?}");
        // For the attempt that is still on its way, whether its answer is read or not.
        assert_eq!(queue.answer(&call, 8, 10), rest(2));
        assert!(!queue.fail(&call));
        assert!(queue.lose_driver(1, Some(&call)).is_none());
    }
}

#[test]
fn a_waiter_that_joins_at_the_head_notifies_the_drivers_of_all_runtimes() {
    for (sequence, is_head) in [(1, true), (3, false)] {
        let mut queue = Queue::new();
        let _second = queue.join(2, 3, None);
        queue.is_notified(0);
        let _joins = queue.join_on(1, sequence, 1, None);
        assert_eq!(queue.is_notified(0), is_head);
    }
}

#[test]
fn a_call_that_one_driver_made_is_not_reclaimed() {
    for available in [0, 1] {
        let mut queue = Queue::new();
        let _waiting = queue.join(1, 1, None);
        let call = queue.call();
        assert_eq!(queue.answer(&call, 0, available), rest(0));
    }
}

#[test]
fn a_driver_stops_where_nobody_waits_and_is_started_again_by_the_next() {
    let mut queue = Queue::new();
    drop(queue.join(1, 1, None));
    queue.leave(1);
    assert!(matches!(queue.next_on(0), Next::Stop));
    let (answer, _receiver) = oneshot::channel();
    let waiter = Waiter::new(1, 2, answer);
    let runtime = queue.runtimes[0].handle().id();
    assert!(queue.state.join(waiter, runtime, None).is_some());
}

#[test]
fn a_driver_is_notified_when_the_head_changes_and_when_it_may_ask() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    let second = queue.join(2, 1, None);
    queue.state.end_first_try(1);
    assert!(queue.is_notified(0), "a first try has ended");
    let third = queue.join(3, 1, None);
    assert!(!queue.is_notified(0), "it joined behind another one");
    let first = queue.join(1, 1, None);
    assert!(queue.is_notified(0), "it joined before the others");
    drop(first);
    queue.leave(1);
    assert!(queue.is_notified(0), "the head has left");
    queue.state.permits_freed();
    assert!(queue.is_notified(0), "permits have come free");

    queue.call();
    drop((second, third));
    let _behind = queue.join(4, 1, None);
    queue.is_notified(0);
    assert!(!is_abandoned(queue.leave(2)));
    assert!(!queue.is_notified(0), "somebody still waits for the call");
    assert!(is_abandoned(queue.leave(3)));
    assert!(queue.is_notified(0), "the call is abandoned");

    let _elsewhere = queue.join_on(1, 5, 1, None);
    queue.lose_driver(0, None);
    assert!(queue.is_notified(1), "it is the only one now");
}

#[test]
fn a_call_that_some_left_is_withdrawn_once_no_driver_can_be_making_it() {
    let mut queue = Queue::new();
    let left = queue.join(1, 2, None);
    let mut stays = queue.join(2, 1, None);
    let sent_at = queue.now;
    let call = queue.call();
    drop(left);
    assert!(matches!(queue.leave(1), Left::Unwatched));
    let just_before = sent_at.checked_sub(Duration::from_millis(1)).unwrap();
    let watched = queue.state.withdraw_overdue(just_before);
    assert!(matches!(watched, Watched::InTime), "{watched:?}");
    queue.now += LONGEST_HOLD_UP;
    let watched = queue.state.withdraw_overdue(sent_at);
    assert!(matches!(watched, Watched::Withdrawn(it) if Arc::ptr_eq(&it, &call)));
    assert!(queue.is_notified(0));
    // What it took has no owner, and the remaining waiter is asked for again, with all the time
    // that a call has.
    assert_eq!(queue.answer(&call, 0, 10), rest(3));
    assert!(stays.try_recv().is_err());
    let (again, held_up) = queue.call_held_up();
    assert_eq!(permits(&again), [1]);
    assert_eq!(held_up, Duration::ZERO);
}

#[test]
fn a_call_that_nobody_has_left_is_not_withdrawn() {
    let mut queue = Queue::new();
    let left = queue.join(1, 1, None);
    let _stays = queue.join(2, 1, None);
    let call = queue.call();
    drop(left);
    assert!(matches!(queue.leave(1), Left::Unwatched));
    queue.answer(&call, 0, 0);
    queue.state.permits_freed();
    let next = queue.call();
    let watched = queue.state.withdraw_overdue(queue.now);
    assert!(matches!(watched, Watched::Ended), "{watched:?}");
    assert_eq!(queue.answer(&next, 0, 1), rest(0));
}

#[test]
fn a_driver_that_takes_a_call_over_has_all_the_rest_of_its_time() {
    let ms = Duration::from_millis;
    let mut queue = Queue::new();
    queue.state = State::over(ms(300));
    let _waiting = queue.join(1, 1, None);
    let _elsewhere = queue.join_on(1, 2, 1, None);
    assert_eq!(queue.call_held_up().1, Duration::ZERO);
    let due = queue.now + ms(150);
    assert!(matches!(queue.next_on(1), Next::Sleep(until) if until == due));
    queue.now = due + ms(10_000);
    assert!(matches!(queue.next_on(1), Next::Call(_, held_up) if held_up == ms(150)));
    // Each driver holds up others for half of what is left, so the next one has time for it.
    queue.now += ms(75);
    assert!(matches!(queue.next_on(0), Next::Call(_, held_up) if held_up == ms(225)));
}
