//! Prints how processes with a backlog share a limiter, and how many script calls that costs the
//! server.
//!
//! ```text
//! cargo run -p compat-tests --release --bin fairness -- [--list] [--seconds N] [SCENARIO…]
//! ```
//!
//! Runs the scenarios named, each on a server of its own, one after the other; without a name, all
//! of them. `java*` means all whose name begins with `java`. `--seconds` replaces the duration of
//! each.

use std::{env, process::ExitCode, time::Duration};

use compat_tests::fairness::{
    Outcome, SCENARIOS, Scenario, process,
    waiters::{self, Spacing, WAITERS},
};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|it| it == process::ARGUMENT) {
        process::run().await;
        return ExitCode::SUCCESS;
    }
    if arguments == ["--list"] {
        names().for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let seconds = match arguments.first() {
        Some(first) if first == "--seconds" => {
            arguments.remove(0);
            let given = (!arguments.is_empty()).then(|| arguments.remove(0));
            let seconds = given.and_then(|it| it.parse().ok());
            Some(seconds.expect("--seconds N"))
        }
        _ => None,
    };
    if let Some(unknown) = arguments.iter().find(|it| !names().any(|n| matches(it, n))) {
        eprintln!("no scenario {unknown}; --list lists them");
        return ExitCode::FAILURE;
    }
    let is_chosen =
        |name: &str| arguments.is_empty() || arguments.iter().any(|it| matches(it, name));

    let program = env::current_exe().expect("this program");
    for scenario in SCENARIOS.iter().filter(|it| is_chosen(it.name)) {
        let mut scenario = *scenario;
        if let Some(seconds) = seconds {
            scenario.duration = Duration::from_secs(seconds);
        }
        print(&scenario, &scenario.run(&program).await);
    }
    for spacing in Spacing::ALL.into_iter().filter(|it| is_chosen(it.name())) {
        let waited = waiters::measure(spacing).await;
        println!(
            "{}: {} script calls for {WAITERS} waiters (at most {}), {:.1} s",
            spacing.name(),
            waited.script_calls,
            spacing.most_calls(),
            waited.elapsed.as_secs_f64(),
        );
    }
    ExitCode::SUCCESS
}

fn names() -> impl Iterator<Item = &'static str> {
    let scenarios = SCENARIOS.iter().map(|it| it.name);
    scenarios.chain(Spacing::ALL.map(Spacing::name))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

fn print(scenario: &Scenario, outcome: &Outcome) {
    let together = outcome.together();
    println!(
        "{}: {} per {:?} for {:?}: {together} of {} permits ({:.1} %), {} script calls",
        scenario.name,
        scenario.permits,
        scenario.interval,
        scenario.duration,
        outcome.most,
        percent(together, outcome.most),
        outcome.script_calls,
    );
    for (place, side) in scenario.sides.iter().enumerate() {
        let per_second: Vec<_> = outcome.per_second[place]
            .iter()
            .map(u64::to_string)
            .collect();
        println!(
            "  {:>5} = {:>4.1} %  {:<28} a second: {}",
            outcome.of(place),
            percent(outcome.of(place), together),
            side.label(),
            per_second.join(" "),
        );
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
