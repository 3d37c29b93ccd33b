#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(feature = "axum")]
mod monitoring;

use std::time::Duration;

use metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
#[cfg(feature = "axum")]
pub use monitoring::{Monitoring, MonitoringError};
use redisson_rate_limiter::{AskedLimiter, BreakerState, Event, RedissonClient, RequestResult};

/// Counts the [events](redisson_rate_limiter::RedissonClientBuilder::on_event) of a client in the
/// recorder of the `metrics` facade.
///
/// ```
/// use metrics_exporter_prometheus::PrometheusBuilder;
/// use redisson_rate_limiter::{FixedWindow, MemoryStore, RedissonClient};
/// use redisson_rate_limiter_metrics::Metrics;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let prometheus = PrometheusBuilder::new().install_recorder()?;
/// let metrics = Metrics::new().near_limit(0.8);
/// metrics.describe();
/// let client = RedissonClient::builder()
///     .on_event(move |event| metrics.note(event))
///     .in_memory(&MemoryStore::new()); // or .connect("redis://127.0.0.1:6379").await?
///
/// let logins = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(60)))?.with_prefix("login:");
/// assert!(logins.check("alice", 1).await?.is_granted());
///
/// // The handler of `/metrics`:
/// metrics.sample(&client);
/// let text = prometheus.render();
/// let counted = r#"rate_limiter_requests_total{limiter="login:",result="granted",source="store",mode="enforced"} 1"#;
/// assert!(text.contains(counted), "{text}");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Metrics {
    /// The share of its limit, such as 0.8, from which on a key counts as near the limit.
    near_limit: Option<f64>,
}

impl Metrics {
    /// Counts everything except requests that come near a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also counts the requests after which a key has used at least `share` of its limit, such as
    /// 0.8: see [`AskedLimiter::reaches`](redisson_rate_limiter::AskedLimiter::reaches).
    ///
    /// ```
    /// let metrics = redisson_rate_limiter_metrics::Metrics::new().near_limit(0.8);
    /// assert_eq!(format!("{metrics:?}"), "Metrics { near_limit: Some(0.8) }");
    /// ```
    #[must_use]
    pub fn near_limit(self, share: f64) -> Self {
        Self {
            near_limit: Some(share),
        }
    }

    /// Gives the recorder the units and descriptions of the metrics. Call it once, after the
    /// recorder is installed.
    pub fn describe(&self) {
        describe_gauge!(BUILD_INFO, "1, for the version of the metrics crate");
        gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        describe_counter!(REQUESTS, "Requests for permits that have ended");
        describe_histogram!(
            REQUEST_DURATION,
            Unit::Seconds,
            "How long requests took, with waiting for permits and for Redis"
        );
        describe_histogram!(
            REQUEST_QUEUE_DURATION,
            Unit::Seconds,
            "How long requests were queued before the call that carried them"
        );
        describe_counter!(
            NEAR_LIMIT,
            "How often a key has used the set share of its limit"
        );
        describe_gauge!(WAITERS, "Callers that wait for permits");
        describe_counter!(CALLS, "Calls to Redis");
        describe_histogram!(CALL_DURATION, Unit::Seconds, "How long calls to Redis took");
        describe_counter!(CALL_REQUESTS, "Requests for permits in calls to Redis");
        describe_counter!(RETRIES, "Calls to Redis that were sent again");
        describe_counter!(CONNECTIONS, "Connections made");
        describe_counter!(CONNECTIONS_LOST, "Connections lost");
        describe_gauge!(
            BREAKER,
            "The state of the circuit breaker: 0 closed, 1 half open, 2 open"
        );
        describe_gauge!(
            CLOCK_AHEAD,
            Unit::Seconds,
            "By how much the clock of a peer was last ahead"
        );
    }

