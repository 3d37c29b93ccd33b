//! Processes that wait on one limiter with a backlog each get their share of it, and together nearly all of it; one that
//! is alone pays no more calls than it must. In a binary of its own, and all at once on servers of their own, because each
//! takes 20 s.
//!
//! **A quarter each.** At 10 permits a second, 200 come free in the 20 s. Each side is granted at least a quarter of what
//! all were granted.
//!
//! **Together as much as one alone.** A permit that is granted again on average `lag` after it is back is granted
//! `20 / (1 + lag / 1 s)` times in the 20 s, rounded up. How late a process wakes is for the machine to say, so the
//! scenarios run at the same time and are compared: sides that share are granted at least 90 % of what a process of this
//! crate is granted alone, and that at least 85 % of what one of Redisson is. (docs/sharing.md has the parts of the rate.)

use std::path::Path;

use compat_tests::fairness::{
    SCENARIOS,
    waiters::{self, Spacing},
};
use tokio::task::JoinSet;

/// The program that the processes of this crate run.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairness");

/// The scenarios that others are compared with.
const ALONE: &str = "alone";
const REDISSON_ALONE: &str = "java-alone";

/// The scenarios, and whether each side has a backlog all the time.
const SHARED: [(&str, bool); 7] = [
    (ALONE, true),
    (REDISSON_ALONE, true),
    ("java", true),
    ("two", true),
    ("three", true),
    ("later", false),
    ("sizes", true),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_side_with_a_backlog_gets_a_quarter_and_few_permits_are_unused() {
    let mut running = JoinSet::new();
    for (name, all_have_backlogs) in SHARED {
        let scenario = SCENARIOS.iter().find(|it| it.name == name);
        let scenario = scenario.unwrap_or_else(|| panic!("no scenario {name}"));
        running.spawn(async move {
            let outcome = scenario.run(Path::new(PROGRAM)).await;
            (scenario, all_have_backlogs, outcome)
        });
    }
    let outcomes = running.join_all().await;
    let granted_to = |name| {
        let of_name = outcomes.iter().find(|(scenario, ..)| scenario.name == name);
        let (.., outcome) = of_name.expect("one of the scenarios");
        outcome.together().min(outcome.most)
    };
    let [alone, redisson_alone] = [ALONE, REDISSON_ALONE].map(granted_to);

    let mut broken = Vec::new();
    for (scenario, all_have_backlogs, outcome) in &outcomes {
        let (name, together) = (scenario.name, outcome.together());
        println!("{name}: {together} of {} {outcome:?}", outcome.most);
        let least = match name {
            REDISSON_ALONE => 0,
            ALONE => redisson_alone * 85,
            _ => alone * 90,
        };
        if together * 100 < least {
            broken.push(format!(
                "{name}: together {together} of {} permits",
                outcome.most
            ));
        }
        for (place, side) in scenario.sides.iter().enumerate() {
            let permits = outcome.of(place);
            if *all_have_backlogs && permits * 4 < together {
                let label = side.label();
                broken.push(format!(
                    "{name}: {label} got {permits} of {together} permits"
                ));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "{broken:#?}; alone {alone}, Redisson alone {redisson_alone}"
    );
}

/// On a busy machine a driver that comes late asks once more, which the goals of `Spacing` do not include.
#[tokio::test]
async fn a_thousand_waiters_share_calls() {
    let (bunched, spread) = tokio::join!(
        waiters::measure(Spacing::Bunched),
        waiters::measure(Spacing::Spread)
    );
    println!("{bunched:?}, {spread:?}");
    assert!(bunched.script_calls <= 100, "{bunched:?}");
    assert!(spread.script_calls <= 1_100, "{spread:?}");
}
