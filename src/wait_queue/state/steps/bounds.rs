//! Who may wait, and what the last answer says of how long.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn wait(line: &Line, permits: u32, until: Option<Instant>) -> Option<Duration> {
    let interval = |rate| (rate == RATE as u64).then_some(MINUTE);
    line.state
        .shortest_wait(permits, until, line.now, &interval)
}

#[test]
fn no_more_are_admitted_than_may_wait_and_one_that_leaves_makes_room() {
    let mut line = Line::new();
    assert_eq!(line.state.admit(2), Ok(()));
    assert_eq!(line.state.admit(2), Ok(()));
    assert_eq!(line.state.admit(2), Err(2));
    line.state.dismiss();
    assert_eq!(line.state.admit(2), Ok(()));
    assert_eq!(line.state.admitted(), 2);
}

#[test]
fn the_wait_is_until_the_first_are_back_and_an_interval_for_each_time_the_rate_is_used_up() {
    let mut line = Line::new();
    assert_eq!(wait(&line, 1, None), None);
    let _waiter = line.join(1, 4, None);
    let call = line.call();
    line.answer(&call, 0, 3);
    // Three are left, and four are asked for in front.
    assert_eq!(wait(&line, 1, None), Some(MINUTE));
    assert_eq!(wait(&line, 9, None), Some(MINUTE));
    assert_eq!(wait(&line, 10, None), Some(2 * MINUTE));
    line.now += Duration::from_secs(1);
    assert_eq!(
        wait(&line, 10, None),
        Some(2 * MINUTE - Duration::from_secs(1))
    );
    line.now += Duration::from_secs(1);
    assert_eq!(wait(&line, 10, None), None); // a second's answer at most
}

#[test]
fn permits_that_may_have_come_free_leave_no_estimate_nor_does_the_answer_to_a_call_sent_before() {
    let mut line = Line::new();
    let _waiter = line.join(1, 4, None);
    let call = line.call();
    line.state.permits_freed();
    line.answer(&call, 0, 0);
    assert_eq!(wait(&line, 1, None), None);
    let call = line.call();
    line.answer(&call, 0, 0);
    assert_eq!(wait(&line, 1, None), Some(MINUTE));
    line.state.permits_freed();
    assert_eq!(wait(&line, 1, None), None);
}
