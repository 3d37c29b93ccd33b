//! What a process leaves to others when it releases permits itself in the meantime.

use super::*;

const INTERVAL: Duration = Duration::from_secs(1);

fn seen(score: i64, taken: i64, left: i64, newer: Option<i64>, own: u64) -> Seen {
    Seen {
        sent_at: Instant::now(),
        score,
        rate: 10,
        interval: INTERVAL,
        left,
        taken,
        newer,
        own,
        denied: Some(1),
    }
}

/// A process that leaves a permit to find out whether there are others.
fn probing() -> Sharing {
    let mut sharing = Sharing::with_random(1);
    assert!(sharing.plan(Instant::now()).share.is_some());
    assert!(sharing.note(seen(0, 9, 1, None, 9)).is_some());
    sharing
}

#[test]
fn permits_that_come_free_do_not_cut_short_the_time_of_others() {
    let mut sharing = probing();
    // Somebody took the permit.
    assert!(sharing.note(seen(1, 0, 0, Some(1), 9)).is_none());
    assert!(sharing.plan(Instant::now()).share.is_some());
    assert!(sharing.note(seen(2, 5, 5, Some(0), 14)).is_some());
    sharing.permits_freed();
    assert!(sharing.plan(Instant::now()).share.is_some());
}
