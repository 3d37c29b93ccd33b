//! The bounds on waiting, and how long one waits by the last denial.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn wait(queue: &Queue, permits: u32, until: Option<Instant>) -> Option<Duration> {
    let request = Waits {
        permits,
        set_up: None,
        until,
    };
    let says = |denial: &Denial| queue.state.shortest_wait(&request, denial, queue.now);
    queue.denials.last(None, 0, says)
}

#[test]
fn no_more_waiters_are_admitted_than_may_wait_and_leaving_makes_room() {
    let mut queue = Queue::new();
    assert_eq!(queue.state.admit(2), Ok(()));
    assert_eq!(queue.state.admit(2), Ok(()));
    assert_eq!(queue.state.admit(2), Err(2));
    queue.state.dismiss();
    assert_eq!(queue.state.admit(2), Ok(()));
    assert_eq!(queue.state.admitted(), 2);
}

#[test]
fn the_wait_is_until_the_first_are_back_and_an_interval_per_used_up_rate() {
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
    assert_eq!(wait(&queue, 10, None), None); // the answer is older than 1.003 s
}

#[test]
fn waiters_whose_permits_an_answer_may_count_are_not_counted_again() {
    let mut queue = Queue::new();
    let _first = queue.join(1, RATE as u32, None);
    let call = queue.call();
    queue.answer(&call, 0, 0);
    let _second = queue.join(2, 1, None);
    queue.now += LONGEST_SLEEP;
    let call = queue.call();
    // The first one's call is under way; a plain request is answered meanwhile.
    let answer = Acquired::new(0, RATE, 0, 60_000, 60_000);
    let denial = Denial::by_answer(&answer, &Requests::one(1), None, queue.sent()).unwrap();
    let later = queue.now + Duration::from_millis(1);
    queue.denials.remember(denial.received_at(later));
    assert_eq!(wait(&queue, RATE as u32, None), Some(MINUTE));
    drop(call);
}

#[test]
fn no_wait_is_known_while_a_call_that_a_waiter_left_is_in_flight() {
    let mut queue = Queue::new();
    let answers = [queue.join(1, 4, None), queue.join(2, 6, None)];
    let call = queue.call();
    queue.answer(&call, 0, 0);
    assert_eq!(wait(&queue, 1, None), Some(2 * MINUTE));
    queue.now += LONGEST_SLEEP;
    let call = queue.call();
    let [first, _second] = answers;
    drop(first);
    assert!(matches!(queue.leave(1), Left::Unwatched));
    queue.denials.drop_last();
    // The permits that a plain request finds taken may be those of the first waiter's call.
    let (sent, answer) = (queue.sent(), Acquired::new(0, RATE, 0, 60_000, 60_000));
    queue.note(&answer, &Requests::one(1), sent);
    assert_eq!(wait(&queue, 1, None), None);
    queue.answer(&call, 0, RATE);
    queue.note(&answer, &Requests::one(1), sent);
    assert_eq!(wait(&queue, 1, None), Some(MINUTE));
}
