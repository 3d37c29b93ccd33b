//! Processes that wait on one limiter with a backlog each are all granted permits, whatever other
//! processes wait.
//!
//! How much each gets in a given time is for the machine to say as well: it wakes some processes
//! later than others. So each side goes on until all of them have had a quarter of what 20 s bring,
//! however long that takes. One that leaves the others nothing keeps them from it for ever. The
//! simulations in `src/queue/sharing/` have the shares and the times, also of processes that
//! wake up late, and the program `fairness` measures them on a quiet machine (docs/sharing.md).

use std::{path::Path, time::Duration};

use compat_tests::fairness::{SCENARIOS, Scenario};
use tokio::task::JoinSet;

/// The program that the processes of this crate run.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairness");

/// Some with callers that want three permits at a time, some with leases, and some with Redisson.
const SHARED: [&str; 8] = [
    "java",
    "two",
    "three",
    "sizes",
    "java-sizes",
    "leased-100-per-1s",
    "java-leased-100-per-1s",
    "two-leased-and-java-100-per-1s",
];

/// Nobody waits for so long, unless for ever.
const FOR_EVER: Duration = Duration::from_secs(300);

/// On servers of their own, and all at once, because each takes 10 to 20 s.
#[tokio::test(flavor = "multi_thread")]
async fn with_backlogs_each_side_is_granted_permits_beside_the_others() {
    let mut running = JoinSet::new();
    for name in SHARED {
        let scenario = SCENARIOS.iter().find(|it| it.name == name);
        let scenario = scenario.unwrap_or_else(|| panic!("no scenario {name}"));
        let scenario = Scenario {
            duration: FOR_EVER,
            enough: Some(20 * scenario.permits / 4),
            ..*scenario
        };
        running.spawn(async move { (scenario, scenario.run(Path::new(PROGRAM)).await) });
    }
    while let Some(ended) = running.join_next().await {
        let (scenario, outcome) = ended.expect("a scenario");
        for (place, side) in scenario.sides.iter().enumerate() {
            let permits = outcome.of(place);
            let seconds = outcome.per_second[place].iter();
            let shown: Vec<_> = seconds.take(60).collect();
            let context = format!("{}: {} {shown:?}", scenario.name, side.label());
            println!("{context}");
            assert!(Some(permits) >= scenario.enough, "{context}");
        }
    }
}
