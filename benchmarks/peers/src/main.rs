//! This crate beside other rate limiters on Redis: decisions per second, the CPU time of each, and
//! what each limiter grants of a limit of 100 a second. The tables are printed and written, with
//! pictures, into `docs/benchmarks.md`, in the places that the benchmark `side_by_side` leaves for
//! them.
//!
//! `cargo +1.96 run --release --manifest-path benchmarks/peers/Cargo.toml`. It starts servers of
//! its own, and processes of its own that make the requests. It takes about seven minutes; with
//! `-- --quick` two, and then the page is written to `target/`.

mod callers;
mod contender;
mod goals;
mod grants;
mod page;
mod processes;
mod servers;
mod speed;

use std::time::Duration;

use servers::Servers;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    /// Of the workloads whose contenders are closest together.
    pub close_rounds: usize,
    pub round: Duration,
    /// How long the callers of the limit of 100 a second ask.
    pub asking: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == callers::PROCESS)
    {
        return callers::run(&arguments[1..]);
    }
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let plan = if is_quick {
        Plan {
            rounds: 1,
            close_rounds: 1,
            round: Duration::from_millis(300),
            asking: Duration::from_secs(2),
        }
    } else {
        Plan {
            rounds: 3,
            close_rounds: 5,
            round: Duration::from_millis(500),
            asking: Duration::from_secs(5),
        }
    };
    let page = page::read();
    let server = Servers::one();
    let cluster = Servers::cluster();
    let speeds = speed::measure(&server, &cluster, plan);
    let granted = grants::measure(&server, plan);
    page::write(&page, &speeds, &granted, &server, plan, is_quick);
}
