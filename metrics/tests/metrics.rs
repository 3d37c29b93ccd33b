//! What Prometheus scrapes, and that the table in the guide and the dashboard have it.

mod scrape;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use redisson_rate_limiter::{
    BreakerState, Clock, Event, FailurePolicy, FixedWindow, LeakyBucket, LimiterOptions,
    MemoryStore, PermitsInUse, Rate, RedissonClient, RedissonClientBuilder, Rule,
};
use redisson_rate_limiter_metrics::Metrics;

use scrape::Scrape;
use support::Server;
use tokio::sync::mpsc;

const HOUR: Duration = Duration::from_secs(3600);

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
    let rule = Rule::new(strict.with_name("strict"));
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
    let scrape = Scrape::of(&recorder.handle().render());
    assert_eq!(scrape.value("rate_limiter_waiters", ""), Some(1.0));
    tokio::time::advance(Duration::from_secs(5)).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    metrics.sample(&client);

    let scrape = Scrape::of(&recorder.handle().render());
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
        let value = scrape.value("rate_limiter_requests_total", labels);
        assert_eq!(value, Some(expected), "{labels}");
    }
    let near = |labels| scrape.value("rate_limiter_near_limit_total", labels);
    assert_eq!(near("limiter=login:, mode=enforced"), Some(1.0));
    assert_eq!(near("limiter=strict, mode=shadow"), Some(1.0));
    for (result, seconds) in [("granted", 0.0), ("cancelled", 5.0)] {
        let labels = format!("limiter=orders, result={result}");
        for metric in ["request_duration_seconds", "request_queue_duration_seconds"] {
            let value = |of: &str| scrape.value(&format!("rate_limiter_{metric}_{of}"), &labels);
            assert_eq!(value("count"), Some(1.0), "{metric}, {result}");
            assert_eq!(value("sum"), Some(seconds), "{metric}, {result}");
        }
    }
    assert_eq!(scrape.value("rate_limiter_waiters", ""), Some(0.0));
    let text = recorder.handle().render();
    assert!(!text.contains("alice"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_turn_is_part_of_a_request_and_not_of_its_queue() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let client = noted_by(Metrics::new()).in_memory(&MemoryStore::new());
    let period = Duration::from_secs(3);
    let calls = client.policy_limiter(LeakyBucket::new(1, period)).unwrap();
    let calls = calls.with_name("calls");
    for _ in 0..3 {
        assert!(calls.check("api", 1).await.unwrap().is_granted());
    }
    let scrape = Scrape::of(&recorder.handle().render());
    let value = |of: &str| {
        let metric = format!("rate_limiter_request_{of}");
        scrape.value(&metric, "limiter=calls, result=granted")
    };
    assert_eq!(value("duration_seconds_count"), Some(3.0));
    assert_eq!(value("queue_duration_seconds_count"), Some(3.0));
    let waited = value("duration_seconds_sum").unwrap();
    assert!(waited >= period.as_secs_f64(), "{waited}");
    assert_eq!(value("queue_duration_seconds_sum"), Some(0.0));
}

#[tokio::test]
async fn of_a_joint_decision_the_limiters_count_that_decided_it() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let client = noted_by(Metrics::new().near_limit(0.5)).in_memory(&MemoryStore::new());
    let window = |limit, name: &str| {
        let limiter = client
            .policy_limiter(FixedWindow::new(limit, HOUR))
            .unwrap();
        limiter.with_name(name)
    };
    let (narrow, wide) = (window(2, "narrow"), window(100, "wide"));
    for _ in 0..5 {
        let charges = [
            narrow.charge("narrow", 1).unwrap(),
            wide.charge("wide", 1).unwrap(),
        ];
        let _ = client.check_all(charges).await.unwrap();
    }
    let scrape = Scrape::of(&recorder.handle().render());
    let counted = |limiter: &str, result: &str| {
        let labels = format!("limiter={limiter}, mode=enforced, result={result}, source=store");
        scrape.value("rate_limiter_requests_total", &labels)
    };
    assert_eq!(counted("narrow", "granted"), Some(2.0));
    assert_eq!(counted("wide", "granted"), Some(2.0));
    assert_eq!(counted("narrow", "denied"), Some(3.0));
    assert_eq!(counted("wide", "denied"), None);
    let near = |limiter: &str| {
        let labels = format!("limiter={limiter}, mode=enforced");
        scrape.value("rate_limiter_near_limit_total", &labels)
    };
    assert_eq!((near("narrow"), near("wide")), (Some(1.0), None));
}

