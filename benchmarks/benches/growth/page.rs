//! `docs/growth.md`.

use std::fmt::Write;

use benchmarks::thousands;

use crate::fixture::{Audits, Cost, Costs};
use crate::largest::{Expiry, Row};

fn millis(cost: Cost) -> String {
    let time = format!("{:.2}", cost.longest.as_secs_f64() * 1_000.0);
    if cost.calls > 1 {
        format!("{time} ({} calls)", thousands(cost.calls as u64))
    } else {
        time
    }
}

pub fn table(sizes: &[u32], rows: &[(&str, Vec<Costs>)]) -> String {
    let grants: Vec<_> = sizes
        .iter()
        .map(|&size| thousands(u64::from(size)))
        .collect();
    let mut table = format!("| grants | | {} |\n", grants.join(" | "));
    let _ = writeln!(table, "|---|---|{}", "--:|".repeat(sizes.len()));
    for (name, costs) in rows {
        let ours: Vec<_> = costs.iter().map(|costs| millis(costs.ours)).collect();
        let redissons = costs
            .iter()
            .map(|costs| costs.redissons.map_or_else(|| "–".to_owned(), millis));
        let redissons: Vec<_> = redissons.collect();
        let _ = writeln!(table, "| {name} | this crate | {} |", ours.join(" | "));
        let _ = writeln!(table, "| | Redisson | {} |", redissons.join(" | "));
    }
    table
}

/// The section on the largest calls.
pub fn largest(rows: &[Row], expiry: &Expiry) -> String {
    let mut section = String::from(
        "## The largest calls

A call is bounded by what one request may ask for, and by how many requests share a call. What is larger is refused with
`Error::InvalidArgument` before anything is sent, or goes into the next call:

| | bound |
|---|---|
| requests on one limiter that share a call | 4,096; 1,024 by a policy, 500 units of cost by a SlidingWindowLog |
| limiters whose acquires share a call | 32, with 1,000 runs of unequal requests, or one limiter with 4,096 |
| targets of policies whose requests share a call | 32 |
| limiters of a joint decision | 32 |
| members and counters that SlidingWindowLogs and SlidingWindowCounters of a joint decision touch | 2,000 |
| cost of a request on a SlidingWindowLog | 500 |
| limit of a SlidingWindowLog | 20,000 |
| periods of a SlidingWindowCounter | 500 |

The longest call of each, in ms of the server's time, and the number of calls if there were more than one. Many callers ask once
each, for 1 or 2 permits in turn, so that no request equals the one before.

| | longest call |
|---|--:|
",
    );
    for (name, cost) in rows {
        let _ = writeln!(section, "| {name} | {} |", millis(*cost));
    }
    let _ = write!(
        section,
        "
**Expiry is not a call.** When a limiter expires, because of a keep alive or `expire`, the server deletes its grants before the
next command, unless its setting `lazyfree-lazy-expire` is on: {foreground} ms for {grants} grants, and {background} ms with the
setting. No client can do anything about it, so switch it on for large limiters: `CONFIG SET lazyfree-lazy-expire yes`. `delete`,
`expire` with a time that has passed, and changes of the rate free the memory in the background in any case.
",
        grants = thousands(u64::from(expiry.grants)),
        foreground = expiry.in_the_foreground.as_millis(),
        background = match expiry.in_the_background.as_millis() {
            0 => "less than 1".to_owned(),
            millis => millis.to_string(),
        },
    );
    section
}

pub fn write(
    sizes: &[u32],
    rows: &[(&str, Vec<Costs>)],
    memory: &[u64],
    audits: &Audits,
    largest: &str,
) -> String {
    let mut page = String::from(
        "# How costs grow with the grants of a limiter

A limiter stores each grant of the last interval as a member of a sorted set. A Java client adds a member for each acquire. This
crate adds one for each call, which may serve many requests. While a script runs, the server runs nothing else. So the
longest call of an operation is what other users of the server notice.

![The longest call by the number of grants][growth.svg]

The table shows the longest call of each operation in ms of the server's time, and in parentheses the number of calls if the
operation took more than one. Each grant holds one permit. \"–\" marks operations that Redisson does not have: its callers
make a separate call for each request on each limiter. The grants are divided among the 64 limiters.

",
    );
    page += &table(sizes, rows);
    let memory: Vec<_> = memory
        .iter()
        .map(|bytes| thousands(bytes.div_ceil(1_000)))
        .collect();
    let _ = writeln!(page, "| kB in Redis | both | {} |", memory.join(" | "));
    let _ = write!(
        page,
        "
Audits: {clients} clients of this crate make their first calls on a limiter with {grants} grants. The audits take
{share:.2} % of the server's time, and {longest:.2} ms in the longest call.

{largest}
## What this means

- **A call of this crate does a bounded amount of work.** It removes up to 64 expired grants that it does not need, and up to 500
  if a request needs their permits. A request that needs more takes several calls, within its response timeout.
- **A call of Redisson may do work for every grant.** The first acquire after many grants have expired removes all of them, and
  `updateRate` with kept state sums all that are live. The table shows how long the server is busy with that. This time does not
  depend on which client made the grants.
- **Rates to avoid.** If Redisson clients use the limiter too, keep the number of grants in an interval low enough for the
  longest call in the table: 10,000 grants take Redisson roughly a tenth of the time of 100,000. If only this crate uses it, memory
  is the limit: some 120 bytes for each grant.
- **How to get by with fewer grants.** `acquire(n)` makes one grant for any number of permits, and so do all requests of a
  process that share a call.

Redis 7.0, Redisson 4.7.0. The median of three runs in turns; one run with a million grants. `cargo bench -p benchmarks --bench growth`
writes this page.

[growth.svg]: growth.svg
",
        clients = audits.clients,
        grants = thousands(u64::from(audits.grants)),
        share = audits.share * 100.0,
        longest = audits.longest.as_secs_f64() * 1_000.0,
    );
    page
}
