//! What the numbers were measured on.

use std::{fs, process::Command, thread};

use crate::{redisson::VERSION, setup::Setup};

/// Each line a thing and what it is.
pub async fn describe(setup: &mut Setup) -> Vec<(&'static str, String)> {
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = field(&cpuinfo, "model name")
        .unwrap_or("unknown")
        .to_owned();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo");
    let kilobytes = field(&memory, "MemTotal").and_then(|total| total.split(' ').next());
    let gigabytes = kilobytes
        .and_then(|kb| kb.parse::<f64>().ok())
        .unwrap_or_default()
        / 1e6;
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let server: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut setup.redis)
        .await
        .expect("the server's version");
    let redis = field(&server, "redis_version")
        .unwrap_or("unknown")
        .to_owned();
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    vec![
        (
            "CPU",
            format!("{cpu}, {cores} cores, shared by server and clients"),
        ),
        ("Memory", format!("{gigabytes:.0} GB")),
        ("Kernel", format!("Linux {kernel}")),
        ("Redis", format!("{redis}, over loopback")),
        ("Redisson", format!("{VERSION}, default settings")),
        ("JVM", format!("{}, default settings", setup.java.jvm)),
        ("Rust", rustc.unwrap_or_default()),
    ]
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// What follows the first `name` and its colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}
