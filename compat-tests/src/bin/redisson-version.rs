//! Prints what a version of Redisson does to an RRateLimiter, beside the version before.
//!
//! ```text
//! cargo run -p compat-tests --bin redisson-version -- VERSION [BEFORE] [--steps N] [--seed N]
//! ```
//!
//! Any version that Maven can fetch is played; without BEFORE it is compared with the last one
//! before it that the tests run. Both take the same random steps beside this crate: see
//! [`compat_tests::differential`]. Three tables say what has changed: the methods of `RRateLimiter`,
//! the keys after a few calls, raw, and the answers and keys of each step. Where a step is as
//! neither this crate nor docs/redisson.md says, its sequence follows, and the exit code is 1.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::process::{Command, ExitCode};

use compat_tests::differential::{Counted, Report, play};
use compat_tests::dump::{self, Dump};
use compat_tests::redisson::{self, Rate, Version};
use compat_tests::{Server, class_path};

const USAGE: &str = "usage: redisson-version VERSION [BEFORE] [--steps N] [--seed N]";

struct Asked {
    version: Version,
    before: Version,
    steps: usize,
    seed: u64,
}

fn asked() -> Result<Asked, String> {
    let (mut versions, mut numbers) = (Vec::<Version>::new(), BTreeMap::new());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--steps" || argument == "--seed" {
            let number = arguments.next().and_then(|it| it.parse::<u64>().ok());
            let number = number.ok_or(format!("{argument} needs a number"))?;
            numbers.insert(argument, number);
        } else {
            versions.push(argument.parse()?);
        }
    }
    let (version, before) = match versions[..] {
        [version] => {
            let before = version.before();
            let none = || format!("there is none before {version}: name one");
            (version, before.ok_or_else(none)?)
        }
        [version, before] => (version, before),
        _ => return Err(USAGE.to_owned()),
    };
    if version == before || version < Version::V3_17_0 || before < Version::V3_17_0 {
        return Err("they must be two versions, 3.17.0 or later".to_owned());
    }
    let random = RandomState::new().hash_one(0);
    Ok(Asked {
        version,
        before,
        steps: numbers.get("--steps").map_or(6_000, |it| *it as usize),
        seed: numbers.get("--seed").copied().unwrap_or(random),
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    let asked = match asked() {
        Ok(asked) => asked,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let Asked {
        version, before, ..
    } = asked;
    println!("Redisson {version} beside {before}\n");
    print_methods(&methods(before), &methods(version));
    print_keys(&asked, &keys(before).await, &keys(version).await);
    let as_of = before.min(version);
    let mut reports = Vec::new();
    for played in [before, version] {
        reports.push(play(played, as_of, asked.seed, asked.steps).await);
    }
    print_steps(&asked, &reports[0], &reports[1]);
    for unexpected in &reports[1].unexpected {
        println!("\n{unexpected}");
    }
    ExitCode::from(u8::from(!reports[1].unexpected.is_empty()))
}

/// What `javap` says of the interface.
fn methods(version: Version) -> BTreeSet<String> {
    let class_path = class_path(version);
    let jar = class_path.split(':').next_back().unwrap_or_default();
    let javap = match env::var_os("JAVA_HOME") {
        Some(home) => std::path::Path::new(&home).join("bin/javap"),
        None => "javap".into(),
    };
    let output = Command::new(javap)
        .args(["-cp", jar, "org.redisson.api.RRateLimiter"])
        .output()
        .expect("javap of a JDK of at least 17");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let lines = text.lines().filter(|it| it.trim_end().ends_with(");"));
    lines.map(|it| it.trim().to_owned()).collect()
}

fn print_methods(before: &BTreeSet<String>, now: &BTreeSet<String>) {
    println!(
        "methods of RRateLimiter: {}, {} before",
        now.len(),
        before.len()
    );
    now.difference(before).for_each(|it| println!("  + {it}"));
    before.difference(now).for_each(|it| println!("  - {it}"));
}

/// The keys after each of a few calls, raw.
async fn keys(version: Version) -> Vec<(&'static str, String)> {
    let server = Server::start();
    let [java] = redisson::clients(version, &server.url()).await;
    let limiter = java.limiter("orders");
    let mut seen = Vec::new();
    for call in [
        "trySetRate(OVERALL, 5, 1 h)",
        "tryAcquire(2)",
        "tryAcquire(9)",
        "tryAcquire(3)",
    ] {
        let said = match call {
            "tryAcquire(2)" => limiter.try_acquire(2).await,
            "tryAcquire(3)" => limiter.try_acquire(3).await,
            "tryAcquire(9)" => limiter.try_acquire(9).await,
            _ => limiter.try_set_rate(Rate::overall(5, 3_600_000)).await,
        };
        let said = match said {
            Ok(done) => done.to_string(),
            Err(error) => error.class,
        };
        let dump = dump::read(&mut server.connection().await, "orders", &[&java.id]).await;
        let Dump {
            config, overall, ..
        } = dump.normal().without_scores();
        let keys = format!(
            "{said}\n      orders            {config:?}\n      {{orders}}:value    {:?}\n      {{orders}}:permits  {:?}",
            overall.value, overall.permits
        );
        seen.push((call, keys));
    }
    seen
}

fn print_keys(asked: &Asked, before: &[(&str, String)], now: &[(&str, String)]) {
    println!("\nkeys after");
    for ((call, before), (_, now)) in before.iter().zip(now) {
        println!("  {call}: {now}");
        if before != now {
            println!("    {}: {before}", asked.before);
        }
    }
}

fn print_steps(asked: &Asked, before: &Report, now: &Report) {
    println!("\n{} steps, seed {}", asked.steps, asked.seed);
    let (version, earlier) = (asked.version.to_string(), asked.before.to_string());
    println!("  {:<18} {earlier:<45} {version}", "");
    let names: BTreeSet<&String> = before.steps.keys().chain(now.steps.keys()).collect();
    for name in names {
        let [one, other] = [before, now].map(|it| it.steps.get(name));
        let mark = if kinds(one) == kinds(other) { ' ' } else { '*' };
        println!("{mark} {name:<18} {:<45} {}", said(one), said(other));
    }
}

/// In which ways it differs: how often is a matter of chance, because the two go on differently.
fn kinds(counted: Option<&Counted>) -> Option<(Vec<String>, bool)> {
    let counted = counted?;
    let known = counted.known.keys().map(|it| format!("{it:?}"));
    Some((known.collect(), counted.unexpected > 0))
}

fn said(counted: Option<&Counted>) -> String {
    let Some(counted) = counted else {
        return "never taken".to_owned();
    };
    let known = counted
        .known
        .iter()
        .map(|(it, times)| format!("{times} {it:?}"));
    let other = (counted.unexpected > 0).then(|| format!("{} OTHER", counted.unexpected));
    let differences: Vec<_> = known.chain(other).collect();
    match differences.is_empty() {
        true => format!("{} as this crate", counted.taken),
        false => format!("{}: {}", counted.taken, differences.join(", ")),
    }
}
