//! Single steps: what one answer changes, and what the next call asks for.

use proptest::prelude::*;

use super::*;

#[test]
fn only_what_others_may_take_now_is_left_to_them() {
    let now = Instant::now();
    let seen = |taken, left, denied| Seen {
        sent_at: now,
        score: 1,
        rate: 10,
        interval: Duration::from_secs(1),
        left,
        taken,
        newer: Some(0),
        own: taken as u64,
        denied,
    };
    for (left, denied, is_held) in [
        (1, Some(1), true),
        (0, Some(1), false),
        (1, None, false),
        (1, Some(2), false),
        (2, Some(2), true),
    ] {
        let mut sharing = Sharing::default();
        assert!(sharing.plan(now).share.is_some(), "a probe");
        let hold = sharing.note(seen(9, left, denied));
        assert_eq!(hold.is_some(), is_held);
        if let Some(hold) = hold {
            assert!(hold > now && hold <= now + LONGEST_HOLD * 5 / 4);
            assert_eq!(sharing.plan(now).share, None, "their time is over");
        }
    }
    // Permits that a call leaves because there is no backlog, or that are left to nobody, are no
    // hold.
    let mut sharing = Sharing {
        probe_at: Some(now + Duration::from_secs(1)),
        ..Sharing::default()
    };
    assert_eq!(sharing.plan(now).share, None);
    assert_eq!(sharing.note(seen(9, 1, Some(1))), None);
}

#[test]
fn a_hold_may_end_under_a_rate_of_0() {
    let now = Instant::now();
    let mut sharing = Sharing::default();
    let mut hold = |rate, left, newer| {
        let _ = sharing.plan(now);
        sharing.note(Seen {
            sent_at: now,
            score: 1,
            rate,
            interval: Duration::from_secs(1),
            left,
            taken: 0,
            newer: Some(newer),
            own: 0,
            denied: Some(1),
        })
    };
    assert_eq!(hold(10, 0, 0), None);
    assert!(hold(10, 1, 1).is_some(), "others have taken one");
    assert_eq!(hold(0, 0, 0), None);
}

#[test]
fn the_less_a_process_was_granted_recently_the_more_it_asks_for() {
    let now = Instant::now();
    let permille = |own_recently, others_recently| {
        let mut sharing = Sharing {
            others: Others::SEEN,
            own_recently,
            others_recently,
            appetite: 1,
            ..Sharing::default()
        };
        sharing.plan(now).share.map(|share| share.permille)
    };
    assert_eq!(permille(0.0, 10.0), Some(1000));
    assert_eq!(permille(2.0, 8.0), Some(880));
    assert_eq!(permille(5.0, 5.0), Some(700));
    assert_eq!(permille(10.0, 0.0), Some(400));
}

#[test]
fn what_is_left_depends_on_what_is_owed_and_on_what_others_want() {
    let by_its_part = Share {
        permille: 700,
        credit: 999,
    };
    for (least, owed, appetite, share) in [
        (0, 0, 10, by_its_part),
        (1, 0, 10, by_its_part),
        (1, 0, 2, all_but(2)),
        (1, 3, 10, all_but(5)),
        (1, 8, 10, all_but(8)),
        (1, 3, 2, all_but(2)),
        // A debt smaller than others ever took at once waits until it is as large.
        (4, 3, 10, by_its_part),
        (4, 4, 4, all_but(4)),
        (4, 4, 2, all_but(4)),
    ] {
        let sharing = Sharing {
            least,
            owed,
            appetite,
            found: 10,
            own_recently: 5.0,
            others_recently: 5.0,
            ..Sharing::default()
        };
        assert_eq!(sharing.leave(), share, "{least} {owed} {appetite}");
    }
}

#[test]
fn the_least_that_others_took_is_noted_and_is_half_of_the_rate_at_most() {
    let mut sharing = Sharing::with_random(1);
    for (score, others_took, least) in [
        (1, 0, 0),
        (2, 7, 5),
        (3, 4, 4),
        (4, 6, 4),
        (5, 0, 4),
        (6, 3, 3),
    ] {
        sharing.note(Seen {
            sent_at: Instant::now(),
            score,
            rate: 10,
            interval: Duration::from_secs(1),
            left: 0,
            taken: 0,
            newer: Some(others_took),
            own: 0,
            denied: Some(1),
        });
        assert_eq!(sharing.least, least, "{others_took}");
    }
}

