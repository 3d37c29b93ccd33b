//! `docs/growth.md`.

use std::fmt::Write;

use benchmarks::thousands;

use crate::stage::{Audits, Cost, Costs};

fn millis(cost: Cost) -> String {
    let time = format!("{:.2}", cost.longest.as_secs_f64() * 1_000.0);
    if cost.calls > 1 {
        format!("{time} ({} calls)", thousands(cost.calls as u64))
    } else {
        time
    }
}

pub fn write(
    sizes: &[u32],
    rows: &[(&str, Vec<Costs>)],
    memory: &[u64],
    audits: &Audits,
) -> String {
    let mut page = String::from(
        "# How costs grow with the grants of a limiter

A limiter keeps a member for each grant of the interval. A Java client makes one for each acquire, this crate one for all
that a call grants. While a script runs, Redis does nothing else, so what counts for others is the longest call.

![The longest call by the number of grants](growth.svg)

The longest call of an operation, in ms of the server's time, on a limiter whose grants hold one permit each, and how many
calls the operation took where it is more than one.

",
    );
    let grants: Vec<_> = sizes
        .iter()
        .map(|&size| thousands(u64::from(size)))
        .collect();
    let _ = writeln!(page, "| grants | | {} |", grants.join(" | "));
    let _ = writeln!(page, "|---|---|{}", "--:|".repeat(sizes.len()));
    for (name, costs) in rows {
        let ours: Vec<_> = costs.iter().map(|costs| millis(costs.ours)).collect();
        let redissons: Vec<_> = costs.iter().map(|costs| millis(costs.redissons)).collect();
        let _ = writeln!(page, "| {name} | this crate | {} |", ours.join(" | "));
        let _ = writeln!(page, "| | Redisson | {} |", redissons.join(" | "));
    }
    let memory: Vec<_> = { memory.iter() }
        .map(|bytes| thousands(bytes.div_ceil(1_000)))
        .collect();
    let _ = writeln!(page, "| kB in Redis | both | {} |", memory.join(" | "));
    let _ = write!(
        page,
        "
{clients} clients of this crate on a limiter with {grants} grants, each of which calls for the first time: audits take
{share:.2} % of the server's time, {longest:.2} ms in the longest call.

## What follows from it

- An acquire removes up to 64 expired grants that it does not need, and up to 500 where it needs their permits. A request for
  more than these hold takes several calls, within its response timeout.
- A Java client that calls after all grants have expired, or `updateRate` with kept state, holds the server as long as the table
  says. This crate's calls do not, whoever made the grants.
- Rates to avoid: a Redisson client beside this crate with more than about 10,000 acquires an interval, where others on the
  server mind 20 ms. For this crate alone the memory is the limit, some 100 bytes a grant. `acquire(n)` makes one grant, however
  many permits it is for, and so do all requests of a process that share a call.

Redis 7.0, Redisson 4.7.0; the median of three runs, taken in turns, and one run with a million grants. `cargo bench -p benchmarks --bench growth` writes this page.
",
        clients = audits.clients,
        grants = thousands(u64::from(audits.grants)),
        share = audits.share * 100.0,
        longest = audits.longest.as_secs_f64() * 1_000.0,
    );
    page
}
