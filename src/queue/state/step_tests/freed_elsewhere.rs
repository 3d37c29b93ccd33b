//! What the queue does about messages that other clients have freed permits.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A waiter for this many permits whose call was denied.
fn denied(queue: &mut Queue, permits: u32) -> AnswerReceiver {
    let waiting = queue.join(1, permits, None);
    let call = queue.call();
    queue.answer(&call, 0, 0);
    assert!(matches!(queue.next_on(0), Next::Sleep(_)));
    queue.is_notified(0);
    waiting
}

fn calls(queue: &mut Queue) -> bool {
    let next = queue.next_on(0);
    if let Next::Call(call, _) = &next {
        queue.answer(call, 0, 0);
    }
    matches!(next, Next::Call(..))
}

#[test]
fn a_head_that_fits_what_others_freed_is_asked_for_at_once() {
    for (permits, is_asked_for) in [(4, true), (3, true), (5, false)] {
        let mut queue = Queue::new();
        let _waiting = denied(&mut queue, permits);
        queue.state.freed_elsewhere(4);
        assert_eq!(queue.is_notified(0), is_asked_for);
        assert_eq!(calls(&mut queue), is_asked_for);
    }
}

#[test]
fn however_many_messages_come_calls_in_vain_become_rare() {
    let mut queue = Queue::new();
    let _waiting = denied(&mut queue, 1);
    let start = queue.now;
    let mut asked = Vec::new();
    for millis in 0..5_000 {
        queue.now = start + millis * MS;
        for _ in 0..3 {
            queue.state.freed_elsewhere(1);
            if calls(&mut queue) {
                asked.push(millis);
            }
        }
    }
    assert_eq!(
        asked,
        [0, 10, 30, 70, 150, 310, 630, 1270, 2120, 2970, 3820, 4670]
    );
}

#[test]
fn a_call_that_was_granted_ends_the_pause() {
    let mut queue = Queue::new();
    let _waiting = denied(&mut queue, 1);
    queue.state.freed_elsewhere(1);
    assert!(calls(&mut queue));
    queue.state.freed_elsewhere(1);
    assert!(!calls(&mut queue));
    queue.now += 10 * MS;
    let call = queue.call();
    let _second = queue.join(2, 1, None);
    queue.answer(&call, 0, 1);
    assert!(!calls(&mut queue));
    queue.state.freed_elsewhere(1);
    assert!(calls(&mut queue));
}

#[test]
fn a_message_during_a_call_takes_effect_after_its_answer() {
    let mut queue = Queue::new();
    let _waiting = queue.join(1, 1, None);
    let call = queue.call();
    queue.state.freed_elsewhere(1);
    assert!(!queue.is_notified(0));
    queue.answer(&call, 0, 0);
    assert!(calls(&mut queue));
    assert!(!calls(&mut queue));
}

#[test]
fn a_message_from_before_a_waiter_joined_an_empty_queue_is_ignored() {
    let mut queue = Queue::new();
    let waiting = denied(&mut queue, 1);
    drop(waiting);
    assert!(!is_abandoned(queue.leave(1)));
    queue.state.freed_elsewhere(1);
    let known = queue.denied(Duration::ZERO);
    assert!(queue.state.start_first_try(2, queue.now));
    let _next = queue.join(2, 1, known);
    queue.state.end_first_try(2);
    assert!(!calls(&mut queue));
}

#[test]
fn a_message_of_too_few_permits_does_not_hide_the_next_one() {
    let mut queue = Queue::new();
    let _waiting = denied(&mut queue, 2);
    queue.state.freed_elsewhere(1);
    assert!(!queue.is_notified(0));
    assert!(!calls(&mut queue));
    queue.state.freed_elsewhere(2);
    assert!(queue.is_notified(0));
    assert!(calls(&mut queue));
}

#[test]
fn a_message_for_a_head_that_has_left_does_not_hide_the_next_one() {
    let mut queue = Queue::new();
    let first = denied(&mut queue, 1);
    let _second = queue.join(2, 2, None);
    queue.state.freed_elsewhere(1);
    assert!(calls(&mut queue));
    queue.state.freed_elsewhere(1);
    assert!(!calls(&mut queue)); // not before the pause is over
    drop(first);
    assert!(!is_abandoned(queue.leave(1)));
    queue.now += 10 * MS;
    assert!(!calls(&mut queue));
    queue.is_notified(0);
    queue.state.freed_elsewhere(2);
    assert!(queue.is_notified(0));
    assert!(calls(&mut queue));
}

#[test]
fn a_message_of_too_few_permits_does_not_undo_the_one_before() {
    let mut queue = Queue::new();
    let _waiting = denied(&mut queue, 1);
    queue.state.freed_elsewhere(1);
    queue.state.freed_elsewhere(0);
    assert!(calls(&mut queue));
    queue.state.freed_elsewhere(0);
    queue.now += 10 * MS;
    assert!(!calls(&mut queue)); // the last message tells of nothing new
}
