//! When the next lease is asked for, and how many permits it is to have.

use std::sync::Mutex;

use super::*;
use crate::denials::Denials;
use crate::interleaving::{explore, run};

#[test]
fn a_use_of_a_lease_counts_once_as_demand() {
    let mut process = Process::with_lease(10);
    process.takes(4);
    for _ in 0..3 {
        process.leases.attend(process.now());
    }
    process.millis = LASTS;
    let todo = process.leases.attend(process.now());
    // Those 4 and the 11 that the store has granted, and a quarter more.
    assert_eq!(todo.ask.map(|plan| plan.permits), Some(19));
}

#[test]
fn the_fewest_uses_that_a_handle_wants_are_enough_for_a_lease() {
    let process = Process::new();
    process.leases.hold(Hold {
        up_to: ms(LASTS),
        fewest_uses: 100,
    });
    process.note(1);
    assert!(process.note(1).ask.is_some());
}

#[test]
fn over_a_slow_connection_the_next_lease_is_due_earlier() {
    for (took, is_due) in [(0, false), (20, true)] {
        let mut process = Process::new();
        process.note(1);
        let plan = process.note(1).ask.unwrap();
        process.millis = took;
        process.granted(&plan, 10, took);
        process.millis = 60;
        assert_eq!(process.take(1), Some(is_due), "{took}");
    }
}

#[test]
fn the_last_permit_of_a_lease_says_that_it_is_used_up() {
    let process = Process::with_lease(10);
    assert_eq!(process.takes(8), 8);
    assert_eq!(process.take(1), Some(true), "the next one is due");
    assert_eq!(process.take(1), Some(true));
}

#[test]
fn no_more_than_two_leases_are_held() {
    let process = Process::with_lease(10);
    process.takes(9);
    let plan = process.leases.attend(process.now()).ask.unwrap();
    process.granted(&plan, plan.permits, 0);
    // The one permit of the older lease does not suffice, and the other lease is nearly used up.
    assert_eq!(process.take(plan.permits - 1), Some(true));
    let todo = process.leases.attend(process.now());
    assert!(todo.ask.is_none() && todo.settle.is_empty());
}

#[test]
fn after_a_small_lease_the_next_one_is_asked_for_later() {
    for (permits, is_asked) in [(3, true), (2, false)] {
        let mut process = Process::new();
        process.note(1);
        let plan = process.note(1).ask.unwrap();
        assert_eq!(plan.permits, 10);
        process.granted(&plan, permits, 0);
        process.takes(3);
        let todo = process.leases.attend(process.now());
        assert_eq!(settlements(&todo), [(permits, LASTS)]);
        assert_eq!(todo.ask.is_some(), is_asked);
        process.millis = LASTS;
        assert_eq!(process.note(1).ask.is_some(), !is_asked, "once");
    }
}

#[test]
fn a_lease_of_no_permits_is_not_held() {
    let process = Process::new();
    process.note(1);
    let plan = process.note(1).ask.unwrap();
    assert!(process.granted(&plan, 0, 0).settle.is_empty());
    assert!(process.leases.is_empty());
}

#[test]
fn after_a_denial_leasing_goes_on_soon_whenever_permits_come_back() {
    let mut process = Process::with_lease(10);
    let settings = (ms(INTERVAL), None);
    let hour = Some(ms(3_600_000));
    process.leases.note(settings, 0, hour, process.now());
    for (at, is_asked) in [(1_499, false), (1_500, true)] {
        process.millis = at;
        let asked = [process.note(1), process.note(1)].map(|todo| todo.ask.is_some());
        assert_eq!(asked.contains(&true), is_asked, "{at}");
    }
}

#[test]
fn a_lease_planned_during_a_change_of_the_limiter_is_given_up_or_ends() {
    explore(|seed| {
        let process = Process::new();
        let denials = Arc::new(Denials::default());
        let (planned, change) = (Mutex::new(None), Mutex::new(None));
        let step = || {
            process.note(1);
            let plan = process.note(1).ask;
            *planned.lock().unwrap() = plan.filter(|_| !denials.is_limiter_changing());
        };
        let start_change = || {
            *change.lock().unwrap() = Some(denials.change_limiter(Instant::now()));
            process.leases.end();
        };
        run(seed, vec![Box::new(step), Box::new(start_change)]);
        assert!(denials.is_limiter_changing());
        if let Some(plan) = planned.into_inner().unwrap() {
            assert_eq!(process.granted(&plan, 10, 0).settle.len(), 1);
        }
    });
}
