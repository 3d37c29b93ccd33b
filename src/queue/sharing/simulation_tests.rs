//! Processes with endless backlogs on one limiter, simulated: what each of them gets.

use super::*;
use crate::window::{Acquired, Requests};

/// Times are in µs.
const INTERVAL: i64 = 1_000_000;
const SECOND: i64 = INTERVAL;
/// How much later than permits come back a queue asks, and how long its call takes at most.
const SLACK: i64 = 3_000;
const TRAVEL: Duration = Duration::from_millis(4);
const MICRO: Duration = Duration::from_micros(1);

/// A limiter with its sliding window.
struct Limiter {
    start: Instant,
    rate: i64,
    /// Scores and permits.
    grants: Vec<(i64, i64)>,
}

struct Process {
    /// How many permits each of its waiters asks for.
    permits: u32,
    sharing: Sharing,
    next_at: i64,
    /// By how much half of its calls are late at most: the machine is busy.
    late: Duration,
    /// How long its calls take at most.
    travel: Duration,
    own: u64,
    /// When it was granted permits last, and the longest time without.
    granted_at: i64,
    longest_without: i64,
    /// The permits that it left, each times the µs for which it left them.
    held: i64,
    /// How many of its calls left permits.
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

    fn available(&self, now: i64) -> i64 {
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
            // Nobody asks about older grants any more.
            self.grants.retain(|(at, _)| at + 3 * INTERVAL > now);
            self.grants.push((now, permits));
        }
    }

    /// A process asks for all that its waiters want.
    fn ask(&mut self, process: &mut Process, now: i64) {
        let sent_at = self.start + Duration::from_micros(now as u64);
        let ask = process.sharing.plan(sent_at);
        let available = self.available(now);
        let requests = Requests::fifo(
            std::iter::repeat_n(process.permits, 2 * self.rate as usize),
            ask.share,
        );
        let taken = requests.taken(&Acquired::new(now, self.rate, available, 0, 0));
        let newer = ask.newer_than.map(|score| self.newer_than(score));
        self.take(now, taken);
        process.own += taken as u64;
        let left = available - taken;
        let interval = Duration::from_micros(INTERVAL as u64);
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
                let wait = Duration::from_micros((self.next_back(now) + SLACK - now) as u64);
                now + process.sharing.ask_after(wait, interval).as_micros() as i64
            }
        };
        // It is random whose call arrives first.
        process.next_at += process.sharing.random_up_to(process.travel).as_micros() as i64;
        if process.sharing.random_up_to(2 * MICRO) >= MICRO {
            process.next_at += process.sharing.random_up_to(process.late).as_micros() as i64;
        }
        process.longest_without = process.longest_without.max(now - process.granted_at);
        if taken > 0 {
            process.granted_at = now;
        }
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
        late: Duration::ZERO,
        travel: TRAVEL,
        own: 0,
        granted_at: starts_at,
        longest_without: 0,
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
        // A probe is at least one permit, which is all of a rate of 1.
        let most = if rate == 1 { 0.0275 } else { 0.01 };
        assert!(of_all <= most, "{rate} a second: {of_all} left idle");
        let pause = LONGEST_PROBE_PAUSE + Duration::from_secs(1);
        assert!(u64::from(alone[0].holds) * pause.as_secs() >= SECONDS as u64);
        assert_eq!(alone[0].sharing.others, Others::Unseen);
    }
}