#[tokio::test]
async fn the_states_of_a_breaker_are_numbers_and_each_connection_counts() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (metrics, port) = (Metrics::new(), support::ports::reserve());
    let (labels, handle) = (format!("server=127.0.0.1:{port}"), recorder.handle());
    let (change, mut changes) = mpsc::unbounded_channel();
    let of_server = labels.clone();
    let builder = RedissonClient::builder().on_event(move |event| {
        metrics.note(event);
        if let Event::BreakerChanged { state, .. } = *event {
            let scrape = Scrape::of(&handle.render());
            let shown = scrape.value("rate_limiter_breaker_state", &of_server);
            let _ = change.send((state, shown));
        }
    });
    let server = Server::start_at(port, &[]);
    let client = builder.connect(&server.url()).await.unwrap();
    let sampled = || {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || metrics.sample(&client));
        Scrape::of(&recorder.handle().render()).value("rate_limiter_breaker_state", &labels)
    };
    assert_eq!(sampled(), Some(0.0));
    drop(server);
    let mut changed = async || {
        let next = tokio::time::timeout(Duration::from_secs(60), changes.recv());
        next.await.expect("a change").unwrap()
    };
    assert_eq!(changed().await, (BreakerState::Open, Some(2.0)));
    assert_eq!(sampled(), Some(2.0));
    let _server = Server::start_at(port, &[]);
    // Before there is a connection, calls are not sent.
    let half_open = (BreakerState::HalfOpen, Some(1.0));
    while changed().await != half_open {}
    assert_eq!(sampled(), Some(1.0));
    client.rate_limiter("orders").exists().await.unwrap();
    assert_eq!(changed().await, (BreakerState::Closed, Some(0.0)));
    assert_eq!(sampled(), Some(0.0));

    let scrape = Scrape::of(&recorder.handle().render());
    let value = |metric| scrape.value(metric, &labels);
    assert_eq!(value("rate_limiter_connections_total"), Some(2.0));
    assert_eq!(value("rate_limiter_connections_lost_total"), Some(1.0));
}

#[tokio::test]
async fn what_a_failure_policy_grants_brings_no_key_near_its_limit() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Allow);
    let client = noted_by(Metrics::new().near_limit(0.8))
        .default_options(options)
        .require_server(false)
        .connect("redis://127.0.0.1:1") // nobody listens there
        .await
        .unwrap();
    let logins = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let logins = logins.with_name("logins");
    for _ in 0..3 {
        assert!(logins.check("alice", 1).await.unwrap().is_granted());
    }
    let scrape = Scrape::of(&recorder.handle().render());
    let labels = "limiter=logins, mode=enforced, result=granted, source=failure_policy";
    assert_eq!(
        scrape.value("rate_limiter_requests_total", labels),
        Some(3.0)
    );
    let near = scrape.value(
        "rate_limiter_near_limit_total",
        "limiter=logins, mode=enforced",
    );
    assert_eq!(near, None);
}

#[tokio::test]
async fn a_server_that_is_used_no_more_is_not_shown_as_down() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let metrics = Metrics::new();
    let (change, mut changes) = mpsc::unbounded_channel();
    let builder = RedissonClient::builder().on_event(move |event| {
        metrics.note(event);
        if let Event::BreakerChanged { state, .. } = *event {
            let _ = change.send(state);
        }
    });
    let server = Server::start();
    let labels = format!("server=127.0.0.1:{}", server.port());
    let client = builder.connect(&server.url()).await.unwrap();
    drop(server);
    assert_eq!(changes.recv().await, Some(BreakerState::Open));
    drop(client);
    // Until the handler is gone too.
    while changes.recv().await.is_some() {}
    let scrape = Scrape::of(&recorder.handle().render());
    assert_eq!(
        scrape.value("rate_limiter_breaker_state", &labels),
        Some(0.0)
    );
}

/// The calls of one script, as the events tell them.
#[derive(Debug, Default)]
struct Told {
    answered: u32,
    unanswered: u32,
    requests: u32,
    retries: u32,
    took: f64,
}

