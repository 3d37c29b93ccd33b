//! The tables, as they stand in the page between two comments.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Plan;
use crate::contender::Contender;
use crate::grants::{CALLERS, Granted, LIMIT, PROCESSES};
use crate::servers::Servers;
use crate::speed::{Speed, WORKLOADS};

const BEGIN: &str = "<!-- peers -->\n";
const END: &str = "<!-- /peers -->\n";

pub fn text(speeds: &[Vec<Speed>], granted: &[Granted], server: &Servers, plan: Plan) -> String {
    let mut text = String::from(
        "\n## Other limiters on Redis\n\n\
         Written by `cargo run --release --manifest-path benchmarks/peers/Cargo.toml`. The ratio compares with a script that does \
         INCRBY, and PEXPIRE for a new key, called over one connection.\n\n\
         | workload | limiter | decisions/s | ratio | p50 |\n|---|---|--:|--:|--:|\n",
    );
    for (workload, speeds) in WORKLOADS.iter().zip(speeds) {
        let bare = speeds
            .iter()
            .find(|speed| speed.contender == Contender::Bare);
        let bare = bare.map_or(f64::NAN, |bare| bare.per_second);
        for speed in speeds {
            let median = match speed.median {
                0.0 => String::new(),
                median => format!("{median:.0} µs"),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.2}× | {median} |",
                workload.name,
                speed.contender.name(),
                thousands(speed.per_second),
                speed.per_second / bare,
            );
        }
    }
    let _ = write!(
        text,
        "\nWhat they grant of a limit of {LIMIT} a second on one key, to {PROCESSES} processes with {CALLERS} callers each that \
         ask all the time:\n\n\
         | limiter | granted a second, on average | most in any second |\n|---|--:|--:|\n",
    );
    for granted in granted {
        let _ = writeln!(
            text,
            "| {} | {:.0} | {} |",
            granted.contender.name(),
            granted.per_second,
            granted.most,
        );
    }
    let _ = write!(
        text,
        "\nThe seconds are those of the callers' clock, which sees a grant when its answer arrives. Two windows of a fixed window, and \
         a bucket that is full at first, together with what flows in, grant up to twice the limit in a second; limiters that keep \
         each grant, such as RateLimiter, do not. A cache that is synchronised from time to time exceeds the limit by what its \
         clients grant in between.\n\n\
         A limiter that is missing in a workload left requests without an answer for three seconds. Medians of {} rounds of {} ms in which the limiters take turns, each on an emptied server, with 100,000,000 a minute to \
         grant. Redis {}. limitador and trypema have no client for a cluster, and trypema asks for Redis 7.2; tower-rate-limiter \
         0.2 needs Rust 1.96 and is not measured.\n",
        plan.rounds,
        plan.round.as_millis(),
        server.version(),
    );
    text
}

fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", (number / 100.0).round() * 100.0);
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Puts the tables into the page.
pub fn write(text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    let page = fs::read_to_string(&file).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("where the tables begin");
    let (_, after) = rest.split_once(END).expect("where the tables end");
    fs::write(&file, format!("{before}{BEGIN}{text}{END}{after}")).expect("the page, written");
}
