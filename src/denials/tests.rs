use super::*;
use crate::rate::Rate;
use crate::window::{Acquired, Existing, Requests, Settings};

const RATE: i64 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The denial of a request for a permit of which none is left.
fn denial(sent: Sent, set_up: Option<SetUp>) -> Denial {
    let answer = Acquired::new(0, RATE, 0, 60_000, 60_000);
    Denial::by_answer(&answer, &Requests::one(1), set_up, sent).unwrap()
}

/// Whether a denial whose call was sent then is remembered.
fn is_remembered(denials: &Denials, sent: Sent) -> bool {
    denials.remember(denial(sent, None));
    denials.last(None, 0, |_| Some(())).is_some()
}

fn is_remembered_now(denials: &Denials) -> bool {
    is_remembered(denials, denials.sent(0))
}

fn set_up(permits: u64, existing: Existing) -> Option<SetUp> {
    let settings = Settings::of(Rate::overall(permits, MINUTE));
    Some(SetUp { settings, existing })
}

#[tokio::test(start_paused = true)]
async fn a_change_drops_what_was_denied_before_its_end() {
    let denials = Arc::new(Denials::default());
    let before = denials.sent(0);
    assert!(is_remembered(&denials, before));
    let change = denials.change(Instant::now());
    assert_eq!(denials.last(None, 0, |_| Some(())), None);
    let meanwhile = denials.sent(0);
    for sent in [before, meanwhile] {
        assert!(!is_remembered(&denials, sent), "it is under way");
    }
    change.done();
    for sent in [before, meanwhile] {
        assert!(!is_remembered(&denials, sent), "its call was sent before");
    }
    assert!(is_remembered_now(&denials));
    denials.drop_last();
    assert!(!is_remembered(&denials, before));
    assert!(is_remembered_now(&denials));
}

#[tokio::test(start_paused = true)]
async fn after_a_change_without_an_answer_nothing_is_remembered_for_its_time() {
    let denials = Arc::new(Denials::default());
    drop(denials.change(Instant::now() + MINUTE));
    tokio::time::advance(MINUTE / 2).await;
    assert!(!is_remembered_now(&denials));
    tokio::time::advance(MINUTE / 2).await;
    assert!(is_remembered_now(&denials));
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_rate_is_a_change_only_where_it_was_not_the_last_one() {
    let denials = Arc::new(Denials::default());
    let deadline = Instant::now() + MINUTE;
    let left = set_up(1, Existing::Left);
    assert!(denials.set_up(None, deadline).is_none() && denials.set_up(left, deadline).is_none());
    let ours = set_up(1, Existing::Replaced);
    let change = denials.set_up(ours, deadline).unwrap();
    let mut sent = denials.sent(0);
    change.gave(ours, &mut sent);
    assert!(denials.set_up(ours, deadline).is_none());
    assert!(is_remembered(&denials, sent), "what it was answered itself");
    let other = set_up(2, Existing::Replaced);
    for (set_up, holds) in [(None, true), (left, true), (other, false)] {
        assert_eq!(denials.last(set_up, 0, |_| Some(())).is_some(), holds);
    }

    let change = denials.set_up(other, deadline).unwrap();
    let mut sent = denials.sent(0);
    denials.drop_last(); // meanwhile
    change.gave(other, &mut sent);
    assert!(!is_remembered(&denials, sent));
    denials.change(deadline).done();
    assert!(denials.set_up(other, deadline).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_more_permits_or_a_counted_change_ends_a_denial() {
    let denials = Denials::default();
    assert!(is_remembered_now(&denials));
    assert_eq!(denials.last(None, 1, |_| Some(())), None);
    denials.note_available(0);
    assert!(denials.last(None, 0, |_| Some(())).is_some());
    denials.note_available(1);
    assert_eq!(denials.last(None, 0, |_| Some(())), None);
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_says_exactly_what_is_left_is_a_denial() {
    let exact = Acquired::new(0, RATE, 0, 60_000, 60_000);
    let mut inexact = std::array::from_fn::<_, 3, _>(|_| exact.clone());
    inexact[0].has_more = true;
    inexact[1].audit_due = true;
    inexact[2].found = true;
    let sent = Denials::default().sent(0);
    let says = |answer: &Acquired, permits| {
        Denial::by_answer(answer, &Requests::one(permits), None, sent).is_some()
    };
    assert!(says(&exact, 1));
    assert!(!says(&exact, RATE as u32 + 1));
    assert!(!says(&Acquired::new(0, RATE, 1, 60_000, 60_000), 1));
    for answer in &inexact {
        assert!(!says(answer, 1), "{answer:?}");
    }
}
