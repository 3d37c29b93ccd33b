//! Single steps of the state.

use std::pin::pin;
use std::task::{Context, Waker};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot::{self, Receiver};

use super::super::LONGEST_SLEEP;
use super::waiter::TIME_FOR_A_CALL;
use super::*;
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::model::Answer;

const RATE: i64 = 10;

struct Line {
    state: State,
    now: Instant,
    runtimes: [Runtime; 2],
}

type Answers = Receiver<Result<Grant>>;

impl Line {
    fn new() -> Self {
        Self {
            state: State::default(),
            now: Instant::now(),
            runtimes: [(); 2].map(|()| Builder::new_current_thread().build().unwrap()),
        }
    }

    fn join(&mut self, sequence: u64, permits: u32, denied: Option<Known>) -> Answers {
        self.join_on(0, sequence, permits, denied)
    }

    fn join_on(
        &mut self,
        runtime: usize,
        sequence: u64,
        permits: u32,
        denied: Option<Known>,
    ) -> Answers {
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter::new(permits, None, sequence, answer);
        let runtime = self.runtimes[runtime].handle().id();
        self.state.join(waiter, runtime, denied);
        receiver
    }

    fn leave(&mut self, sequence: u64) -> Left {
        self.state.leave(sequence)
    }

    fn fail(&mut self, call: &Arc<AcquireCall>) -> bool {
        let lost = Error::Indeterminate { source: None };
        let is_reclaimed = self.state.failed(call, &lost, self.now);
        self.deliver();
        is_reclaimed
    }

    fn lose_driver(
        &mut self,
        runtime: usize,
        call: Option<&Arc<AcquireCall>>,
    ) -> Option<Arc<AcquireCall>> {
        let runtime = self.runtimes[runtime].handle().id();
        let abandoned = self.state.driver_lost(runtime, call, self.now);
        self.deliver();
        abandoned
    }

    fn deliver(&mut self) {
        let unreceived = self.state.take_outbox().deliver();
        assert_eq!(unreceived.len(), 0);
    }

    fn next_on(&mut self, runtime: usize) -> Next {
        let runtime = self.runtimes[runtime].handle().id();
        self.state.next(runtime, self.now, false)
    }

    fn call(&mut self) -> Arc<AcquireCall> {
        match self.next_on(0) {
            Next::Call(call) => call,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, call: &Arc<AcquireCall>, score: i64, balance: i64) -> Rest {
        let rest = self.state.answered(&Answered {
            call,
            answer: &Answer::new(score, RATE, balance, 60_000),
            sent_at: self.now,
            own: 0,
            name: "limiter",
        });
        self.deliver();
        rest
    }

    /// Whether a runtime's driver has been notified since this was asked last.
    fn is_notified(&mut self, runtime: usize) -> bool {
        self.deliver();
        let runtime = self.runtimes[runtime].handle().id();
        let slot = self.state.drivers.iter().find(|it| it.runtime == runtime);
        let notified = pin!(slot.expect("its driver").notify.notified());
        let mut context = Context::from_waker(Waker::noop());
        notified.poll(&mut context).is_ready()
    }

    /// What a request was told that was sent `ago`: to come back after a minute.
    fn denied(&self, ago: Duration) -> Option<Known> {
        Some(Known::new(0, self.now - ago, Duration::from_secs(60)))
    }
}

fn is_abandoned(left: Left) -> bool {
    matches!(left, Left::Abandoned(_))
}

/// So many permits that nobody holds.
fn rest(permits: u32) -> Rest {
    Rest {
        permits,
        is_reclaimed: false,
    }
}

fn permits(call: &AcquireCall) -> Vec<u32> {
    let runs = call.requests.runs.iter();
    runs.flat_map(|run| vec![run.permits; run.count as usize])
        .collect()
}

#[test]
fn a_denial_puts_the_next_call_off_unless_permits_came_free_since_it_was_asked_for() {
    for comes_free in [false, true] {
        let mut line = Line::new();
        assert!(line.state.start_first_try(1, line.now));
        if comes_free {
            line.state.permits_freed();
        }
        let denied = line.denied(Duration::ZERO);
        let _waiting = line.join(1, 1, denied);
        line.state.end_first_try(1);
        let next = line.next_on(0);
        assert_eq!(matches!(next, Next::Call(_)), comes_free, "{next:?}");
    }
}

#[test]
fn a_denial_that_is_read_late_puts_nothing_off() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    let denied = line.denied(LONGEST_SLEEP);
    let _waiting = line.join(1, 1, denied);
    line.state.end_first_try(1);
    line.call();
}

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
fn a_waiter_that_joins_again_while_its_call_is_in_flight_leaves_that_call_once() {
    let mut line = Line::new();
    let moved = line.join(1, 1, None);
    let mut stays = line.join(2, 1, None);
    let call = line.call();
    drop(moved);
    assert!(!is_abandoned(line.leave(1)));
    drop(line.join_on(1, 1, 1, None));
    assert!(!is_abandoned(line.leave(1)), "the second one still waits");
    assert_eq!(line.answer(&call, 0, 2), rest(1));
    assert_eq!(stays.try_recv().unwrap().unwrap().permits(), 1);
}

