//! The page: the goals, the table and what is behind it, as Markdown.

use std::{fmt::Write, time::Duration};

use benchmarks::{rounded, thousands};
use compat_tests::fairness::waiters::{RATE, Spacing, Waited};

use crate::{
    contender::Contender,
    goals::Results,
    in_memory::Limiter,
    numbers::{bytes, factor, micros},
    plan::Plan,
    sample::Sampled,
    workload::{MANY, Traffic},
};

/// The whole of `docs/benchmarks.md`.
pub fn write(
    results: &Results,
    machine: &[(&str, String)],
    plan: &Plan,
    elapsed: Duration,
) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n\
         This page compares this crate with Redisson and with other rate limiters, all measured in one run on one server. \
         It is written by\n\n\
         ```sh\ncargo bench -p benchmarks --bench side_by_side\n```\n\n\
         ![Decisions per second][benchmarks.svg]\n\n## Goals\n\n| goal | met | measured |\n|---|---|---|\n",
    );
    for goal in results.goals() {
        let met = if goal.is_met { "yes" } else { "**no**" };
        line(&mut page, &[&goal.text, met, &goal.measured]);
    }
    page += "\n## Results\n\n\
        The ratio compares a result with that of Redisson's faster API; for scripts alone, with Redisson's script; for waiters and \
        memory, with Redisson's threads; in memory, with governor: a limiter that looks up a key with governor's keyed one, the \
        others with governor's limiter without keys.\n\n\
        | workload | client | result | ratio | p50 | p99 | client CPU per decision |\n\
        |---|---|--:|--:|--:|--:|--:|\n";
    for sampled in &results.sampled {
        over_redis(&mut page, sampled);
    }
    scripts_alone(&mut page, results);
    waiting(&mut page, results);
    memory(&mut page, results, plan);
    in_memory(&mut page, results);

    page += BEGIN;
    page += END;
    page += "\n## Machine\n\n| | |\n|---|---|\n";
    for (what, which) in machine {
        line(&mut page, &[what, which]);
    }
    page += &how(plan, elapsed);
    page += "\n[benchmarks.svg]: benchmarks.svg\n";
    page
}

/// Between these comments stands what `benchmarks/peers` writes.
const BEGIN: &str = "\n<!-- peers -->\n";
const END: &str = "<!-- /peers -->\n";

/// The page, with what an earlier one has of the other limiters on Redis.
pub fn with_peers(page: &str, earlier: &str) -> String {
    let peers = earlier
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END));
    let peers = peers.map_or("", |(peers, _)| peers);
    page.replace(&format!("{BEGIN}{END}"), &format!("{BEGIN}{peers}{END}"))
}

/// Not measured, or it would say nothing new.
const NONE: &str = "";

