//! What Prometheus scrapes, read by the parser of its project.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A scrape: each metric with its labels, sorted, and its value.
#[derive(Debug)]
pub struct Scrape(BTreeMap<(String, String), f64>);

impl Scrape {
    /// # Panics
    /// If the parser refuses the text.
    pub fn of(text: &str) -> Self {
        let mut parser = Command::new("python3")
            .args(["-c", PARSER])
            .env("PYTHONPATH", wheel())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut input = parser.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = parser.wait_with_output().unwrap();
        assert!(output.status.success(), "it is refused: {text}");
        type Sample = (String, BTreeMap<String, String>, f64);
        let samples: Vec<Sample> = serde_json::from_slice(&output.stdout).unwrap();
        let samples = samples.into_iter().map(|(name, labels, value)| {
            let labels: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            ((name, labels.join(", ")), value)
        });
        Self(samples.collect())
    }

    pub fn value(&self, metric: &str, labels: &str) -> Option<f64> {
        let found = self.0.get(&(metric.to_owned(), labels.to_owned()));
        found.copied()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|(name, _)| &**name)
    }

    /// The metrics as the guide lists them: their names and the names of their labels. A histogram
    /// has three names here.
    pub fn listed(&self) -> BTreeSet<String> {
        let listed = self.0.keys().map(|(name, labels)| {
            let name = name.trim_end_matches("_sum").trim_end_matches("_count");
            let labels = labels.split(", ").map(|it| it.split('=').next().unwrap());
            let labels = labels.filter(|it| !["", "quantile"].contains(it));
            let labels: Vec<_> = labels.map(|it| format!("`{it}`")).collect();
            format!("`{name}` {}", labels.join(", "))
        });
        listed.collect()
    }
}

/// The Prometheus project's own client, which ends the names of counters in `_total` itself: they
/// have to end so before.
const PARSER: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
text = sys.stdin.read()
families = list(text_string_to_metric_families(text))
for family in families:
    if family.type == 'counter':
        assert f'# TYPE {family.name}_total counter' in text, family.name
samples = [it for family in families for it in family.samples]
print(json.dumps([[it.name, it.labels, it.value] for it in samples]))
";

/// Where `scripts/tools` puts it.
fn wheel() -> PathBuf {
    let name = "target/prometheus-client/prometheus_client-0.26.0-py3-none-any.whl";
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.find_map(|it| Some(it.join(name)).filter(|it| it.exists()));
    found.unwrap_or_else(|| panic!("{name} is missing: scripts/tools downloads it"))
}
