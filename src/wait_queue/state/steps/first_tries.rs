//! First tries, and what their denials say.

use super::*;

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
fn a_first_try_that_makes_no_progress_holds_the_line_up_no_longer_than_a_call() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    let _waiting = line.join(2, 1, None);
    assert!(matches!(line.next_on(0), Next::Sleep(until) if until == line.now + TAKE_OVER_AFTER));
    line.now += TAKE_OVER_AFTER;
    line.call();
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
fn a_denial_of_another_ones_first_try_puts_nothing_off() {
    let mut line = Line::new();
    assert!(line.state.start_first_try(1, line.now));
    let denied = line.denied(Duration::ZERO);
    let _waiting = line.join(2, 1, denied);
    line.state.end_first_try(1);
    line.call();
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
