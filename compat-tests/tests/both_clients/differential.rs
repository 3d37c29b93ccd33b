//! The same random steps, by Redisson on one limiter and by this crate on another: see
//! [`compat_tests::differential`].
//!
//! `DIFFERENTIAL_STEPS` sets how many steps Redisson 4.7.0 takes, 10,000 where it is not set; other
//! versions take a tenth. `DIFFERENTIAL_SEED` sets the seed of the first sequence; a failure prints
//! that of its sequence.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

use compat_tests::{
    differential::{Difference, play},
    redisson::Version,
};

const STEPS: usize = 10_000;

#[tokio::test]
async fn random_steps_give_the_same_answers_as_redisson_4_7_0() {
    run(Version::V4_7_0, number_of_steps()).await;
}

#[tokio::test]
async fn random_steps_give_the_same_answers_as_older_versions() {
    for version in Version::ALL {
        if version != Version::V4_7_0 {
            run(version, number_of_steps() / 10).await;
        }
    }
}

fn number_of_steps() -> usize {
    number("DIFFERENTIAL_STEPS").unwrap_or(STEPS)
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

async fn run(version: Version, steps: usize) {
    let first_seed = number("DIFFERENTIAL_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let report = play(version, version, first_seed, steps).await;
    if let Some(first) = report.unexpected.first() {
        panic!("{first}");
    }
    if steps >= STEPS {
        // A lowered rate shows only when grants are over before less than the rate is in use, a few
        // times in a run; a test of its own leaves it to no chance.
        let mut often = Difference::of(version);
        often.retain(|difference| *difference != Difference::LoweredRateSettles);
        for difference in often {
            let mut met = report
                .steps
                .values()
                .filter(|it| it.known.contains_key(&difference));
            assert!(met.next().is_some(), "{difference:?} was not met");
        }
    }
}
