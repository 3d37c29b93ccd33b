//! What Prometheus scrapes, and that the table in the guide and the dashboard have it.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redisson_rate_limiter::{
    Clock, FixedWindow, MemoryStore, PermitsInUse, Rate, RedissonClient, RedissonClientBuilder,
    Rule,
};
use redisson_rate_limiter_metrics::Metrics;

use support::Server;

const HOUR: Duration = Duration::from_secs(3600);

/// A scrape: each metric with its labels, sorted, and its value.
#[derive(Debug)]
struct Scrape(BTreeMap<(String, String), f64>);

impl Scrape {
    fn of(prometheus: &PrometheusHandle) -> Self {
        let mut parser = Command::new("python3")
            .args(["-c", PARSER])
            .env("PYTHONPATH", WHEEL)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut input = parser.stdin.take().unwrap();
        input.write_all(prometheus.render().as_bytes()).unwrap();
        drop(input);
        let output = parser.wait_with_output().unwrap();
        assert!(output.status.success(), "has scripts/tools been run?");
        type Sample = (String, BTreeMap<String, String>, f64);
        let samples: Vec<Sample> = serde_json::from_slice(&output.stdout).unwrap();
        let samples = samples.into_iter().map(|(name, labels, value)| {
            let labels: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            ((name, labels.join(", ")), value)
        });
        Self(samples.collect())
    }

    fn value(&self, metric: &str, labels: &str) -> Option<f64> {
        let found = self.0.get(&(metric.to_owned(), labels.to_owned()));
        found.copied()
    }