    /// Counts an event. Call it in
    /// [`on_event`](redisson_rate_limiter::RedissonClientBuilder::on_event).
    pub fn note(&self, event: &Event<'_>) {
        match *event {
            Event::Request {
                limiters,
                result,
                took,
                queued,
                is_shadow,
                ..
            } => {
                let mode = if is_shadow { "shadow" } else { "enforced" };
                for limiter in limiters.iter().filter(|it| it.is_deciding) {
                    note_request(limiter, result, (took, queued), mode);
                }
                let share = self.near_limit.into_iter();
                let near =
                    share.flat_map(|share| limiters.iter().filter(move |it| it.reaches(share)));
                for limiter in near {
                    counter!(NEAR_LIMIT, "limiter" => limiter.name.to_owned(), "mode" => mode)
                        .increment(1);
                }
            }
            Event::Call {
                script,
                requests,
                attempt,
                is_answered,
                took,
                ..
            } => {
                let answered = if is_answered { "true" } else { "false" };
                counter!(CALLS, "script" => script, "answered" => answered).increment(1);
                histogram!(CALL_DURATION, "script" => script).record(took);
                counter!(CALL_REQUESTS, "script" => script).increment(requests.into());
                let retries = u64::from(attempt > 1);
                counter!(RETRIES, "script" => script).increment(retries);
            }
            Event::Connected { server, .. } => {
                counter!(CONNECTIONS, "server" => server.to_owned()).increment(1);
            }
            Event::ConnectionLost { server, .. } => {
                counter!(CONNECTIONS_LOST, "server" => server.to_owned()).increment(1);
            }
            Event::BreakerChanged { server, state, .. } => set_breaker(server, state),
            Event::ClockAhead { ahead, .. } => gauge!(CLOCK_AHEAD).set(ahead.as_secs_f64()),
            _ => {}
        }
    }

    /// Sets the gauges that no event updates: how many callers wait, and the state of each circuit
    /// breaker. Call it before each scrape. It makes no call to a server.
    pub fn sample(&self, client: &RedissonClient) {
        gauge!(WAITERS).set(client.waiters() as f64);
        for server in client.health().servers {
            set_breaker(&server.server, server.breaker);
        }
    }
}

/// The upper bounds of the buckets for the histograms, whose names end in `_duration_seconds`: from
/// 0.1 ms, less than Redis takes on the same host, to half a minute in a queue.
///
/// ```
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
/// use redisson_rate_limiter_metrics::BUCKETS;
///
/// # fn main() -> Result<(), metrics_exporter_prometheus::BuildError> {
/// let durations = Matcher::Suffix("_duration_seconds".to_owned());
/// let recorder = PrometheusBuilder::new().set_buckets_for_metric(durations, &BUCKETS)?.build_recorder();
/// assert!(BUCKETS.is_sorted());
/// # drop(recorder);
/// # Ok(()) }
/// ```
pub const BUCKETS: [f64; 17] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

const BUILD_INFO: &str = "rate_limiter_build_info";
const REQUESTS: &str = "rate_limiter_requests_total";
const REQUEST_DURATION: &str = "rate_limiter_request_duration_seconds";
const REQUEST_QUEUE_DURATION: &str = "rate_limiter_request_queue_duration_seconds";
const NEAR_LIMIT: &str = "rate_limiter_near_limit_total";
const WAITERS: &str = "rate_limiter_waiters";
const CALLS: &str = "rate_limiter_calls_total";
const CALL_DURATION: &str = "rate_limiter_call_duration_seconds";
const CALL_REQUESTS: &str = "rate_limiter_call_requests_total";
const RETRIES: &str = "rate_limiter_call_retries_total";
const CONNECTIONS: &str = "rate_limiter_connections_total";
const CONNECTIONS_LOST: &str = "rate_limiter_connections_lost_total";
const BREAKER: &str = "rate_limiter_breaker_state";
const CLOCK_AHEAD: &str = "rate_limiter_clock_ahead_seconds";

fn note_request(
    limiter: &AskedLimiter<'_>,
    result: RequestResult,
    (took, queued): (Duration, Duration),
    mode: &'static str,
) {
    let source = result.source().map_or("none", |it| it.as_str());
    let name = limiter.name.to_owned();
    counter!(
        REQUESTS,
        "limiter" => name.clone(),
        "result" => result.as_str(),
        "source" => source,
        "mode" => mode
    )
    .increment(1);
    let labels = [
        Label::new("limiter", name),
        Label::from_static_parts("result", result.as_str()),
    ];
    histogram!(REQUEST_DURATION, labels.iter()).record(took);
    histogram!(REQUEST_QUEUE_DURATION, labels.iter()).record(queued);
}

fn set_breaker(server: &str, state: BreakerState) {
    let number = match state {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        _ => 2.0,
    };
    gauge!(BREAKER, "server" => server.to_owned()).set(number);
}
