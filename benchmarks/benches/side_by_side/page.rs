//! The page: the goals, the table and what is behind it, as Markdown.

use std::{fmt::Write, time::Duration};

use benchmarks::{blocks, rounded, thousands};
use compat_tests::fairness::waiters::{RATE, Spacing, Waited};

use crate::{
    contender::Contender,
    goals::{Goal, Results},
    in_memory::Limiter,
    numbers::{bytes, factor, micros},
    plan::Plan,
    sample::Sampled,
    users,
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
         This page compares this crate with other rate limiters and with Redisson. First comes what a choice depends on: a limit for \
         each user, one hot limiter, the latency of one caller, the HTTP layer, decisions in memory, and what each limiter grants. \
         Then the rest. `cargo bench -p benchmarks --bench side_by_side` writes the page, and \
         `cargo +1.96 run --release --manifest-path benchmarks/peers/Cargo.toml` what concerns other limiters on Redis.\n\n\
         In all pictures orange is this crate, blue another one, and grey a script alone, sent without the rest of its client. A \
         pale one does not ask the server each time, and may exceed its limit. An arrow leaves the scale: the limiter answers from \
         what it has taken before.\n\n",
    );
    page += &blocks::empty("peers");
    in_memory_users(&mut page, results);
    page += &blocks::empty("grants");
    page += "\n## Other workloads on Redis\n\n";
    page += &blocks::empty("other peers");
    page += "\n## Beside Redisson\n\n![Decisions per second][benchmarks.svg]\n\n\
         | goal | met | measured | where it is missed |\n|---|---|---|---|\n";
    for goal in results.goals() {
        goal_line(&mut page, &goal);
    }
    page += "\nThe ratio compares a result with that of Redisson's faster API; for scripts alone, with Redisson's script; for waiters and \
        memory, with Redisson's threads; in memory, with governor: a limiter that looks up a key with governor's keyed one, the \
        others with governor's limiter without keys.\n\n\
        | workload | client | result | ± | ratio | p50 | p99 | client CPU per decision | server CPU |\n\
        |---|---|--:|--:|--:|--:|--:|--:|--:|\n";
    for sampled in &results.sampled {
        over_redis(&mut page, sampled);
    }
    scripts_alone(&mut page, results);
    waiting(&mut page, results);
    memory(&mut page, results, plan);
    in_memory(&mut page, results);

    page += "\n## Machine\n\n| | |\n|---|---|\n";
    for (what, which) in machine {
        line(&mut page, &[what, which]);
    }
    page += &how(plan, elapsed);
    page += "\n[benchmarks.svg]: benchmarks.svg\n[benchmarks-memory.svg]: benchmarks-memory.svg\n";
    page
}

/// The blocks that `benchmarks/peers` writes.
const BLOCKS: [&str; 3] = ["peers", "grants", "other peers"];

/// The page, with what an earlier one has of the other limiters on Redis.
pub fn with_peers(page: &str, earlier: &str) -> String {
    BLOCKS.iter().fold(page.to_owned(), |page, name| {
        let text = blocks::text(earlier, name).unwrap_or_default();
        blocks::with_text(&page, name, text).expect("each block is in the page")
    })
}

fn goal_line(page: &mut String, goal: &Goal) {
    let (met, why) = match goal.is_met {
        true => ("yes", ""),
        false => ("**no**", &*goal.why),
    };
    line(page, &[&goal.text, met, &goal.measured, why]);
}

fn in_memory_users(page: &mut String, results: &Results) {
    *page += "\n## In memory\n\nOne decision for each of 10,000 users in turn, without a server.\n\n\
        ![In memory][benchmarks-memory.svg]\n\n| limiter | threads | ns | ± | ratio |\n|---|--:|--:|--:|--:|\n";
    for it in &results.users {
        let governor = users::nanos(&results.users, it.threads, users::Contender::Governor);
        line(
            page,
            &[
                &match it.contender.is_ours() {
                    true => format!("**{}**", it.contender.name()),
                    false => it.contender.name().to_owned(),
                },
                &it.threads.to_string(),
                &format!("{:.0}", it.nanos),
                &spread(it.spread),
                &factor(it.nanos / governor),
            ],
        );
    }
    *page += "\n| goal | met | measured | where it is missed |\n|---|---|---|---|\n";
    for goal in results.goals_of_users() {
        goal_line(page, &goal);
    }
}

fn spread(spread: f64) -> String {
    format!("{:.0} %", spread * 100.0)
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
                &spread(summary.spread),
                &factor(ratio),
                &micros(summary.p50),
                &micros(summary.p99),
                &micros(summary.cpu),
                &micros(summary.server_cpu),
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
                    NONE,
                    &factor(throughput / scripts.redissons),
                    NONE,
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
                    NONE,
                    &factor(ratio),
                    NONE,
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
                NONE,
                &factor(used / redisson),
                NONE,
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
                NONE,
                &factor(line_in_memory.nanos / governor),
                NONE,
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
         the JVM, including garbage collection. Server CPU is that of the server's process. ± is half of the range of the rounds.\n\
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