#[test]
fn what_others_take_or_decline_pays_for_what_is_owed() {
    let now = Instant::now();
    for (least, others_took, owed) in [
        (1, 0, 2),
        (1, 1, 2),
        (1, 2, 2),
        (1, 3, 3),
        (1, 4, 4),
        (4, 0, 2),
        // Four permits are no use to callers that want five.
        (5, 0, 8),
    ] {
        let mut sharing = Sharing {
            others: Others::SEEN,
            held: Some(4),
            owed: 6,
            appetite: least,
            least,
            last: Some((1, 10)),
            ..Sharing::default()
        };
        // Two permits were taken, and those of others are distinguished from this process's own.
        sharing.note(Seen {
            sent_at: now,
            score: 2,
            rate: 10,
            interval: Duration::from_secs(1),
            left: 0,
            taken: 2,
            newer: Some(others_took + 3),
            own: 15,
            denied: Some(1),
        });
        assert_eq!(sharing.owed, owed, "{least} {others_took}");
        let idle_holds = u32::from(others_took == 0 && least <= 4);
        let declined = 0;
        let seen = Others::Seen {
            idle_holds,
            declined,
        };
        assert_eq!(sharing.others, seen);
    }
}

#[test]
fn probes_are_five_intervals_apart_at_least_and_five_seconds_at_most() {
    assert_pauses(
        true,
        &[
            (1_000, 1_000, 1, 1, 5_000),
            (100, 1_000, 1, 1, 500),
            (100, 1, 1, 1, 2_222),
            (60_000, 1_000, 1, 1, 5_000),
        ],
    );
}

#[test]
fn the_first_probes_are_an_interval_apart_or_half_after_a_partial_one() {
    assert_pauses(
        false,
        &[
            (1_000, 10, 2, 2, 1_000),
            (1_000, 10, 2, 1, 500),
            (60_000, 10, 2, 2, 5_000),
        ],
    );
}

/// Asserts how many ms after a probe the next one follows. Each case has an interval in ms, a rate,
/// the size of the probe, the number of permits that it left, and the expected pause.
fn assert_pauses(has_probed: bool, pauses: &[(u64, i64, i64, i64, u128)]) {
    let now = Instant::now();
    for &(interval, rate, probe, held, pause) in pauses {
        let mut sharing = Sharing {
            held: Some(held),
            probe,
            has_probed,
            ..Sharing::default()
        };
        sharing.note(Seen {
            sent_at: now,
            score: 2,
            rate,
            interval: Duration::from_millis(interval),
            left: 0,
            taken: 1,
            newer: Some(0),
            own: 1,
            denied: Some(1),
        });
        let probe_at = sharing.probe_at.expect("another one follows");
        assert_eq!((probe_at - now).as_millis(), pause, "{interval} {rate}");
    }
}

#[test]
fn the_more_a_process_was_granted_compared_with_others_the_later_it_asks() {
    let interval = Duration::from_secs(1);
    let wait = Duration::from_millis(50);
    let ask_after = |others, own_recently, others_recently| {
        let mut sharing = Sharing {
            others,
            own_recently,
            others_recently,
            random: 1,
            ..Sharing::default()
        };
        sharing.ask_after(wait, interval)
    };
    let random = LONGEST_DELAY / RANDOM_PART_OF_DELAY;
    for (own, others, delay) in [
        (0.0, 10.0, 0),
        (5.0, 15.0, 3),
        (10.0, 10.0, 6),
        (10.0, 0.0, 12),
    ] {
        assert_eq!(ask_after(Others::Unseen, own, others), wait);
        let ask_after = ask_after(Others::SEEN, own, others);
        let soonest = wait - HEAD_START + Duration::from_millis(delay);
        assert!((soonest..=soonest + random).contains(&ask_after));
    }
    // However short the wait is, no call follows at once.
    let mut behind = Sharing {
        others: Others::SEEN,
        random: 1,
        ..Sharing::default()
    };
    assert!(behind.ask_after(HEAD_START, interval) >= HEAD_START / 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_owed_and_remembered_is_bounded(
        rate in 1..1_000_i64,
        answers in prop::collection::vec((0..1_000_i64, 0..1_000_i64, 0..1_000_i64, prop::option::of(1..5_u32)), 1..200),
    ) {
        let start = Instant::now();
        let mut sharing = Sharing { random: 1, ..Sharing::default() };
        let mut own = 0_u64;
        for (i, (taken, left, others, denied)) in answers.into_iter().enumerate() {
            let sent_at = start + Duration::from_millis(100 * i as u64);
            let (taken, left, others) = (taken % (rate + 1), left % (rate + 1), others % (rate + 1));
            let ask = sharing.plan(sent_at);
            own += taken as u64;
            sharing.note(Seen {
                sent_at,
                score: i as i64,
                rate,
                interval: Duration::from_secs(1),
                left,
                taken,
                newer: ask.newer_than.map(|_| others),
                own,
                denied,
            });
            prop_assert!((0..=rate).contains(&sharing.owed));
            prop_assert!(sharing.appetite <= rate.max(others + 1));
            let recently = sharing.own_recently + sharing.others_recently;
            prop_assert!(recently <= RECENT_INTERVALS * rate as f64 + 2.0 * rate as f64);
            prop_assert!(sharing.probe <= 2 * rate);
        }
    }
}