    /// The metrics as the guide lists them: their names and the names of their labels. A histogram has three names here.
    fn listed(&self) -> BTreeSet<String> {
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

/// Parses a scrape by the Prometheus project's own client, which ends the names of counters in `_total`.
const PARSER: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
samples = [it for family in families for it in family.samples]
print(json.dumps([[it.name.removesuffix('_total'), it.labels, it.value] for it in samples]))
";

/// Where `scripts/tools` puts it.
const WHEEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/prometheus-client/prometheus_client-0.26.0-py3-none-any.whl"
);

fn noted_by(metrics: Metrics) -> RedissonClientBuilder {
    RedissonClient::builder().on_event(move |event| metrics.note(event))
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_limiter_result_source_and_mode() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let metrics = Metrics::new().near_limit(0.8);
    let client = noted_by(metrics).in_memory(&MemoryStore::new());

    let logins = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let logins = logins.with_prefix("login:");
    for _ in 0..7 {
        let _ = logins.check("alice@example.com", 1).await.unwrap();
    }
    let strict = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let rule = Rule::new(
        strict.with_name("strict"),
        |_: &()| Some("all".to_owned()),
        |_, _| (),
    );
    let rules = client.rules([rule.in_shadow()]).unwrap();
    for _ in 0..2 {
        let _ = rules.check(&()).await.unwrap();
    }
    let orders = client.rate_limiter("orders");
    orders.try_acquire(1).await.unwrap_err();
    orders.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    orders.acquire(1).await.unwrap();
    let waiting = tokio::spawn(async move { orders.acquire(1).await });
    tokio::task::yield_now().await;
    metrics.sample(&client);
    let scrape = Scrape::of(&recorder.handle());
    assert_eq!(scrape.value("rate_limiter_waiters", ""), Some(1.0));
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    metrics.sample(&client);

    let scrape = Scrape::of(&recorder.handle());
    for (labels, expected) in [
        (
            "limiter=login:, mode=enforced, result=granted, source=store",
            5.0,
        ),
        (
            "limiter=login:, mode=enforced, result=denied, source=store",
            2.0,
        ),
        (
            "limiter=strict, mode=shadow, result=granted, source=store",
            1.0,
        ),
        (
            "limiter=strict, mode=shadow, result=denied, source=store",
            1.0,
        ),
        (
            "limiter=orders, mode=enforced, result=not_initialized, source=none",
            1.0,
        ),
        (
            "limiter=orders, mode=enforced, result=granted, source=store",
            1.0,
        ),
        (
            "limiter=orders, mode=enforced, result=cancelled, source=none",
            1.0,
        ),
    ] {
        let value = scrape.value("rate_limiter_requests", labels);
        assert_eq!(value, Some(expected), "{labels}");
    }
    let near = |labels| scrape.value("rate_limiter_near_limit", labels);
    assert_eq!(near("limiter=login:, mode=enforced"), Some(1.0));
    assert_eq!(near("limiter=strict, mode=shadow"), Some(1.0));
    let took = scrape.value(
        "rate_limiter_request_duration_count",
        "limiter=orders, result=granted",
    );
    assert_eq!(took, Some(1.0));
    assert_eq!(scrape.value("rate_limiter_waiters", ""), Some(0.0));
    let text = recorder.handle().render();
    assert!(!text.contains("alice"), "{text}");
}

/// What a client of Redis tells, and what is listed in the guide and shown by the dashboard.
#[tokio::test]
async fn the_guide_and_the_dashboard_have_each_metric_that_is_scraped() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let metrics = Metrics::new().near_limit(0.5);
    metrics.describe();
    let server = Server::start();
    let builder = noted_by(metrics).response_timeout(Duration::from_secs(1));
    let client = builder.connect(&server.url()).await.unwrap();
    let ahead = Clock::from_fn(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        i64::try_from(now.unwrap().as_millis()).unwrap() + 60_000
    });
    let peer = RedissonClient::builder().clock(ahead);
    let peer = peer.connect(&server.url()).await.unwrap();
    peer.rate_limiter("orders")
        .set_rate(Rate::overall(9, HOUR))
        .await
        .unwrap();
    assert!(peer.rate_limiter("orders").try_acquire(1).await.unwrap());
    let orders = client.rate_limiter("orders");
    // A new rate makes the client audit the grants.
    let rate = Rate::overall(10, HOUR);
    orders
        .set_rate_with(rate, PermitsInUse::Keep)
        .await
        .unwrap();
    assert!(orders.check(5).await.unwrap().is_granted());
    let address = format!("127.0.0.1:{}", server.port());
    drop(server);
    while client.health().is_healthy() {
        orders.try_acquire(1).await.unwrap_err();
    }
    metrics.sample(&client);

    let scrape = Scrape::of(&recorder.handle());
    let of_server = format!("server={address}");
    assert_eq!(
        scrape.value("rate_limiter_breaker_state", &of_server),
        Some(2.0)
    );
    assert_eq!(
        scrape.value("rate_limiter_connections", &of_server),
        Some(1.0)
    );
    assert_eq!(
        scrape.value("rate_limiter_connections_lost", &of_server),
        Some(1.0)
    );
    let answered = "answered=true, script=acquire";
    assert_eq!(scrape.value("rate_limiter_calls", answered), Some(1.0));

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(root.join("../docs/operation.md")).unwrap();
    let (metrics_section, _spans) = guide.split_once("\n## Spans").unwrap();
    let rows = metrics_section
        .lines()
        .filter(|line| line.starts_with("| `rate_limiter."));
    let rows = rows.map(|row| {
        let mut columns = row.trim_matches('|').split('|').map(str::trim);
        let (name, _kind) = (columns.next().unwrap(), columns.next().unwrap());
        format!("{} {}", name.replace('.', "_"), columns.next().unwrap())
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), scrape.listed());

    let dashboard = fs::read_to_string(root.join("dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let shown = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown = shown.map(|target| target["expr"].as_str().unwrap());
    let shown: Vec<_> = shown.collect();
    let names: BTreeSet<_> = { scrape.0.keys() }.map(|(name, _)| &**name).collect();
    for expression in &shown {
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("rate_limiter_")) {
            assert!(names.contains(word), "{word} of {expression}");
        }
    }
    for listed in scrape.listed() {
        let name = listed.split('`').nth(1).unwrap();
        let is_shown = shown.iter().any(|expression| expression.contains(name));
        assert!(is_shown, "{name} is on no panel");
    }
}
