//! Random schedules over the queue's state: runtimes that stall and shut down, waiters that are polled late, move and leave,
//! a store whose answers are late or lost, and other processes. After each step nobody waits who could be served, in order;
//! in the end nothing is kept by those who left.
//!
//! `SCHEDULES` says how many are run, from a random seed; without it the same 500 of up to 400 steps each.

mod store;
mod world;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use world::{Step, World};

fn schedules() -> u32 {
    match std::env::var("SCHEDULES") {
        Ok(number) => number.parse().expect("SCHEDULES is a number"),
        Err(_) => 500,
    }
}

fn seed() -> RngSeed {
    match std::env::var("SCHEDULES") {
        Ok(_) => RngSeed::Random,
        Err(_) => RngSeed::Fixed(1),
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
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: seed(), max_shrink_iters: 500, ..ProptestConfig::with_cases(schedules()) })]

    #[test]
    fn over_a_window_that_does_not_pass_each_permit_has_one_owner(
        has_peers: bool,
        steps in prop::collection::vec(any::<Step>(), 1..400),
    ) {
        play(3_600_000, has_peers, &steps);
    }

    #[test]
    fn over_many_windows_those_who_can_be_served_are(
        has_peers: bool,
        steps in prop::collection::vec(any::<Step>(), 1..400),
    ) {
        play(50, has_peers, &steps);
    }
}
