//! Processes with endless backlogs on one limiter, simulated: what each of them gets.

use proptest::prelude::*;

use super::*;
use crate::model::{Answer, Requests};

/// Times are in µs.
const INTERVAL: i64 = 1_000_000;
const SECOND: i64 = INTERVAL;
/// A queue asks so much later than permits come back, and its call takes up to so long.
const SLACK: i64 = 3_000;
const TRAVEL: Duration = Duration::from_millis(4);

/// A limiter with its sliding window.
struct Limiter {
    start: Instant,
    rate: i64,
    /// Scores and permits.
    grants: Vec<(i64, i64)>,
}

struct Process {
    /// How many permits each of its waiters wants.
    permits: u32,
    sharing: Sharing,
    next_at: i64,
    own: u64,
    /// Permits that it left, times the time for which it left them.
    held: i64,
    /// How many of its calls left some.
    holds: u32,
}

impl Limiter {
    fn new(rate: i64) -> Self {
        Self {
            start: Instant::now(),
            rate,
            grants: Vec::new(),
        }
    }

    fn balance(&self, now: i64) -> i64 {
        let live = self.grants.iter().filter(|(at, _)| at + INTERVAL > now);
        self.rate - live.map(|(_, permits)| permits).sum::<i64>()
    }

    fn newer_than(&self, score: i64) -> i64 {
        let newer = self.grants.iter().filter(|(at, _)| *at > score);
        newer.map(|(_, permits)| permits).sum()
    }

    /// When the first of the permits in use are back.
    fn next_back(&self, now: i64) -> i64 {
        let live = self.grants.iter().filter(|(at, _)| at + INTERVAL > now);
        live.map(|(at, _)| at + INTERVAL).min().unwrap_or(now + 1)
    }

    fn take(&mut self, now: i64, permits: i64) {
        if permits > 0 {
            // Older ones are asked about no more.
            self.grants.retain(|(at, _)| at + 3 * INTERVAL > now);
            self.grants.push((now, permits));
        }
    }

    /// A process asks for all that its waiters want.
    fn ask(&mut self, process: &mut Process, now: i64) {
        let sent_at = self.start + Duration::from_micros(now as u64);
        let ask = process.sharing.plan(sent_at);
        let balance = self.balance(now);
        let requests = Requests::in_line(
            std::iter::repeat_n(process.permits, 2 * self.rate as usize),
            ask.share,
        );
        let taken = requests.taken(&Answer::new(now, self.rate, balance, 0));
        let newer = ask.newer_than.map(|score| self.newer_than(score));
        self.take(now, taken);
        process.own += taken as u64;
        let left = balance - taken;
        let interval = Some(Duration::from_micros(INTERVAL as u64));
        let hold = process.sharing.note(Seen {
            sent_at,
            score: now,
            rate: self.rate,
            interval,
            left,
            taken,
            newer,
            own: process.own,
            denied: Some(process.permits),
        });
        process.next_at = match hold {
            Some(until) => {
                let until = (until - self.start).as_micros() as i64;
                process.held += left * (until - now);
                process.holds += 1;
                until
            }
            None => {
                let delay = process.sharing.delay(interval);
                self.next_back(now) + SLACK + delay.as_micros() as i64
            }
        };
        // Whose call is the first to arrive is chance.
        process.next_at += process.sharing.random_up_to(TRAVEL).as_micros() as i64;
    }
}

fn process(seed: u64, starts_at: i64) -> Process {
    let sharing = Sharing {
        random: seed | 1,
        ..Sharing::default()
    };
    Process {
        permits: 1,
        sharing,
        next_at: starts_at,
        own: 0,
        held: 0,
        holds: 0,
    }
}

/// Lets the processes ask until `end`.
fn run(limiter: &mut Limiter, processes: &mut [Process], end: i64) {
    loop {
        let next = processes.iter_mut().min_by_key(|process| process.next_at);
        let next = next.expect("a process");
        if next.next_at >= end {
            return;
        }
        let now = next.next_at;
        limiter.ask(next, now);
    }
}

const RATES: [i64; 4] = [1, 10, 100, 1_000];
const SECONDS: i64 = 120;