#[test]
fn a_call_is_abandoned_when_the_last_of_its_waiters_leaves() {
    let mut line = Line::new();
    let waiters = [1, 2, 3].map(|sequence| (sequence, line.join(sequence, 1, None)));
    let call = line.call();
    let left = waiters.map(|(sequence, waiter)| {
        drop(waiter);
        line.leave(sequence)
    });
    assert!(matches!(
        &left,
        [Left::Unwatched, Left::Nothing, Left::Abandoned(abandoned)] if Arc::ptr_eq(abandoned, &call)
    ));
    // It was executed all the same.
    assert_eq!(line.answer(&call, 0, 5), rest(3));
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
fn a_first_try_that_makes_no_progress_holds_the_line_up_no_longer_than_a_call() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    let _waiting = line.join(2, 1, None);
    assert!(matches!(line.next_on(0), Next::Sleep(until) if until == line.now + TAKE_OVER_AFTER));
    line.now += TAKE_OVER_AFTER;
    line.call();
}

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
fn waiters_that_left_take_no_more_room_than_those_who_stay() {
    let mut line = Line::new();
    let mut waiters: Vec<_> = (0..10_000).map(|it| Some(line.join(it, 1, None))).collect();
    for sequence in (1..10_000).rev() {
        waiters[sequence as usize] = None;
        line.leave(sequence);
        assert!(line.state.waiters.len() as u64 <= 2 * sequence + 1);
    }
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
fn a_first_try_that_nobody_polls_does_not_cost_a_waiter_its_time() {
    let mut line = Line::new();
    let time = Duration::from_millis(100);
    assert!(line.state.start_first_try(1, line.now));
    let (sender, _answers) = oneshot::channel();
    let waiter = Waiter::new(1, None, 2, sender).until(Some(line.now + time));
    let runtime = line.runtimes[0].handle().id();
    line.state.join(waiter, runtime, None);
    let ask_at = line.now + time - TIME_FOR_A_CALL;
    assert!(matches!(line.next_on(0), Next::Sleep(until) if until == ask_at));
    line.now = ask_at;
    assert_eq!(permits(&line.call()), [1]);
}

#[test]
fn what_was_granted_for_one_that_left_is_handed_on_in_order_and_what_else_is_there_is_asked_for() {
    let mut line = Line::new();
    let left = line.join(1, 3, None);
    let _stays = line.join(2, 1, None);
    let call = line.call();
    drop(left);
    assert!(!is_abandoned(line.leave(1)));
    let (mut head, mut second) = (line.join(3, 2, None), line.join(4, 1, None));
    let mut third = line.join(5, 1, None);
    assert_eq!(line.answer(&call, 0, 10).permits, 0);
    for waiter in [&mut head, &mut second] {
        let grant = waiter.try_recv().unwrap().unwrap();
        assert_eq!(grant.random, call.id);
    }
    assert!(third.try_recv().is_err());
    assert_eq!(permits(&line.call()), [1]);
}

#[test]
fn a_grant_that_is_too_small_for_the_head_is_given_back_and_not_handed_on_past_it() {
    let mut line = Line::new();
    let left = line.join(1, 3, None);
    let _stays = line.join(2, 1, None);
    let call = line.call();
    drop(left);
    assert!(!is_abandoned(line.leave(1)));
    let (mut head, mut behind) = (line.join(3, 4, None), line.join(4, 1, None));
    assert_eq!(line.answer(&call, 0, 4).permits, 3);
    assert!(head.try_recv().is_err() && behind.try_recv().is_err());
}

#[test]
fn a_denial_of_another_waiter_or_of_one_that_joins_behind_puts_nothing_off() {
    let mut line = Line::new();
    let denied = line.denied(Duration::ZERO);
    let _waiting = line.join(2, 1, denied); // it had no first try of its own
    line.call();

    let mut line = Line::new();
    let _waiting = line.join(1, 1, None);
    let denied = line.denied(Duration::ZERO);
    let _behind = line.join(2, 1, denied);
    line.call();
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
fn an_answer_from_before_says_nothing_to_who_waits_after_all_others_left() {
    let mut line = Line::new();
    let denied = line.join(1, 1, None);
    let call = line.call();
    line.answer(&call, 0, 0);
    drop(denied);
    assert!(!is_abandoned(line.leave(1)));
    let _later = line.join(2, 1, None);
    line.call();
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
fn a_first_try_is_for_who_finds_nobody_before_it() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    assert!(!line.state.start_first_try(2, line.now), "another one's");
    line.state.end_first_try(1);

    let waiting = line.join(3, 1, None);
    assert!(!line.state.start_first_try(4, line.now), "one waits");
    let call = line.call();
    assert!(
        !line.state.start_first_try(5, line.now),
        "a call is in flight"
    );
    line.answer(&call, 0, 0);
    drop(waiting);
    assert!(
        line.state.start_first_try(6, line.now),
        "who waited has left"
    );
}

#[test]
fn the_end_of_a_first_try_that_another_one_replaced_changes_nothing() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    line.now += TAKE_OVER_AFTER;
    assert!(line.state.start_first_try(2, line.now));
    line.state.end_first_try(1);
    assert!(!line.state.start_first_try(3, line.now));
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
fn a_denial_of_another_ones_first_try_puts_nothing_off() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    let denied = line.denied(Duration::ZERO);
    let _waiting = line.join(2, 1, denied);
    line.state.end_first_try(1);
    line.call();
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

#[test]
fn a_denied_waiter_that_left_meanwhile_is_not_in_line_again() {
    let mut line = Line::new();
    let _stays = line.join(1, 1, None);
    let left = line.join(2, 1, None);
    let call = line.call();
    drop(left);
    line.leave(2);
    line.answer(&call, 0, 0);
    assert_eq!(line.state.waiters.len(), 1);
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
fn a_first_try_that_nobody_polls_any_more_takes_no_time_from_later_calls() {
    let ms = Duration::from_millis;
    let mut line = Line::new();
    let start = line.now;
    assert!(line.state.start_first_try(1, start));
    let (sender, _waits) = oneshot::channel();
    let waiter = Waiter::new(1, None, 2, sender).joined(start + ms(100));
    let runtime = line.runtimes[0].handle().id();
    line.state.join(waiter, runtime, None);
    line.now = start + TAKE_OVER_AFTER;
    let call = line.call();
    assert_eq!(call.held_up, ms(400));
    line.answer(&call, 0, 0);
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
