//! Drivers of several runtimes.

use super::*;

#[test]
fn another_runtimes_driver_takes_a_call_over_once_in_a_while_and_not_before() {
    let mut line = Line::new();
    let _waiting = line.join(1, 1, None);
    let _elsewhere = line.join_on(1, 2, 1, None);
    let call = line.call();
    assert!(matches!(line.next_on(1), Next::Sleep(until) if until == line.now + TAKE_OVER_AFTER));
    line.now += TAKE_OVER_AFTER;
    assert!(matches!(line.next_on(1), Next::Call(same) if Arc::ptr_eq(&same, &call)));
    assert!(matches!(line.next_on(0), Next::Sleep(until) if until == line.now + TAKE_OVER_AFTER));
}

#[test]
fn a_call_whose_runtime_shuts_down_is_taken_over_at_once() {
    let mut line = Line::new();
    let _waiting = line.join(1, 1, None);
    let _elsewhere = line.join_on(1, 2, 1, None);
    let call = line.call();
    assert!(line.lose_driver(0, Some(&call)).is_none());
    line.now = Instant::now();
    assert!(matches!(line.next_on(1), Next::Call(same) if Arc::ptr_eq(&same, &call)));
}

#[test]
fn a_call_whose_runtime_shuts_down_is_abandoned_where_there_is_no_other() {
    let mut line = Line::new();
    let mut waiting = line.join(1, 1, None);
    let call = line.call();
    let mut behind = line.join(2, 1, None);
    assert!(line.lose_driver(0, Some(&call)).is_some());
    for waiter in [&mut waiting, &mut behind] {
        let closed = oneshot::error::TryRecvError::Closed;
        assert_eq!(waiter.try_recv().unwrap_err(), closed);
    }
}

#[test]
fn a_call_that_several_drivers_made_is_reclaimed_once_at_the_first_outcome() {
    for (balance, is_lost) in [
        (Some(0), false),
        (Some(1), true),
        (Some(1), false),
        (None, false),
    ] {
        let mut line = Line::new();
        let _waiting = line.join(1, 1, None);
        let _elsewhere = line.join_on(1, 2, 1, None);
        let call = line.call();
        if is_lost {
            assert!(line.lose_driver(0, Some(&call)).is_none());
        }
        line.now += TAKE_OVER_AFTER;
        assert!(matches!(line.next_on(1), Next::Call(same) if Arc::ptr_eq(&same, &call)));
        let is_reclaimed = match balance {
            Some(balance) => line.answer(&call, 7, balance).is_reclaimed,
            None => line.fail(&call),
        };
        assert!(is_reclaimed, "{balance:?}");
        // Of the attempt that is still on its way, whether its answer is read or not.
        assert_eq!(line.answer(&call, 8, 10), rest(2));
        assert!(!line.fail(&call));
        assert!(line.lose_driver(1, Some(&call)).is_none());
    }
}

#[test]
fn a_waiter_that_joins_at_the_head_notifies_the_drivers_of_all_runtimes() {
    for (sequence, is_head) in [(1, true), (3, false)] {
        let mut line = Line::new();
        let _second = line.join(2, 3, None);
        line.is_notified(0);
        let _joins = line.join_on(1, sequence, 1, None);
        assert_eq!(line.is_notified(0), is_head);
    }
}

#[test]
fn a_call_that_one_driver_made_is_not_reclaimed() {
    for balance in [0, 1] {
        let mut line = Line::new();
        let _waiting = line.join(1, 1, None);
        let call = line.call();
        assert_eq!(line.answer(&call, 0, balance), rest(0));
    }
}

#[test]
fn a_driver_stops_where_nobody_waits_and_is_started_again_by_the_next() {
    let mut line = Line::new();
    drop(line.join(1, 1, None));
    line.leave(1);
    assert!(matches!(line.next_on(0), Next::Stop));
    let (answer, _receiver) = oneshot::channel();
    let waiter = Waiter::new(1, None, 2, answer);
    let runtime = line.runtimes[0].handle().id();
    assert!(line.state.join(waiter, runtime, None).is_some());
}

#[test]
fn a_driver_is_notified_when_the_head_changes_and_when_it_may_ask() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    let second = line.join(2, 1, None);
    line.state.end_first_try(1);
    assert!(line.is_notified(0), "a first try has ended");
    let third = line.join(3, 1, None);
    assert!(!line.is_notified(0), "it joined behind another one");
    let first = line.join(1, 1, None);
    assert!(line.is_notified(0), "it joined before the others");
    drop(first);
    line.leave(1);
    assert!(line.is_notified(0), "the head has left");
    line.state.permits_freed();
    assert!(line.is_notified(0), "permits have come free");

    line.call();
    drop((second, third));
    let _behind = line.join(4, 1, None);
    line.is_notified(0);
    assert!(!is_abandoned(line.leave(2)));
    assert!(!line.is_notified(0), "somebody still waits for the call");
    assert!(is_abandoned(line.leave(3)));
    assert!(line.is_notified(0), "the call is abandoned");

    let _elsewhere = line.join_on(1, 5, 1, None);
    line.lose_driver(0, None);
    assert!(line.is_notified(1), "it is the only one now");
}

#[test]
fn a_call_that_some_have_left_is_withdrawn_once_no_driver_can_be_at_it_any_more() {
    let mut line = Line::new();
    let left = line.join(1, 2, None);
    let mut stays = line.join(2, 1, None);
    let sent_at = line.now;
    let call = line.call();
    drop(left);
    assert!(matches!(line.leave(1), Left::Unwatched));
    let just_before = sent_at.checked_sub(Duration::from_millis(1)).unwrap();
    let watched = line.state.withdraw_overdue(just_before);
    assert!(matches!(watched, Watched::InTime), "{watched:?}");
    line.now += TAKE_OVER_AFTER;
    let watched = line.state.withdraw_overdue(sent_at);
    assert!(matches!(watched, Watched::Withdrawn(it) if Arc::ptr_eq(&it, &call)));
    assert!(line.is_notified(0));
    // What it took nobody holds, and who stayed is asked for again, with all the time that a call has.
    assert_eq!(line.answer(&call, 0, 10), rest(3));
    assert!(stays.try_recv().is_err());
    let again = line.call();
    assert_eq!(permits(&again), [1]);
    assert_eq!(again.held_up, Duration::ZERO);
}

#[test]
fn a_call_that_nobody_has_left_is_not_withdrawn() {
    let mut line = Line::new();
    let left = line.join(1, 1, None);
    let _stays = line.join(2, 1, None);
    let call = line.call();
    drop(left);
    assert!(matches!(line.leave(1), Left::Unwatched));
    line.answer(&call, 0, 0);
    line.state.permits_freed();
    let next = line.call();
    let watched = line.state.withdraw_overdue(line.now);
    assert!(matches!(watched, Watched::Ended), "{watched:?}");
    assert_eq!(line.answer(&next, 0, 1), rest(0));
}
