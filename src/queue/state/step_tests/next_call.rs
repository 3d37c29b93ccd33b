//! When the queue makes a call, and for which waiters.

use super::*;

#[test]
fn a_call_carries_at_most_its_capacity_and_the_permits_of_one_member() {
    let mut queue = Queue::new();
    let count = CAPACITY as u64 + 1;
    let _waiters: Vec<_> = (0..count).map(|it| queue.join(it, 1, None)).collect();
    assert_eq!(permits(&queue.call()).len(), CAPACITY);

    let mut queue = Queue::new();
    let _waiters =
        [(1, u32::MAX - 2), (2, 2), (3, 1)].map(|(place, it)| queue.join(place, it, None));
    let call = queue.call();
    assert_eq!(call.requests.total(), i64::from(u32::MAX));
}

/// When the queue asks again after a probe denied the only permit to its head, which has `time`.
fn asks_after_a_probe(queue: &mut Queue, time: Option<Duration>) -> (Instant, AnswerReceiver) {
    let (sender, receiver) = oneshot::channel();
    let until = time.map(|time| queue.now + time);
    let waiter = Waiter {
        until,
        ..Waiter::new(1, 1, sender)
    };
    let runtime = queue.runtimes[0].handle().id();
    queue.state.join(waiter, runtime, None);
    let Next::Call(call, _) = queue.state.next(runtime, queue.now, true, false) else {
        panic!("it is asked for");
    };
    assert!(call.requests.share.is_some());
    let answer = Acquired::new(0, 1, 1, 900, 900);
    queue.state.answered(&Answered {
        call: &call,
        answer: &answer,
        sent_at: queue.now,
        now: queue.now,
        own: 0,
        name: "limiter",
    });
    match queue.state.next(runtime, queue.now, true, false) {
        Next::Sleep(until) => (until, receiver),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_probe_ends_before_the_head_gives_up() {
    let ms = Duration::from_millis;
    for time in [None, Some(ms(500))] {
        let mut queue = Queue::new();
        let (ask_at, _answers) = asks_after_a_probe(&mut queue, time);
        assert!(
            (ms(100)..ms(140)).contains(&(ask_at - queue.now)),
            "{time:?}"
        );
    }
    let mut queue = Queue::new();
    let (ask_at, _answers) = asks_after_a_probe(&mut queue, Some(ms(60)));
    assert_eq!(ask_at - queue.now, ms(50));
    queue.now = ask_at;
    let runtime = queue.runtimes[0].handle().id();
    match queue.state.next(runtime, queue.now, true, false) {
        Next::Call(call, _) => assert_eq!(call.requests.share, None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn permits_that_come_free_while_a_call_is_in_flight_are_asked_for_at_once() {
    for comes_free in [false, true] {
        let mut queue = Queue::new();
        let _waiting = queue.join(1, 1, None);
        let call = queue.call();
        if comes_free {
            queue.state.permits_freed();
        }
        queue.answer(&call, 0, 0);
        let next = queue.next_on(0);
        assert_eq!(matches!(next, Next::Call(..)), comes_free, "{next:?}");
    }
}

#[test]
fn after_a_denial_the_head_is_asked_for_if_it_fits_and_else_put_off() {
    for (next_permits, is_asked_for) in [(1, true), (2, true), (3, false)] {
        let mut queue = Queue::new();
        let denied = queue.join(1, 5, None);
        let call = queue.call();
        let _next = queue.join(2, next_permits, None);
        queue.answer(&call, 0, 2);
        assert!(matches!(queue.next_on(0), Next::Sleep(_)));
        drop(denied);
        assert!(!is_abandoned(queue.leave(1)));
        let next = queue.next_on(0);
        assert_eq!(matches!(next, Next::Call(..)), is_asked_for, "{next:?}");
    }
}

#[test]
fn a_waiter_that_joins_causes_no_call_and_permits_that_come_free_do() {
    let mut queue = Queue::new();
    let _denied = queue.join(1, 1, None);
    let call = queue.call();
    queue.answer(&call, 0, 0);
    let _behind = queue.join(2, 1, None);
    assert!(matches!(queue.next_on(0), Next::Sleep(_)));
    queue.state.permits_freed();
    queue.call();
}

/// Answers the call 4 s after it was sent: permits come back in a minute.
fn answer_late(queue: &mut Queue, call: &Arc<AcquireCall>) {
    let sent_at = queue.now;
    queue.now += Duration::from_secs(4);
    let answer = Acquired::new(0, RATE, 0, 60_000, 60_000);
    queue.state.answered(&Answered {
        call,
        answer: &answer,
        sent_at,
        now: queue.now,
        own: 0,
        name: "limiter",
    });
}

#[test]
fn however_late_an_answer_is_read_the_queue_sleeps_before_it_asks_again() {
    let mut queue = Queue::new();
    let _waiter = queue.join(1, 1, None);
    let call = queue.call();
    answer_late(&mut queue, &call);
    match queue.next_on(0) {
        Next::Sleep(until) => assert_eq!(until, queue.now + LONGEST_SLEEP),
        other => panic!("{other:?}"),
    }
}

#[test]
fn however_late_answers_are_read_messages_cause_no_calls_without_a_pause() {
    let mut queue = Queue::new();
    let _waiter = queue.join(1, 1, None);
    let mut call = queue.call();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        queue.state.freed_elsewhere(1);
        answer_late(&mut queue, &call);
        let read_at = queue.now;
        call = loop {
            match queue.next_on(0) {
                Next::Sleep(until) => queue.now = until,
                Next::Call(call, _) => break call,
                other => panic!("{other:?}"),
            }
        };
        pauses.push((queue.now - read_at).as_millis());
    }
    assert_eq!(pauses, [0, 10, 20]);
}
