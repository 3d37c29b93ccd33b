//! This crate beside other rate limiters on Redis: decisions per second, and what each grants of a
//! limit of 100 a second. The tables are printed and written into `docs/benchmarks.md`.
//!
//! `cargo run --release --manifest-path benchmarks/peers/Cargo.toml`. It starts servers of its own,
//! and processes of its own that make the requests. It takes about five minutes; with `-- --quick`
//! one, and the page stays as it is.

mod callers;
mod contender;
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
            round: Duration::from_millis(300),
            asking: Duration::from_secs(3),
        }
    } else {
        Plan {
            rounds: 3,
            round: Duration::from_millis(500),
            asking: Duration::from_secs(6),
        }
    };
    let server = Servers::one();
    let cluster = Servers::cluster();
    let speeds = speed::measure(&server, &cluster, plan);
    let granted = grants::measure(&server, plan);
    let text = page::text(&speeds, &granted, &server, plan);
    println!("{text}");
    if !is_quick {
        page::write(&text);
    }
}
