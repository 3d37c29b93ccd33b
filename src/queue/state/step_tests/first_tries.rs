//! First tries, and what their denials say.

use super::*;

#[test]
fn a_denial_puts_the_next_call_off_unless_permits_came_free_meanwhile() {
    for comes_free in [false, true] {
        let mut queue = Queue::new();
        assert!(queue.state.start_first_try(1, queue.now));
        if comes_free {
            queue.state.permits_freed();
        }
        let denied = queue.denied(Duration::ZERO);
        let _waiting = queue.join(1, 1, denied);
        queue.state.end_first_try(1);
        let next = queue.next_on(0);
        assert_eq!(matches!(next, Next::Call(..)), comes_free, "{next:?}");
    }
}

#[test]
fn a_denial_that_is_read_late_puts_nothing_off() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    let denied = queue.denied(LONGEST_SLEEP);
    let _waiting = queue.join(1, 1, denied);
    queue.state.end_first_try(1);
    queue.call();
}

#[test]
fn a_first_try_without_progress_holds_up_the_queue_no_longer_than_a_call() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    let _waiting = queue.join(2, 1, None);
    assert!(matches!(queue.next_on(0), Next::Sleep(until) if until == queue.now + LONGEST_HOLD_UP));
    queue.now += LONGEST_HOLD_UP;
    queue.call();
}

#[test]
fn a_first_try_that_nobody_polls_does_not_cost_a_waiter_its_time() {
    let mut queue = Queue::new();
    let time = Duration::from_millis(100);
    assert!(queue.state.start_first_try(1, queue.now));
    let (sender, _answers) = oneshot::channel();
    let waiter = Waiter {
        until: Some(queue.now + time),
        ..Waiter::new(1, 2, sender)
    };
    let runtime = queue.runtimes[0].handle().id();
    queue.state.join(waiter, runtime, None);
    let ask_at = queue.now + time - TIME_FOR_A_CALL;
    assert!(matches!(queue.next_on(0), Next::Sleep(until) if until == ask_at));
    queue.now = ask_at;
    assert_eq!(permits(&queue.call()), [1]);
}

#[test]
fn denials_of_other_waiters_and_of_ones_that_join_behind_put_nothing_off() {
    let mut queue = Queue::new();
    let denied = queue.denied(Duration::ZERO);
    let _waiting = queue.join(2, 1, denied); // it had no first try of its own
    queue.call();

    let mut queue = Queue::new();
    let _waiting = queue.join(1, 1, None);
    let denied = queue.denied(Duration::ZERO);
    let _behind = queue.join(2, 1, denied);
    queue.call();
}

#[test]
fn only_a_waiter_with_nobody_before_it_makes_a_first_try() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    assert!(
        !queue.state.start_first_try(2, queue.now),
        "another first try is under way"
    );
    queue.state.end_first_try(1);

    let waiting = queue.join(3, 1, None);
    assert!(
        !queue.state.start_first_try(4, queue.now),
        "another waiter is queued"
    );
    let call = queue.call();
    assert!(
        !queue.state.start_first_try(5, queue.now),
        "a call is in flight"
    );
    queue.answer(&call, 0, 0);
    drop(waiting);
    assert!(
        queue.state.start_first_try(6, queue.now),
        "the other waiter has left"
    );
}

#[test]
fn a_first_try_that_takes_long_is_no_reason_for_another_one() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    queue.now += LONGEST_HOLD_UP;
    assert!(!queue.state.start_first_try(2, queue.now));
    queue.state.end_first_try(1);
    assert!(queue.state.start_first_try(3, queue.now));
    queue.state.end_first_try(1); // has ended already
    assert!(!queue.state.start_first_try(4, queue.now));
}

#[test]
fn nobody_makes_a_first_try_between_a_shared_call_and_the_next_step() {
    for (carried, is_first) in [(1, true), (2, false)] {
        let mut queue = Queue::new();
        let _served: Vec<_> = (1..=carried).map(|it| queue.join(it, 1, None)).collect();
        let call = queue.call();
        queue.answer(&call, 1, 9);
        assert_eq!(queue.state.start_first_try(3, queue.now), is_first);
        if !is_first {
            assert!(matches!(queue.next_on(0), Next::Stop));
            assert!(queue.state.start_first_try(3, queue.now));
        }
    }
}

