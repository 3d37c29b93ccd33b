//! When the line is asked for, and for whom.

use super::*;

#[test]
fn a_call_carries_no_more_waiters_than_its_capacity_and_no_more_permits_than_a_member_holds() {
    let mut line = Line::new();
    let count = CAPACITY as u64 + 1;
    let _waiters: Vec<_> = (0..count).map(|it| line.join(it, 1, None)).collect();
    assert_eq!(permits(&line.call()).len(), CAPACITY);

    let mut line = Line::new();
    let _waiters =
        [(1, u32::MAX - 2), (2, 2), (3, 1)].map(|(place, it)| line.join(place, it, None));
    let call = line.call();
    assert_eq!(call.requests.total(), i64::from(u32::MAX));
}

/// When the line asks again whose head, with so much time, a probe denied the only permit.
fn asks_after_a_probe(line: &mut Line, time: Option<Duration>) -> (Instant, Answers) {
    let (sender, receiver) = oneshot::channel();
    let until = time.map(|time| line.now + time);
    let waiter = Waiter::new(1, None, 1, sender).until(until);
    let runtime = line.runtimes[0].handle().id();
    line.state.join(waiter, runtime, None);
    let Next::Call(call) = line.state.next(runtime, line.now, true) else {
        panic!("it is asked for");
    };
    assert!(call.requests.share.is_some());
    let mut answer = Answer::new(0, 1, 1, 900);
    answer.interval = Some(900);
    line.state.answered(&Answered {
        call: &call,
        answer: &answer,
        sent_at: line.now,
        own: 0,
        name: "limiter",
    });
    match line.state.next(runtime, line.now, true) {
        Next::Sleep(until) => (until, receiver),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_probe_ends_before_the_head_gives_up() {
    let ms = Duration::from_millis;
    for time in [None, Some(ms(500))] {
        let mut line = Line::new();
        let (ask_at, _answers) = asks_after_a_probe(&mut line, time);
        assert!(
            (ms(100)..ms(140)).contains(&(ask_at - line.now)),
            "{time:?}"
        );
    }
    let mut line = Line::new();
    let (ask_at, _answers) = asks_after_a_probe(&mut line, Some(ms(60)));
    assert_eq!(ask_at - line.now, ms(50));
    line.now = ask_at;
    let runtime = line.runtimes[0].handle().id();
    match line.state.next(runtime, line.now, true) {
        Next::Call(call) => assert_eq!(call.requests.share, None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn permits_that_come_free_while_a_call_is_in_flight_are_asked_for_at_once() {
    for comes_free in [false, true] {
        let mut line = Line::new();
        let _waiting = line.join(1, 1, None);
        let call = line.call();
        if comes_free {
            line.state.permits_freed();
        }
        line.answer(&call, 0, 0);
        let next = line.next_on(0);
        assert_eq!(matches!(next, Next::Call(_)), comes_free, "{next:?}");
    }
}

#[test]
fn after_a_denial_the_head_is_asked_for_where_it_fits_and_put_off_where_it_does_not() {
    for (next_permits, is_asked_for) in [(1, true), (2, true), (3, false)] {
        let mut line = Line::new();
        let denied = line.join(1, 5, None);
        let call = line.call();
        let _next = line.join(2, next_permits, None);
        line.answer(&call, 0, 2);
        assert!(matches!(line.next_on(0), Next::Sleep(_)));
        drop(denied);
        assert!(!is_abandoned(line.leave(1)));
        let next = line.next_on(0);
        assert_eq!(matches!(next, Next::Call(_)), is_asked_for, "{next:?}");
    }
}

#[test]
fn one_that_joins_behind_others_has_nothing_asked_for_again_and_permits_that_come_free_have() {
    let mut line = Line::new();
    let _denied = line.join(1, 1, None);
    let call = line.call();
    line.answer(&call, 0, 0);
    let _behind = line.join(2, 1, None);
    assert!(matches!(line.next_on(0), Next::Sleep(_)));
    line.state.permits_freed();
    line.call();
}
