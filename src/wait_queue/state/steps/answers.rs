//! Answers and failures.

use super::*;

#[test]
fn a_denied_waiter_stays_behind_one_that_joined_before_it_meanwhile() {
    let mut line = Line::new();
    let _second = line.join(2, 2, None);
    let _third = line.join(3, 3, None);
    let call = line.call();
    let _first = line.join(1, 1, None);
    line.answer(&call, 0, 1);
    assert_eq!(permits(&line.call()), [1, 2, 3]);
}

#[test]
fn an_answer_that_comes_twice_is_one_grant_and_one_with_another_score_is_given_back() {
    let mut line = Line::new();
    let _waiting = line.join(1, 4, None);
    let call = line.call();
    assert_eq!(line.answer(&call, 7, 10), rest(0));
    assert_eq!(line.answer(&call, 7, 10), rest(0));
    assert_eq!(line.answer(&call, 8, 10), rest(4));
}

#[test]
fn what_a_denied_call_is_granted_later_is_given_back() {
    let mut line = Line::new();
    let _waiting = line.join(1, 4, None);
    let call = line.call();
    assert_eq!(line.answer(&call, 7, 0), rest(0));
    assert_eq!(line.answer(&call, 8, 10), rest(4));
}

#[test]
fn what_a_failed_call_is_granted_later_is_given_back() {
    let mut line = Line::new();
    let mut waiting = line.join(1, 4, None);
    let call = line.call();
    line.fail(&call);
    assert!(waiting.try_recv().unwrap().is_err());
    assert_eq!(line.answer(&call, 8, 10), rest(4));
}

#[test]
fn a_failure_puts_nothing_off() {
    let mut line = Line::new();
    let denied = line.join(1, 5, None);
    let call = line.call();
    line.answer(&call, 0, 2);
    let _fits = line.join(2, 2, None);
    let _too_large_for_the_same_call = line.join(3, u32::MAX, None);
    drop(denied);
    line.leave(1);
    let call = line.call();
    assert_eq!(permits(&call), [2]);
    line.fail(&call);
    assert_eq!(permits(&line.call()), [u32::MAX]);
}

#[test]
fn a_failure_is_for_those_whom_its_call_carried() {
    let mut line = Line::new();
    let _first = line.join(1, 1, None);
    let answered = line.call();
    line.answer(&answered, 0, 1);
    let mut carried = line.join(2, 1, None);
    let call = line.call();
    let mut behind = line.join(3, 1, None);
    line.fail(&answered);
    assert!(carried.try_recv().is_err());
    line.fail(&call);
    assert!(carried.try_recv().unwrap().is_err());
    assert!(behind.try_recv().is_err());
    assert_eq!(permits(&line.call()), [1]);
}

#[test]
fn one_above_the_rate_fails_and_those_behind_it_are_served() {
    let mut line = Line::new();
    let mut large = line.join(1, RATE as u32 + 1, None);
    let mut small = line.join(2, 1, None);
    let call = line.call();
    line.answer(&call, 0, 1);
    let error = large.try_recv().unwrap().unwrap_err();
    assert!(
        matches!(error, Error::PermitsExceedRate { .. }),
        "{error:?}"
    );
    assert_eq!(small.try_recv().unwrap().unwrap().permits(), 1);
}

#[test]
fn an_answer_that_tells_what_an_earlier_attempt_was_granted_puts_nothing_off() {
    let mut line = Line::new();
    let _granted = line.join(1, 1, None);
    let _denied = line.join(2, 1, None);
    let call = line.call();
    let mut answer = Answer::new(0, RATE, 1, 60_000);
    answer.found = true;
    line.state.answered(&Answered {
        call: &call,
        answer: &answer,
        sent_at: line.now,
        own: 0,
        name: "limiter",
    });
    assert_eq!(permits(&line.call()), [1]);
}

#[test]
fn a_call_takes_so_much_less_as_its_waiters_were_held_up_by_one_that_failed() {
    let ms = Duration::from_millis;
    let mut line = Line::new();
    let start = line.now;
    let _first = line.join(1, 1, None);
    let call = line.call();
    assert_eq!(call.held_up, Duration::ZERO);
    let runtime = line.runtimes[0].handle().id();
    let mut others = Vec::new();
    for (sequence, joined) in [(2, 700), (3, 900)] {
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter::new(1, None, sequence, sender).joined(start + ms(joined));
        line.state.join(waiter, runtime, None);
        others.push(receiver);
    }
    line.now = start + ms(1_000);
    line.fail(&call);
    let call = line.call();
    assert_eq!(call.held_up, ms(300));
    // One that is answered holds up nobody.
    line.answer(&call, 0, 0);
    line.state.permits_freed();
    line.now += ms(60_000);
    assert_eq!(line.call().held_up, Duration::ZERO);
}

#[test]
fn a_failure_from_before_takes_no_time_from_who_joins_later() {
    let ms = Duration::from_millis;
    let mut line = Line::new();
    let _fails = line.join(1, 1, None);
    let call = line.call();
    line.now += ms(3_000);
    line.fail(&call);
    let runtime = line.runtimes[0].handle().id();
    assert!(matches!(line.next_on(0), Next::Stop));
    line.now += ms(1_000);
    let (sender, _waits) = oneshot::channel();
    let waiter = Waiter::new(1, None, 2, sender).joined(line.now);
    line.state.join(waiter, runtime, None);
    line.now += LONGEST_SLEEP; // its own first try was denied
    assert_eq!(line.call().held_up, Duration::ZERO);
}
