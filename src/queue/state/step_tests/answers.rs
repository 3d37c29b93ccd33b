//! Answers and failures.

use super::*;

#[test]
fn a_denied_waiter_stays_behind_one_that_joined_before_it_meanwhile() {
    let mut queue = Queue::new();
    let _second = queue.join(2, 2, None);
    let _third = queue.join(3, 3, None);
    let call = queue.call();
    let _first = queue.join(1, 1, None);
    queue.answer(&call, 0, 1);
    assert_eq!(permits(&queue.call()), [1, 2, 3]);
}

fn is_served(waiting: &mut AnswerReceiver) -> bool {
    matches!(waiting.try_recv(), Ok(Ok(_)))
}

/// Serves the front of the queue from this many permits.
fn serve(queue: &mut Queue, mut left: u32) {
    let now = queue.now;
    queue.state.serve_front(now, |permits, _| {
        left = left.checked_sub(permits)?;
        Some(Grant::new(0, [1; 16], permits))
    });
    queue.deliver();
}

#[test]
fn local_permits_go_to_the_front_of_the_queue_and_nobody_overtakes() {
    let mut queue = Queue::new();
    let [mut first, mut second, mut third] =
        [(1, 2), (2, 5), (3, 1)].map(|(i, permits)| queue.join(i, permits, None));
    serve(&mut queue, 4);
    assert!(is_served(&mut first) && !is_served(&mut second) && !is_served(&mut third));
    let call = queue.call();
    serve(&mut queue, 9);
    assert!(!is_served(&mut second), "its call is in flight");
    queue.answer(&call, 0, 0);
    serve(&mut queue, 9);
    assert!(is_served(&mut second) && is_served(&mut third));
}

#[test]
fn local_permits_are_granted_after_a_first_try_has_ended() {
    let mut queue = Queue::new();
    assert!(queue.state.start_first_try(1, queue.now));
    let mut second = queue.join(2, 1, None);
    serve(&mut queue, 1);
    assert!(!is_served(&mut second));
    queue.state.end_first_try(1);
    serve(&mut queue, 1);
    assert!(is_served(&mut second));
}

#[test]
fn a_repeated_answer_is_one_grant_and_one_with_another_score_goes_back() {
    let mut queue = Queue::new();
    let _waiting = queue.join(1, 4, None);
    let call = queue.call();
    assert_eq!(queue.answer(&call, 7, 10), rest(0));
    assert_eq!(queue.answer(&call, 7, 10), rest(0));
    assert_eq!(queue.answer(&call, 8, 10), rest(4));
}

#[test]
fn what_a_denied_call_is_granted_later_is_given_back() {
    let mut queue = Queue::new();
    let _waiting = queue.join(1, 4, None);
    let call = queue.call();
    assert_eq!(queue.answer(&call, 7, 0), rest(0));
    assert_eq!(queue.answer(&call, 8, 10), rest(4));
}

#[test]
fn what_a_failed_call_is_granted_later_is_given_back() {
    let mut queue = Queue::new();
    let mut waiting = queue.join(1, 4, None);
    let call = queue.call();
    queue.fail(&call);
    assert!(waiting.try_recv().unwrap().is_err());
    assert_eq!(queue.answer(&call, 8, 10), rest(4));
}

#[test]
fn a_failure_does_not_put_off_the_next_call() {
    let mut queue = Queue::new();
    let denied = queue.join(1, 5, None);
    let call = queue.call();
    queue.answer(&call, 0, 2);
    let _fits = queue.join(2, 2, None);
    let _too_large_for_the_same_call = queue.join(3, u32::MAX, None);
    drop(denied);
    queue.leave(1);
    let call = queue.call();
    assert_eq!(permits(&call), [2]);
    queue.fail(&call);
    assert_eq!(permits(&queue.call()), [u32::MAX]);
}

#[test]
fn a_failure_goes_to_the_waiters_that_its_call_carried() {
    let mut queue = Queue::new();
    let _first = queue.join(1, 1, None);
    let answered = queue.call();
    queue.answer(&answered, 0, 1);
    let mut carried = queue.join(2, 1, None);
    let call = queue.call();
    let mut behind = queue.join(3, 1, None);
    queue.fail(&answered);
    assert!(carried.try_recv().is_err());
    queue.fail(&call);
    assert!(carried.try_recv().unwrap().is_err());
    assert!(behind.try_recv().is_err());
    assert_eq!(permits(&queue.call()), [1]);
}

#[test]
fn a_waiter_above_the_rate_fails_and_those_behind_it_are_served() {
    let mut queue = Queue::new();
    let mut large = queue.join(1, RATE as u32 + 1, None);
    let mut small = queue.join(2, 1, None);
    let call = queue.call();
    queue.answer(&call, 0, 1);
    let error = large.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::ExceedsLimit { .. }), "{error:?}");
    assert_eq!(small.try_recv().unwrap().unwrap().permits(), 1);
}

#[test]
fn an_answer_about_an_earlier_attempts_grant_puts_nothing_off() {
    let mut queue = Queue::new();
    let _granted = queue.join(1, 1, None);
    let _denied = queue.join(2, 1, None);
    let call = queue.call();
    let mut answer = Acquired::new(0, RATE, 1, 60_000, 60_000);
    answer.found = true;
    queue.state.answered(&Answered {
        call: &call,
        answer: &answer,
        sent_at: queue.now,
        now: queue.now,
        own: 0,
        name: "limiter",
    });
    assert_eq!(permits(&queue.call()), [1]);
}

#[test]
fn a_call_has_less_time_after_a_failed_one_held_up_its_waiters() {
    let ms = Duration::from_millis;
    let mut queue = Queue::new();
    let start = queue.now;
    let _first = queue.join(1, 1, None);
    let (call, held_up) = queue.call_held_up();
    assert_eq!(held_up, Duration::ZERO);
    let runtime = queue.runtimes[0].handle().id();
    let mut others = Vec::new();
    for (sequence, joined) in [(2, 700), (3, 900)] {
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter {
            joined: Some(start + ms(joined)),
            ..Waiter::new(1, sequence, sender)
        };
        queue.state.join(waiter, runtime, None);
        others.push(receiver);
    }
    queue.now = start + ms(1_000);
    queue.fail(&call);
    let (call, held_up) = queue.call_held_up();
    assert_eq!(held_up, ms(300));
    // A waiter that has its answer holds up nobody.
    queue.answer(&call, 0, 0);
    queue.state.permits_freed();
    queue.now += ms(60_000);
    assert_eq!(queue.call_held_up().1, Duration::ZERO);
}

#[test]
fn an_earlier_failure_takes_no_time_from_a_waiter_that_joins_later() {
    let ms = Duration::from_millis;
    let mut queue = Queue::new();
    let _fails = queue.join(1, 1, None);
    let call = queue.call();
    queue.now += ms(3_000);
    queue.fail(&call);
    let runtime = queue.runtimes[0].handle().id();
    assert!(matches!(queue.next_on(0), Next::Stop));
    queue.now += ms(1_000);
    let (sender, _waits) = oneshot::channel();
    let waiter = Waiter {
        joined: Some(queue.now),
        ..Waiter::new(1, 2, sender)
    };
    queue.state.join(waiter, runtime, None);
    queue.now += LONGEST_SLEEP; // its own first try was denied
    assert_eq!(queue.call_held_up().1, Duration::ZERO);
}