fn line(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn over_redis(page: &mut String, sampled: &Sampled) {
    for summary in &sampled.summaries {
        let ratio = sampled.ratio_of_throughput(summary.contender, sampled.faster_redisson());
        let mut workload = sampled.workload.to_string();
        if sampled.workload.traffic == Traffic::Denied {
            let _ = write!(workload, " ({:.1} % granted)", summary.granted * 100.0);
        }
        line(
            page,
            &[
                &workload,
                &name(summary.contender),
                &format!("{} decisions/s", thousands(rounded(summary.throughput))),
                &factor(ratio),
                &micros(summary.p50),
                &micros(summary.p99),
                &micros(summary.cpu),
            ],
        );
    }
}

fn scripts_alone(page: &mut String, results: &Results) {
    for scripts in &results.scripts_alone {
        let workload = format!("256 calls in flight, {}", scripts.traffic);
        for (who, throughput) in [
            ("our script, in pipelines", scripts.ours),
            ("Redisson's script, in pipelines", scripts.redissons),
        ] {
            line(
                page,
                &[
                    &workload,
                    who,
                    &format!("{} decisions/s", thousands(rounded(throughput))),
                    &factor(throughput / scripts.redissons),
                    NONE,
                    NONE,
                    NONE,
                ],
            );
        }
    }
}

fn waiting(page: &mut String, results: &Results) {
    for waiting in &results.waiting {
        let workload = match waiting.spacing {
            Spacing::Bunched => "1,000 waiters, permits come back together",
            Spacing::Spread => "1,000 waiters, permits come back one by one",
        };
        let redisson = &waiting.redisson;
        for (who, waited) in [
            (Contender::ThisCrate, &waiting.this_crate),
            (Contender::Redisson, redisson),
        ] {
            let Waited {
                script_calls,
                elapsed,
            } = waited;
            let ratio = *script_calls as f64 / redisson.script_calls as f64;
            line(
                page,
                &[
                    workload,
                    &name(who),
                    &format!(
                        "{} script calls in {:.1} s",
                        thousands(*script_calls),
                        elapsed.as_secs_f64()
                    ),
                    &factor(ratio),
                    NONE,
                    NONE,
                    NONE,
                ],
            );
        }
    }
}

fn memory(page: &mut String, results: &Results, plan: &Plan) {
    let workload = format!(
        "Redis memory, {} permits taken by 256 callers in one window",
        thousands(plan.taken)
    );
    let redisson = results.memory.redisson;
    for (who, used) in [
        (Contender::ThisCrate, results.memory.this_crate),
        (Contender::Redisson, redisson),
    ] {
        line(
            page,
            &[
                &workload,
                &name(who),
                &bytes(used),
                &factor(used / redisson),
                NONE,
                NONE,
                NONE,
            ],
        );
    }
}

fn in_memory(page: &mut String, results: &Results) {
    for line_in_memory in &results.in_memory {
        let (traffic, threads) = (line_in_memory.traffic, line_in_memory.threads);
        let limiter = line_in_memory.limiter;
        let governor = results.nanos(traffic, threads, limiter.governor());
        line(
            page,
            &[
                &format!("in memory, {threads}, {traffic}"),
                &match limiter {
                    Limiter::ThisCrate | Limiter::ThisCrateKeyed => format!("**{limiter}**"),
                    other => other.to_string(),
                },
                &format!("{:.0} ns per decision", line_in_memory.nanos),
                &factor(line_in_memory.nanos / governor),
                NONE,
                NONE,
                NONE,
            ],
        );
    }
}

fn how(plan: &Plan, elapsed: Duration) -> String {
    let Plan {
        rounds,
        close_rounds,
        window,
        measured,
        waiting_window,
        in_memory,
        ..
    } = plan;
    let (taken, by_redisson) = (thousands(plan.taken), thousands(plan.taken_by_redisson));
    format!(
        "\n## How it was measured\n\n\
         - The clients take turns: {rounds} rounds ({close_rounds} for one caller and for many limiters) of {measured:?} each, after a \
         warm-up of one window. Each number is the median of the rounds. Before that, each API of Redisson ran for {jvm:?} to warm up \
         the JVM. The whole run took {elapsed:.0} s.\n\
         - A caller requests one permit, and the next as soon as it has the answer. A caller is a task in Rust, a thread with \
         Redisson's synchronous API, or a chain of `tryAcquireAsync`. All tasks of this crate share one client of \
         `RedissonClient::connect`, and all EVALSHA calls one connection. Redisson has its default connection pool.\n\
         - Each turn starts with an empty server. The limiter's window is {window:?}. It has more permits than are requested, or 100 \
         if most requests are denied.\n\
         - \"EVALSHA\" sends a script without the rest of its client, over a multiplexed connection of redis-rs. Redisson's \
         call is recorded with MONITOR and sent as Redisson sends it.\n\
         - \"In pipelines\" measures the scripts alone: they alternate in pipelines of {MANY} calls over one connection, for \
         {alone:?}, and the number is that of the median pipeline. The server is then the bottleneck. With single calls, \
         as in the other rows, a call costs the client about as much as the server, on the same two cores.\n\
         - With many limiters, each call uses a random one, after one call to each of them: the first call of a client to a limiter \
         costs more than later ones. Redisson looks up the limiter by name for each call.\n\
         - Client CPU is the CPU time of all threads of the client's process, divided by its decisions. For Redisson this is \
         the JVM, including garbage collection.\n\
         - 1,000 waiters request one permit each from a limiter with {RATE} per window of {waiting_window:?}, so that ten windows \
         serve them. Script calls are counted with `INFO commandstats`.\n\
         - Memory is `MEMORY USAGE` of the limiter's keys. Redisson took {by_redisson} permits; the result is scaled to {taken}.\n\
         - In memory, the time per decision is the elapsed time divided by the decisions of all threads, for {in_memory:?} per turn, \
         with 1,000,000 permits per 10 ms, or 100 per second if most requests are denied. The limiters differ in what they do: \
         KeyedRateLimiter, governor's keyed limiter and trypema look up a key for each decision, the others do not; trypema's shortest window is one second, in buckets of 10 ms here; governor \
         stores one number instead of the grants in a window.\n",
        alone = *measured * *rounds as u32,
        jvm = plan.jvm_warm_up,
        elapsed = elapsed.as_secs_f64(),
    )
}

/// This crate stands out.
fn name(contender: Contender) -> String {
    match contender {
        Contender::ThisCrate => format!("**{contender}**"),
        _ => contender.to_string(),
    }
}
