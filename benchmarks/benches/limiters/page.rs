//! The table, as it stands in the page between two comments.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use benchmarks::{rounded, thousands};

use crate::measure::{CALLERS, Measured, ROUND, ROUNDS, TARGETS};
use crate::subject::{SCARCE, Subject};
use compat_tests::Server;

const BEGIN: &str = "<!-- begin of what `cargo bench -p benchmarks --bench limiters` writes -->\n";
const END: &str = "<!-- end of what `cargo bench -p benchmarks --bench limiters` writes -->";

pub fn table(rows: &[(Subject, Measured)], machine: &str) -> String {
    let mut table = format!(
        "| limiter | server, granted | server, denied | 1 caller | {CALLERS} callers | not combined | in memory | bytes after 1 | \
         after {SCARCE} |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for (subject, measured) in rows {
        let _ = writeln!(
            table,
            "| {} | {:.0} µs | {:.0} µs | {}/s | {}/s | {}/s | {} ns | {} | {} |",
            subject.name,
            measured.granted_micros,
            measured.denied_micros,
            thousands(rounded(measured.alone)),
            thousands(rounded(measured.combined)),
            thousands(rounded(measured.apart)),
            thousands(rounded(measured.in_memory_nanos)),
            thousands(measured.bytes_after_one),
            thousands(measured.bytes_after_many),
        );
    }
    let _ = write!(
        table,
        "\nServer: the time of the script, for {TARGETS} targets with {SCARCE} granted and {SCARCE} denied requests each. \
         Callers: decisions per second, all granted, by callers that repeat requests for one key; the median of {ROUNDS} \
         rounds of {} ms. In memory: the time per decision of 1 caller. {machine}\n",
        ROUND.as_millis(),
    );
    table
}

/// What it was measured on.
pub async fn machine(server: &Server) -> String {
    let mut redis = server.connection().await;
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut redis)
        .await
        .expect("the server's version");
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    format!(
        "Redis {} over loopback on {}, {} cores shared by server and callers.",
        field(&info, "redis_version"),
        field(&cpu_info, "model name"),
        available_parallelism().map_or(0, usize::from),
    )
}

/// What follows the first `name` and its colon.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| key.trim() == name);
    found.map_or("an unknown one", |(_, value)| value.trim())
}

/// Puts the table into the page.
pub fn write(table: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/which-limiter.md");
    let page = fs::read_to_string(&file).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (_, after) = rest.split_once(END).expect("where the table ends");
    fs::write(&file, format!("{before}{BEGIN}{table}{END}{after}")).expect("the page, written");
}