#[test]
fn alone_a_process_loses_no_more_than_its_probes_may_cost() {
    for rate in RATES {
        let (mut limiter, mut alone) = (Limiter::new(rate), [process(rate as u64, 0)]);
        run(&mut limiter, &mut alone, SECONDS * SECOND);
        let of_all = alone[0].held as f64 / (rate * SECONDS * SECOND) as f64;
        // It is one permit at least, and all of such a rate.
        let most = if rate == 1 { 0.0275 } else { 0.01 };
        assert!(of_all <= most, "{rate} a second: {of_all} left idle");
        let pause = LONGEST_PROBE_PAUSE + Duration::from_secs(1);
        assert!(u64::from(alone[0].holds) * pause.as_secs() >= SECONDS as u64);
        assert_eq!(alone[0].sharing.others, Others::Unseen);
    }
}

#[test]
fn processes_with_backlogs_get_like_parts_and_waste_little() {
    for rate in [10, 100, 1_000] {
        for count in [2, 3] {
            let mut limiter = Limiter::new(rate);
            let starts = |place: u64| process(77 * (place + 1), 137_000 * place as i64);
            let mut processes: Vec<_> = (0..count).map(starts).collect();
            run(&mut limiter, &mut processes, SECONDS * SECOND);
            let own: Vec<_> = processes.iter().map(|process| process.own).collect();
            let all: u64 = own.iter().sum();
            for own in &own {
                assert!(own * count * 2 >= all, "{rate} a second: {own} of {all}");
            }
            assert!(all as i64 * 100 >= 95 * rate * SECONDS, "{rate}: {all}");
        }
    }
}

/// The first 20 s, when none of them knows of the others at first. The last one's callers want so many permits each.
#[test]
fn of_the_first_20_s_each_gets_a_quarter_whatever_the_order_of_calls() {
    for (count, permits) in [(2_u64, 1), (2, 2), (2, 3), (3, 1), (3, 2)] {
        for seed in 1..=100_u64 {
            let random = |place: u64| {
                let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                random.rotate_left(17 * place as u32 + 5)
            };
            let mut limiter = Limiter::new(10);
            let starts = |place: u64| process(random(place), (random(place) % 7_000) as i64);
            let mut processes: Vec<_> = (0..count).map(starts).collect();
            processes[count as usize - 1].permits = permits;
            run(&mut limiter, &mut processes, 20 * SECOND);
            let own: Vec<_> = processes.iter().map(|process| process.own).collect();
            let all: u64 = own.iter().sum();
            let context = format!("{count} of {permits}, seed {seed}: {own:?}");
            assert!(own.iter().all(|own| own * 4 >= all), "{context}");
            assert!(all * 100 >= 95 * 200, "{context}");
        }
    }
}

/// Redisson's threads wake up at a tick of 100 ms, when the oldest permits are back, and take all there is.
#[test]
fn beside_one_that_takes_all_every_100_ms_it_gets_a_quarter_and_leaves_one() {
    for phase in 0..100 {
        let mut limiter = Limiter::new(10);
        let mut processes = [process(phase + 1, 0)];
        let (mut next, mut others) = (phase as i64 % 3_000, 0);
        while next < 20 * SECOND {
            run(&mut limiter, &mut processes, next);
            let all = limiter.balance(next);
            limiter.take(next, all);
            others += all as u64;
            let (tick, phase) = (SECOND / 10, phase as i64 * 1_000);
            let due = limiter.next_back(next) + SLACK - phase;
            next = (due + tick - 1).div_euclid(tick) * tick + phase;
        }
        run(&mut limiter, &mut processes, 20 * SECOND);
        let own = processes[0].own;
        assert!(own * 4 >= own + others, "{phase}: {own} beside {others}");
        assert!(others * 4 >= own + others, "{phase}: {own} beside {others}");
        assert!(
            (own + others) * 100 >= 95 * 200,
            "{phase}: {own} beside {others}"
        );
    }
}

#[test]
fn one_that_was_alone_finds_another_one_that_finds_nothing() {
    for rate in [10, 100] {
        let mut limiter = Limiter::new(rate);
        let mut alone = [process(5, 0)];
        run(&mut limiter, &mut alone, 30 * SECOND);
        // From now on somebody asks every 100 ms, and takes what there is, up to a fifth.
        let (mut next, mut starved) = (30 * SECOND, 0);
        while next < 90 * SECOND {
            run(&mut limiter, &mut alone, next);
            let takes = limiter.balance(next).clamp(0, rate / 5);
            limiter.take(next, takes);
            starved += takes;
            next += SECOND / 10;
        }
        assert!(starved * 10 >= rate * 60, "{rate}: {starved}");
        assert!(matches!(alone[0].sharing.others, Others::Seen { .. }));
        // It has gone; after some holds nothing is left to it any more.
        run(&mut limiter, &mut alone, 120 * SECOND);
        assert_eq!(alone[0].sharing.others, Others::Unseen);
    }
}