#[tokio::test]
async fn calls_are_counted_with_their_requests_retries_and_durations() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (metrics, told) = (Metrics::new(), Arc::new(Mutex::new(BTreeMap::new())));
    let telling = Arc::clone(&told);
    let (lost, mut losses) = mpsc::unbounded_channel();
    let builder = RedissonClient::builder().on_event(move |event| {
        metrics.note(event);
        if let Event::Call {
            script,
            requests,
            attempt,
            is_answered,
            took,
            ..
        } = *event
        {
            let mut told = telling.lock().unwrap();
            let told: &mut Told = told.entry(script).or_default();
            told.answered += u32::from(is_answered);
            told.unanswered += u32::from(!is_answered);
            told.requests += requests;
            told.retries += u32::from(attempt > 1);
            told.took += took.as_secs_f64();
            if !is_answered {
                let _ = lost.send(());
            }
        }
    });
    let server = Server::start();
    let builder = builder.response_timeout(Duration::from_secs(4));
    let client = builder.connect(&server.url()).await.unwrap();
    let orders = client.rate_limiter("orders");
    let orders = orders.with_rate(Rate::overall(10, HOUR)).unwrap();
    for _ in 0..3 {
        assert!(orders.try_acquire(2).await.unwrap());
    }
    // One call has those that come while another is on its way.
    let [one, two, three] = [(); 3].map(|()| orders.try_acquire(1));
    let (one, two, three) = tokio::join!(one, two, three);
    assert!(one.unwrap() && two.unwrap() && three.unwrap());
    server.signal("STOP");
    let goes_on = async {
        losses.recv().await;
        server.signal("CONT"); // the call is sent again
    };
    let (granted, ()) = tokio::join!(orders.try_acquire(1), goes_on);
    assert!(granted.unwrap());

    let scrape = Scrape::of(&recorder.handle().render());
    let told = told.lock().unwrap();
    let acquire = &told["acquire"];
    assert!(acquire.answered > 3 && acquire.requests > 4, "{acquire:?}");
    assert!(acquire.retries > 0 && acquire.unanswered > 0, "{acquire:?}");
    let calls = acquire.answered + acquire.unanswered;
    assert!(acquire.requests > calls, "{acquire:?}");
    for (script, told) in &*told {
        let value = |metric: &str, answered: &str| {
            let labels = format!("{answered}script={script}");
            scrape.value(&format!("rate_limiter_{metric}"), &labels)
        };
        let number = |number: u32| (number > 0).then_some(f64::from(number));
        assert_eq!(
            value("calls_total", "answered=true, "),
            number(told.answered)
        );
        assert_eq!(
            value("calls_total", "answered=false, "),
            number(told.unanswered)
        );
        assert_eq!(value("call_requests_total", ""), Some(told.requests.into()));
        assert_eq!(value("call_retries_total", ""), Some(told.retries.into()));
        let calls = told.answered + told.unanswered;
        assert_eq!(value("call_duration_seconds_count", ""), number(calls));
        assert_eq!(value("call_duration_seconds_sum", ""), Some(told.took));
    }
}

/// What a client of Redis tells, and what is listed in the guide and shown by the dashboard.
#[tokio::test]
async fn the_guide_and_the_dashboard_have_each_metric_that_is_scraped() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let metrics = Metrics::new().near_limit(0.5);
    metrics.describe();
    let server = Server::start();
    let clock = |now| Clock::from_fn(move || now);
    let builder = noted_by(metrics).response_timeout(Duration::from_secs(1));
    let builder = builder.clock(clock(1_700_000_000_000));
    let client = builder.connect(&server.url()).await.unwrap();
    let peer = RedissonClient::builder().clock(clock(1_700_000_060_000));
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

    let scrape = Scrape::of(&recorder.handle().render());
    let of_server = format!("server={address}");
    assert_eq!(
        scrape.value("rate_limiter_breaker_state", &of_server),
        Some(2.0)
    );
    assert_eq!(
        scrape.value("rate_limiter_connections_total", &of_server),
        Some(1.0)
    );
    assert_eq!(
        scrape.value("rate_limiter_connections_lost_total", &of_server),
        Some(1.0)
    );
    let text = recorder.handle().render();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, _kind) = line.split_once(' ').unwrap();
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
    let answered = "answered=true, script=acquire";
    assert_eq!(
        scrape.value("rate_limiter_calls_total", answered),
        Some(1.0)
    );
    assert_eq!(
        scrape.value("rate_limiter_clock_ahead_seconds", ""),
        Some(60.0)
    );

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(root.join("../docs/operation.md")).unwrap();
    let (metrics_section, _spans) = guide.split_once("\n## Spans").unwrap();
    let rows = metrics_section
        .lines()
        .filter(|line| line.starts_with("| `rate_limiter_"));
    let rows = rows.map(|row| {
        let mut columns = row.trim_matches('|').split('|').map(str::trim);
        let (name, _kind) = (columns.next().unwrap(), columns.next().unwrap());
        format!("{name} {}", columns.next().unwrap())
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), scrape.listed());

    let dashboard = fs::read_to_string(root.join("dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let shown = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown = shown.map(|target| target["expr"].as_str().unwrap());
    let shown: Vec<_> = shown.collect();
    let names: BTreeSet<_> = scrape.names().collect();
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
