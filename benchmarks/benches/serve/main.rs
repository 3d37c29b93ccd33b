//! `rratelimiter serve` beside the crate `limitador` behind a server of the same protocol, Envoy's:
//! the same client, the same Redis, in turns. Prints the tables of `cli/SERVE.md`.
//!
//! `cargo bench -p benchmarks --bench serve`; `-- --quick` takes about a minute. It builds both
//! servers, which needs OpenSSL, and starts a `redis-server` for each round.

mod load;
#[path = "../../../serve/src/grpc/messages.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the client and the server use some of it each"
)]
mod messages;
mod servers;

use benchmarks::{median, rounded, thousands};
use compat_tests::Server;

use load::{Load, Measured};
use servers::{Kind, Serving};

/// Rounds of each case, in turns.
const ROUNDS: usize = 5;

struct Case {
    name: &'static str,
    rules: u32,
    load: Load,
}

fn main() {
    let is_quick = std::env::args().any(|it| it == "--quick");
    let requests = if is_quick { 5_000 } else { 40_000 };
    let rounds = if is_quick { 2 } else { ROUNDS };
    let programs = servers::build();
    let usual = Load {
        requests,
        connections: 4,
        in_flight: 64,
        keys: 10_000,
        descriptors: 1,
    };
    let case = |name, rules, load| Case { name, rules, load };
    let cases = [
        case(
            "1 caller",
            1,
            Load {
                connections: 1,
                in_flight: 1,
                requests: requests / 10,
                ..usual
            },
        ),
        case("64 callers, 10,000 keys, 1 rule", 1, usual),
        case(
            "3 descriptors a request, 3 rules",
            3,
            Load {
                descriptors: 3,
                ..usual
            },
        ),
        case("1 key", 1, Load { keys: 1, ..usual }),
        case(
            "1,000,000 keys",
            1,
            Load {
                keys: 1_000_000,
                ..usual
            },
        ),
        case("100 rules", 100, usual),
        case("1,000 rules", 1_000, usual),
        case(
            "1 connection",
            1,
            Load {
                connections: 1,
                ..usual
            },
        ),
        case(
            "64 connections",
            1,
            Load {
                connections: 64,
                ..usual
            },
        ),
    ];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    println!(
        "| case | serve, requests/s | limitador, requests/s | ratio | serve, p99 | limitador, p99 | ratio |\n\
         |---|--:|--:|--:|--:|--:|--:|"
    );
    for Case { name, rules, load } in cases {
        let mut measured = [const { Vec::new() }; 2];
        for _ in 0..rounds {
            for (place, kind) in [Kind::Serve, Kind::Limitador].into_iter().enumerate() {
                let redis = Server::start();
                let serving = Serving::start(kind, &programs, &redis.url(), rules);
                let warm_up = Load {
                    requests: load.requests / 10,
                    ..load
                };
                runtime.block_on(load::run(&serving.address, warm_up));
                measured[place].push(runtime.block_on(load::run(&serving.address, load)));
            }
        }
        let of = |place: usize, number: fn(&Measured) -> f64| {
            median(measured[place].iter().map(number).collect())
        };
        let rates = [0, 1].map(|place| of(place, |it| it.requests_per_second));
        let slowest = [0, 1].map(|place| of(place, |it| it.p99_micros));
        println!(
            "| {name} | {} | {} | {:.2}× | {} µs | {} µs | {:.2}× |",
            thousands(rounded(rates[0])),
            thousands(rounded(rates[1])),
            rates[0] / rates[1],
            thousands(rounded(slowest[0])),
            thousands(rounded(slowest[1])),
            slowest[0] / slowest[1],
        );
    }
}
