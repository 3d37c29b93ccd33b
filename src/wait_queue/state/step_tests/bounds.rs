//! The bounds on waiting, and how long the last answer says one waits.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn wait(queue: &Queue, permits: u32, until: Option<Instant>) -> Option<Duration> {
    let request = Waits {
        permits,
        set_up: None,
        until,
    };
    queue.state.shortest_wait(&request, 0, queue.now)
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
    assert_eq!(wait(&queue, 10, None), None); // a second's answer at most
}

#[test]
fn permits_that_came_free_and_answers_sent_for_before_leave_no_estimate() {
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

#[test]
fn an_answer_that_does_not_say_exactly_what_is_left_says_nothing() {
    let exact = Answer::new(0, RATE, 0, 60_000, 60_000);
    let mut inexact = std::array::from_fn::<_, 3, _>(|_| exact.clone());
    inexact[0].has_more = true;
    inexact[1].audit_due = true;
    inexact[2].found = true;
    let sent = LastAnswer::default().published().sent(Instant::now(), 0);
    let says = |answer: &Answer, permits| {
        let requests = Requests::one(permits);
        Observed::by_answer(answer, &requests, None, &sent).is_some()
    };
    assert!(says(&exact, 1));
    assert!(!says(&exact, RATE as u32 + 1));
    for answer in &inexact {
        assert!(!says(answer, 1), "{answer:?}");
    }
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
    let sent = queue.state.last_answer.published().sent(queue.now, 0);
    let answer = Answer::new(0, RATE, 0, 60_000, 60_000);
    let observed = Observed::by_answer(&answer, &Requests::one(1), None, &sent);
    let received_later = observed.map(|it| it.received_at(queue.now + Duration::from_millis(1)));
    queue.state.last_answer.note(received_later, None, &sent);
    assert_eq!(wait(&queue, RATE as u32, None), Some(MINUTE));
    drop(call);
}

#[test]
fn while_a_waiter_has_left_a_call_in_flight_nothing_is_known() {
    let mut queue = Queue::new();
    let answers = [queue.join(1, 4, None), queue.join(2, 6, None)];
    let call = queue.call();
    queue.answer(&call, 0, 0);
    assert_eq!(wait(&queue, 1, None), Some(2 * MINUTE));
    queue.now += LONGEST_SLEEP;
    let call = queue.call();
    let [first, _second] = answers;
    drop(first);
    let _ = queue.leave(1);
    assert_eq!(wait(&queue, 1, None), None);
    // What a plain request finds taken may be taken for the first one.
    let sent = queue.state.last_answer.published().sent(queue.now, 0);
    let answer = Answer::new(0, RATE, 0, 60_000, 60_000);
    let observed = Observed::by_answer(&answer, &Requests::one(1), None, &sent);
    queue.state.note(observed, None, &sent);
    assert_eq!(wait(&queue, 1, None), None);
    queue.answer(&call, 0, RATE);
    queue.state.note(observed, None, &sent);
    assert_eq!(wait(&queue, 1, None), Some(MINUTE));
}
