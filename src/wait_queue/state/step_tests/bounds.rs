//! The bounds on waiting, and how long the last answer says one waits.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn wait(queue: &Queue, permits: u32, until: Option<Instant>) -> Option<Duration> {
    let interval = |rate| (rate == RATE as u64).then_some(MINUTE);
    queue
        .state
        .shortest_wait(permits, until, queue.now, &interval)
}

#[test]
fn no_more_are_admitted_than_may_wait_and_one_that_leaves_makes_room() {
    let mut queue = Queue::new();
    assert_eq!(queue.state.admit(2), Ok(()));
    assert_eq!(queue.state.admit(2), Ok(()));
    assert_eq!(queue.state.admit(2), Err(2));
    queue.state.dismiss();
    assert_eq!(queue.state.admit(2), Ok(()));
    assert_eq!(queue.state.admitted(), 2);
}

#[test]
fn the_wait_is_until_the_first_are_back_and_an_interval_for_each_time_the_rate_is_used_up() {
    let mut queue = Queue::new();
    assert_eq!(wait(&queue, 1, None), None);
    let _waiter = queue.join(1, 4, None);
    let call = queue.call();
    queue.answer(&call, 0, 3);
    // Three are left, and four are asked for in front.
    assert_eq!(wait(&queue, 1, None), Some(MINUTE));
    assert_eq!(wait(&queue, 9, None), Some(MINUTE));
    assert_eq!(wait(&queue, 10, None), Some(2 * MINUTE));
    queue.now += Duration::from_secs(1);
    assert_eq!(
        wait(&queue, 10, None),
        Some(2 * MINUTE - Duration::from_secs(1))
    );
    queue.now += Duration::from_secs(1);
    assert_eq!(wait(&queue, 10, None), None); // a second's answer at most
}

#[test]
fn permits_that_may_have_come_free_leave_no_estimate_nor_does_the_answer_to_a_call_sent_before() {
    let mut queue = Queue::new();
    let _waiter = queue.join(1, 4, None);
    let call = queue.call();
    queue.state.permits_freed();
    queue.answer(&call, 0, 0);
    assert_eq!(wait(&queue, 1, None), None);
    let call = queue.call();
    queue.answer(&call, 0, 0);
    assert_eq!(wait(&queue, 1, None), Some(MINUTE));
    queue.state.permits_freed();
    assert_eq!(wait(&queue, 1, None), None);
}
