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
        "# Side by side\n\n\
         This crate, the real Redisson and others, in one run on one server. To run it again, and write this page:\n\n\
         ```sh\ncargo bench -p benchmarks --bench side_by_side\n```\n\n\
         ![Decisions a second](benchmarks.svg)\n\n## Goals\n\n| goal | met | measured |\n|---|---|---|\n",
    );
    for goal in results.goals() {
        let met = if goal.is_met { "yes" } else { "**no**" };
        line(&mut page, &[&goal.text, met, &goal.measured]);
    }
    page += "\n## The table\n\n\
        The ratio is that of the results: over Redis to Redisson with its sync API, of the scripts to Redisson's, in memory to \
        governor.\n\n\
        | workload | who | result | ratio | p50 | p99 | client CPU a decision |\n\
        |---|---|--:|--:|--:|--:|--:|\n";
    for sampled in &results.sampled {
        over_redis(&mut page, sampled);
    }
    scripts_alone(&mut page, results);
    waiting(&mut page, results);
    memory(&mut page, results, plan);
    in_memory(&mut page, results);

    page += "\n## The machine\n\n| | |\n|---|---|\n";
    for (what, which) in machine {
        line(&mut page, &[what, which]);
    }
    page += &how(plan, elapsed);
    page
}

/// Not measured, or it would say nothing new.
const NONE: &str = "";

fn line(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn over_redis(page: &mut String, sampled: &Sampled) {
    for summary in &sampled.summaries {
        let ratio = sampled.ratio_of_throughput(summary.contender, Contender::Redisson);
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
        let governor = results.nanos(traffic, threads, Limiter::Governor);
        line(
            page,
            &[
                &format!("in memory, {threads}, {traffic}"),
                &match line_in_memory.limiter {
                    Limiter::ThisCrate => name(Contender::ThisCrate),
                    other => other.to_string(),
                },
                &format!("{:.0} ns a decision", line_in_memory.nanos),
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
         - Contenders take turns: {rounds} rounds ({close_rounds} for a lone caller and for many limiters), {measured:?} each, after a warm-up of one window. Each number is the \
         median of the rounds. The JVM ran for {jvm:?} with each API before. The whole run took {elapsed:.0} s.\n\
         - A caller asks for one permit, and again as soon as it has its answer: a task in Rust, a thread of Redisson's \
         sync API, a chain of `tryAcquireAsync`. All tasks of this crate and all bare calls share one connection; \
         Redisson has its default pool.\n\
         - Each turn begins on an empty server. The limiter's window is {window:?}, with more permits than anybody asks \
         for, or, mostly denied, 100.\n\
         - Bare EVALSHA sends a client's script without the client, on the connection type of this crate. Redisson's \
         call is taken down with MONITOR as Redisson sends it.\n\
         - The scripts alone take turns pipeline by pipeline, {MANY} calls each, over one connection, {alone:?} in all; \
         each number is that of the median pipeline. So the server is what limits them. One by one, as above, a call costs \
         the client about as much as the server, on the same two cores.\n\
         - Of many limiters each call takes one at random, after a call to each; a client's first call to a limiter \
         costs more than the next. Redisson gets its limiter by name for each call.\n\
         - Client CPU is what the client's process used, all threads, over the decisions made. Of Redisson that is the \
         JVM, garbage collection included.\n\
         - 1,000 waiters ask for one permit each of {RATE} a window of {waiting_window:?}, so ten windows serve them; \
         script calls by `INFO commandstats`.\n\
         - Memory is `MEMORY USAGE` of the limiter's keys. Redisson took {by_redisson} permits, whose bytes are scaled \
         to {taken}.\n\
         - In memory a decision's time is the time over the decisions of all threads, {in_memory:?} a turn, 1,000,000 \
         permits in 10 ms, or, mostly denied, 100 a second. leaky-bucket has no names, so it looks up none. trypema's \
         shortest window is a second, its buckets are 10 ms here. governor keeps no grants: it answers from one number, \
         not from a window.\n",
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