#[test]
fn a_latecomer_waits_until_the_first_try_has_joined_or_could_have() {
    // In an outage nobody makes a first try.
    for (joins, may_try) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut queue = Queue::new();
        let first = queue.state.arrive(2, true, queue.now).unwrap();
        assert!(first.is_first && first.sequence == 1);
        let mut followed = queue.state.watch_first_try(1).unwrap();
        queue.now += 10 * LONGEST_HOLD_UP;
        let behind = queue.state.arrive(2, may_try, queue.now).unwrap();
        assert!(!behind.is_first && behind.sequence == 2);
        queue.deliver();
        assert!(followed.try_recv().is_err(), "nobody has joined");
        let _behind = queue.join(2, 2, None);
        queue.deliver();
        followed.try_recv().unwrap();
        let Next::Sleep(until) = queue.next_on(0) else {
            panic!("it does not wait");
        };
        if joins {
            queue.state.first_try_is_silent(1, queue.now);
            let _before = queue.join(1, 1, None);
            queue.state.end_first_try(1);
            assert!(!queue.state.is_next(2));
            assert_eq!(permits(&queue.call()), [1, 2]);
            assert!(queue.state.is_next(1) && !queue.state.is_next(2));
        } else {
            assert!(until < queue.now + LONGEST_HOLD_UP);
            queue.now = until;
            assert_eq!(permits(&queue.call()), [2]);
        }
    }
}

#[test]
fn a_first_try_learns_after_its_step_that_it_no_longer_holds_up_the_queue() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    let (sender, _waits) = oneshot::channel();
    let until = queue.now + LONGEST_HOLD_UP;
    let waiter = Waiter {
        until: Some(until),
        ..Waiter::new(1, 2, sender)
    };
    let runtime = queue.runtimes[0].handle().id();
    queue.state.join(waiter, runtime, None);
    queue.now = until - TIME_FOR_A_CALL;
    let call = queue.call();
    let mut followed = queue.state.watch_first_try(1).unwrap(); // nobody but those of the call waits
    queue.answer(&call, 0, 0);
    queue.now = until;
    assert!(matches!(queue.next_on(0), Next::Sleep(_)));
    let still_waits = Err(oneshot::error::TryRecvError::Empty);
    assert_eq!(
        followed.try_recv(),
        still_waits,
        "its waker has not run yet"
    );
    queue.deliver();
    assert_eq!(followed.try_recv(), Ok(()));
}

#[test]
fn a_denial_of_another_ones_first_try_puts_nothing_off() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    let denied = queue.denied(Duration::ZERO);
    let _waiting = queue.join(2, 1, denied);
    queue.state.end_first_try(1);
    queue.call();
}

#[test]
fn a_first_try_that_nobody_polls_any_more_takes_no_time_from_later_calls() {
    let ms = Duration::from_millis;
    let mut queue = Queue::new();
    let start = queue.now;
    assert!(queue.state.start_first_try(1, start));
    let (sender, _waits) = oneshot::channel();
    let waiter = Waiter {
        joined: Some(start + ms(100)),
        ..Waiter::new(1, 2, sender)
    };
    let runtime = queue.runtimes[0].handle().id();
    queue.state.join(waiter, runtime, None);
    queue.now = start + LONGEST_HOLD_UP;
    let (call, held_up) = queue.call_held_up();
    assert_eq!(held_up, ms(400));
    queue.answer(&call, 0, 0);
    queue.now += ms(60_000);
    assert_eq!(queue.call_held_up().1, Duration::ZERO);
}

#[test]
fn an_unpolled_first_try_leaves_half_of_a_calls_time_to_any_behind_it() {
    let ms = Duration::from_millis;
    for late in [0, 10_000] {
        let mut queue = Queue::new();
        queue.state = State::over(ms(300));
        let start = queue.now;
        assert!(queue.state.start_first_try(1, start));
        let (sender, _waits) = oneshot::channel();
        let waiter = Waiter {
            joined: Some(start),
            ..Waiter::new(1, 2, sender)
        };
        let runtime = queue.runtimes[0].handle().id();
        queue.state.join(waiter, runtime, None);
        assert!(matches!(queue.next_on(0), Next::Sleep(until) if until == start + ms(150)));
        queue.now = start + ms(150 + late);
        assert_eq!(queue.call_held_up().1, ms(150));
    }
}
