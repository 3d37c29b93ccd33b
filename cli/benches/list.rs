//! `rratelimiter list` on a server with many limiters: `cargo bench -p
//! redisson-rate-limiter-cli --bench list`, and `-- 1000000` for as many. How long it takes, the
//! most memory that it has, and the longest command of the server meanwhile, by its slow log; of
//! times the median of five rounds.

use std::env;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[path = "../../tests/support/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "each test binary has its own")]
mod servers;

use servers::Server;

const SIZES: [u64; 3] = [10, 1_000, 100_000];
const ROUNDS: usize = 5;

struct Measured {
    took: Duration,
    /// In KiB.
    memory: u64,
    /// The server's: its longest command, all of them, and their number.
    longest: Duration,
    busy: Duration,
    calls: u64,
}

fn main() {
    let sizes: Vec<u64> = env::args().filter_map(|it| it.parse().ok()).collect();
    let sizes = if sizes.is_empty() {
        SIZES.to_vec()
    } else {
        sizes
    };
    println!("| limiters | command | time | memory | longest command | server busy | calls |");
    println!("|--:|---|--:|--:|--:|--:|--:|");
    for size in sizes {
        let server = Server::start();
        let client = redis::Client::open(server.url()).unwrap();
        let mut redis = client.get_connection().unwrap();
        fill(&mut redis, size);
        for arguments in ["list", "list --sort use --top 10"] {
            let mut rounds: Vec<_> = (0..ROUNDS)
                .map(|_| measure(&server, &mut redis, arguments))
                .collect();
            rounds.sort_by_key(|it| it.took);
            let it = &rounds[ROUNDS / 2];
            let mut longest: Vec<_> = rounds.iter().map(|it| it.longest).collect();
            longest.sort();
            let longest = longest[ROUNDS / 2];
            let memory = rounds.iter().map(|it| it.memory).max().unwrap() as f64 / 1024.0;
            println!(
                "| {size} | `{arguments}` | {:.1?} | {memory:.1} MiB | {longest:.1?} | {:.1?} | {} |",
                it.took, it.busy, it.calls
            );
        }
    }
}

/// Limiters as Redisson leaves them, of which each has been granted a permit: three keys.
fn fill(redis: &mut redis::Connection, size: u64) {
    let now: (u64, u64) = redis::cmd("TIME").query(redis).unwrap();
    for first in (0..size).step_by(1_000) {
        let mut batch = redis::pipe();
        for number in first..size.min(first + 1_000) {
            let name = format!("limiter:{number}");
            let settings = [
                ("rate", "10"),
                ("interval", "3600000"),
                ("type", "0"),
                ("keepAliveTime", "0"),
            ];
            batch.hset_multiple(&name, &settings).ignore();
            batch.set(format!("{{{name}}}:value"), 9).ignore();
            let member = [&[16][..], &[7; 16], &1u32.to_le_bytes()].concat();
            batch
                .zadd(format!("{{{name}}}:permits"), member, now.0 * 1_000)
                .ignore();
        }
        let () = batch.query(redis).unwrap();
    }
}

fn measure(server: &Server, redis: &mut redis::Connection, arguments: &str) -> Measured {
    // All commands from 50 us on.
    for words in [
        &["CONFIG", "SET", "slowlog-log-slower-than", "50"][..],
        &["CONFIG", "SET", "slowlog-max-len", "100000"],
        &["CONFIG", "RESETSTAT"],
        &["SLOWLOG", "RESET"],
    ] {
        let () = redis::cmd(words[0]).arg(&words[1..]).query(redis).unwrap();
    }
    let start = Instant::now();
    let mut program = Command::new(env!("CARGO_BIN_EXE_rratelimiter"))
        .args(arguments.split(' '))
        .env("REDIS_URL", server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut memory = 0;
    let took = loop {
        if let Some(status) = program.try_wait().unwrap() {
            assert!(status.success(), "{arguments}: {status}");
            break start.elapsed();
        }
        memory = most_memory(program.id()).unwrap_or(memory);
        sleep(Duration::from_millis(1));
    };
    let longest = slow(redis).into_iter().max().unwrap_or(0);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(redis).unwrap();
    let of = |field: &str| -> u64 {
        let commands = ["cmdstat_scan:", "cmdstat_evalsha:", "cmdstat_eval:"];
        let lines = stats
            .lines()
            .filter(|line| commands.iter().any(|it| line.starts_with(it)));
        lines
            .filter_map(|line| {
                line.split([':', ','])
                    .find_map(|it| it.strip_prefix(field))?
                    .parse::<u64>()
                    .ok()
            })
            .sum()
    };
    Measured {
        took,
        memory,
        longest: Duration::from_micros(longest),
        busy: Duration::from_micros(of("usec=")),
        calls: of("calls="),
    }
}

/// The most that a process has had, in KiB.
fn most_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How long the commands in the slow log took that read limiters, in us.
fn slow(redis: &mut redis::Connection) -> Vec<u64> {
    let entries: Vec<Vec<redis::Value>> = redis::cmd("SLOWLOG")
        .arg("GET")
        .arg(-1)
        .query(redis)
        .unwrap();
    let micros = |entry: Vec<redis::Value>| {
        let command: Vec<String> = redis::from_redis_value(entry[3].clone()).ok()?;
        let is_of_list = ["SCAN", "EVALSHA", "EVAL"].contains(&&*command[0].to_uppercase());
        is_of_list.then(|| redis::from_redis_value(entry[2].clone()).unwrap())
    };
    entries.into_iter().filter_map(micros).collect()
}
