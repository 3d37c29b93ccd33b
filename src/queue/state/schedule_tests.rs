//! Random schedules over the queue's state: runtimes that stall and shut down, waiters that are
//! polled late, move and leave, a store whose answers are late or lost, and other processes. After
//! each step, no waiter that could be served waits, and waiters are served in order. At the end,
//! callers that left keep nothing.
//!
//! `SCHEDULES` sets the number of schedules, of up to 400 steps each, 500 by default. Each run has
//! a random seed. A failed schedule is printed with the seed of its run; `SCHEDULES_SEED` repeats
//! that run.

mod world;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use world::{Step, World};

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let number = std::env::var(variable).ok()?;
    let Ok(number) = number.parse() else {
        panic!("{variable} is no number: {number}");
    };
    Some(number)
}

fn config() -> ProptestConfig {
    let seed = number("SCHEDULES_SEED").unwrap_or_else(|| {
        let call_id = crate::permit::new_call_id();
        u64::from_ne_bytes(call_id[..8].try_into().unwrap())
    });
    // The test harness prints it if the test fails.
    println!("SCHEDULES_SEED={seed}");
    ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 500,
        ..ProptestConfig::with_cases(number("SCHEDULES").unwrap_or(500))
    }
}

fn play(window: i64, has_peers: bool, steps: &[Step]) {
    let mut world = World::new(window, has_peers);
    for step in steps {
        world.step(*step);
        world.check();
    }
    world.finish();
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn over_a_window_that_does_not_pass_each_permit_has_one_owner(
        has_peers: bool,
        steps in prop::collection::vec(any::<Step>(), 1..400),
    ) {
        play(3_600_000, has_peers, &steps);
    }

    #[test]
    fn over_many_windows_each_waiter_that_can_be_served_is_served(
        has_peers: bool,
        steps in prop::collection::vec(any::<Step>(), 1..400),
    ) {
        play(50, has_peers, &steps);
    }
}