#[test]
fn processes_with_backlogs_get_similar_parts_and_waste_little() {
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

/// Two or more processes that do not know of each other share a limiter for 20 s. The callers of
/// the last one want `permits` each.
#[test]
fn in_the_first_20_s_each_gets_a_quarter_whatever_the_order_of_calls() {
    for (count, permits) in [(2_u64, 1), (2, 2), (2, 3), (3, 1), (3, 2)] {
        for seed in 1..=100 {
            let first = FirstSeconds::of(count, permits, seed, Duration::ZERO);
            assert!(first.each_gets(4), "{first:?}");
            assert!(first.together() * 100 >= 95 * 200, "{first:?}");
        }
    }
}

/// Processes that do not know of each other share a limiter for 20 s on a machine on which they
/// wake up too late for the others' permits, or for those that were left to them.
#[test]
fn on_a_busy_machine_each_gets_a_part_and_none_waits_for_long() {
    for (count, permits) in [(2_u64, 1), (2, 2), (2, 3), (3, 1), (3, 2)] {
        for late in [20, 50, 100].map(Duration::from_millis) {
            for seed in 1..=400 {
                let first = FirstSeconds::of(count, permits, seed, late);
                assert!(first.each_gets(if count == 2 { 4 } else { 7 }), "{first:?}");
                assert!(first.together() * 100 >= 90 * 200, "{first:?}");
                let longest = LONGEST_PROBE_PAUSE + Duration::from_secs(2);
                assert!(
                    first.longest_without <= longest.as_micros() as i64,
                    "{first:?}"
                );
            }
        }
    }
}

/// What processes with backlogs got in their first 20 s.
#[derive(Debug)]
#[expect(dead_code, reason = "printed where an assertion fails")]
struct FirstSeconds {
    permits: u32,
    seed: u64,
    late: Duration,
    own: Vec<u64>,
    longest_without: i64,
}

impl FirstSeconds {
    /// The callers of the last process want `permits` each.
    fn of(count: u64, permits: u32, seed: u64, late: Duration) -> Self {
        let random = |place: u64| {
            let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            random.rotate_left(17 * place as u32 + 5)
        };
        let mut limiter = Limiter::new(10);
        let starts = |place: u64| Process {
            late,
            ..process(random(place), (random(place) % 7_000) as i64)
        };
        let mut processes: Vec<_> = (0..count).map(starts).collect();
        processes[count as usize - 1].permits = permits;
        run(&mut limiter, &mut processes, 20 * SECOND);
        let longest_without = processes.iter().map(|process| process.longest_without);
        Self {
            permits,
            seed,
            late,
            longest_without: longest_without.max().expect("a process"),
            own: processes.iter().map(|process| process.own).collect(),
        }
    }

    fn together(&self) -> u64 {
        self.own.iter().sum()
    }

    /// Whether each process got at least `1 / parts` of what all got together.
    fn each_gets(&self, parts: u64) -> bool {
        self.own.iter().all(|own| own * parts >= self.together())
    }
}

/// The calls of both take no time, so one of the two is always the first to find what comes back at
/// once.
#[test]
fn a_process_that_is_granted_nothing_goes_before_one_alone() {
    for permits in [1, 3, 5, 10] {
        let mut limiter = Limiter::new(10);
        let at_once = |seed, starts_at| Process {
            travel: Duration::ZERO,
            ..process(seed, starts_at)
        };
        let mut processes = [at_once(5, 0), at_once(6, SECOND / 2)];
        processes[0].sharing.probe_at = Some(limiter.start + Duration::from_secs(60));
        processes[1].permits = permits;
        // The second process learns of the first one by its second call.
        run(&mut limiter, &mut processes, 5 * SECOND / 2);
        assert!(processes[1].own > 0, "{permits} permits");
    }
}

/// Redisson's threads wake up at a tick of 100 ms once the oldest permits are back, and take all
/// that are left.
#[test]
fn a_process_gets_and_leaves_a_quarter_beside_one_that_polls_for_all() {
    for phase in 0..100 {
        let mut limiter = Limiter::new(10);
        let mut processes = [process(phase + 1, 0)];
        let (mut next, mut others) = (phase as i64 % 3_000, 0);
        while next < 20 * SECOND {
            run(&mut limiter, &mut processes, next);
            let all = limiter.available(next);
            limiter.take(next, all);
            others += all as u64;
            let (tick, phase) = (SECOND / 10, phase as i64 * 1_000);
            let due = limiter.next_back(next) + SLACK - phase;
            next = (due + tick - 1).div_euclid(tick) * tick + phase;
        }
        run(&mut limiter, &mut processes, 20 * SECOND);
        let own = processes[0].own;
        assert!(own * 4 >= own + others, "{phase}: {own} and {others}");
        assert!(others * 4 >= own + others, "{phase}: {own} and {others}");
        assert!(
            (own + others) * 100 >= 95 * 200,
            "{phase}: {own} and {others}"
        );
    }
}

#[test]
fn a_process_that_was_alone_notices_one_that_finds_nothing() {
    for rate in [10, 100] {
        let mut limiter = Limiter::new(rate);
        let mut alone = [process(5, 0)];
        run(&mut limiter, &mut alone, 30 * SECOND);
        // From now on another process asks every 100 ms, and takes what there is, up to a fifth.
        let (mut next, mut starved) = (30 * SECOND, 0);
        while next < 90 * SECOND {
            run(&mut limiter, &mut alone, next);
            let takes = limiter.available(next).clamp(0, rate / 5);
            limiter.take(next, takes);
            starved += takes;
            next += SECOND / 10;
        }
        assert!(starved * 10 >= rate * 60, "{rate}: {starved}");
        assert!(matches!(alone[0].sharing.others, Others::Seen { .. }));
        // The other process is gone; after some holds nothing is left to it any more.
        run(&mut limiter, &mut alone, 120 * SECOND);
        assert_eq!(alone[0].sharing.others, Others::Unseen);
        assert_eq!(alone[0].sharing.least, 0);
    }
}