#[test]
fn only_what_others_may_take_now_is_left_to_them() {
    let now = Instant::now();
    let seen = |taken, left, denied| Seen {
        sent_at: now,
        score: 1,
        rate: 10,
        interval: Some(Duration::from_secs(1)),
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
    // Permits that a call leaves for want of a backlog, or that nobody was to have, are no hold.
    let mut sharing = Sharing {
        probe_at: Some(now + Duration::from_secs(1)),
        ..Sharing::default()
    };
    assert_eq!(sharing.plan(now).share, None);
    assert_eq!(sharing.note(seen(9, 1, Some(1))), None);
}

#[test]
fn the_less_a_process_had_of_late_the_more_it_asks_for() {
    let now = Instant::now();
    let permille = |own_of_late, others_of_late| {
        let mut sharing = Sharing {
            others: Others::SEEN,
            own_of_late,
            others_of_late,
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
    for (owed, appetite, share) in [
        (0, 10, by_its_part),
        (0, 2, all_but(2)),
        (3, 10, all_but(5)),
        (8, 10, all_but(8)),
        (3, 2, all_but(2)),
    ] {
        let sharing = Sharing {
            owed,
            appetite,
            found: 10,
            own_of_late: 5.0,
            others_of_late: 5.0,
            ..Sharing::default()
        };
        assert_eq!(sharing.leave(), share, "{owed} {appetite}");
    }
}

#[test]
fn what_others_take_or_decline_pays_for_what_is_owed() {
    let now = Instant::now();
    for (others_took, owed) in [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4)] {
        let mut sharing = Sharing {
            others: Others::SEEN,
            held: Some(4),
            owed: 6,
            appetite: 1,
            last: Some((1, 10)),
            ..Sharing::default()
        };
        // Two permits were taken, and others' are told apart from this process's own.
        sharing.note(Seen {
            sent_at: now,
            score: 2,
            rate: 10,
            interval: Some(Duration::from_secs(1)),
            left: 0,
            taken: 2,
            newer: Some(others_took + 3),
            own: 15,
            denied: Some(1),
        });
        assert_eq!(sharing.owed, owed, "{others_took}");
        let idle_holds = u32::from(others_took == 0);
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
fn the_first_probes_are_an_interval_apart_or_half_of_one_after_a_smaller_one_than_planned() {
    assert_pauses(
        false,
        &[
            (1_000, 10, 2, 2, 1_000),
            (1_000, 10, 2, 1, 500),
            (60_000, 10, 2, 2, 5_000),
        ],
    );
}

/// Asserts how many ms after a probe the next one follows. A pause is that of an interval in ms, a rate, the size of the
/// probe, and how many permits it left.
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
            interval: Some(Duration::from_millis(interval)),
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
fn the_more_a_process_had_beside_others_the_later_it_asks() {
    let interval = Some(Duration::from_secs(1));
    let delay = |others, own_of_late, others_of_late| {
        let mut sharing = Sharing {
            others,
            own_of_late,
            others_of_late,
            random: 1,
            ..Sharing::default()
        };
        sharing.delay(interval)
    };
    let random = LONGEST_DELAY / RANDOM_PART_OF_DELAY;
    for (own, others, longest) in [
        (0.0, 10.0, 0),
        (5.0, 15.0, 3),
        (10.0, 10.0, 6),
        (10.0, 0.0, 12),
    ] {
        assert_eq!(delay(Others::Unseen, own, others), Duration::ZERO);
        let delay = delay(Others::SEEN, own, others);
        let longest = Duration::from_millis(longest);
        assert!(delay >= longest && delay <= longest + random, "{delay:?}");
    }
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
                interval: Some(Duration::from_secs(1)),
                left,
                taken,
                newer: ask.newer_than.map(|_| others),
                own,
                denied,
            });
            prop_assert!((0..=rate).contains(&sharing.owed));
            prop_assert!(sharing.appetite <= rate.max(others + 1));
            let of_late = sharing.own_of_late + sharing.others_of_late;
            prop_assert!(of_late <= INTERVALS_OF_LATE * rate as f64 + 2.0 * rate as f64);
            prop_assert!(sharing.probe <= 2 * rate);
        }
    }
}
