//! The spans of requests and calls, as a subscriber of `tracing` records them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use redisson_rate_limiter::{FixedWindow, Rate, RedissonClient, Rule};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[path = "support/mod.rs"]
mod support;

const HOUR: Duration = Duration::from_secs(3600);

thread_local! {
    static ENDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The subscriber of the process: each thread has the spans that have ended on it.
#[derive(Default)]
struct Recorder {
    open: Mutex<HashMap<u64, Text>>,
    last: AtomicU64,
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!(" {field}={value}");
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redisson_rate_limiter" && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = 1 + self.last.fetch_add(1, Ordering::Relaxed);
        let mut text = Text(attributes.metadata().name().to_owned());
        attributes.record(&mut text);
        self.open.lock().unwrap().insert(id, text);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        values.record(self.open.lock().unwrap().get_mut(&id.into_u64()).unwrap());
    }

    fn try_close(&self, id: Id) -> bool {
        let ended = self.open.lock().unwrap().remove(&id.into_u64()).unwrap();
        ENDED.with_borrow_mut(|all| all.push(ended.0));
        true
    }

    fn event(&self, _: &Event<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn record() {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Recorder::default()).unwrap());
    ENDED.take();
}

/// The spans that have ended since the last time.
fn ended() -> Vec<String> {
    ENDED.take()
}

/// The span of a request that ended in this way.
fn request(ended: &str) -> String {
    format!("rate_limiter.request otel.kind=internal {ended}")
}

#[tokio::test(start_paused = true)]
async fn each_request_is_a_span_that_says_how_it_ended() {
    record();
    let client = RedissonClient::in_memory();
    let logins = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let logins = logins.with_prefix("login:");
    for _ in 0..2 {
        let _ = logins.check("alice@example.com", 1).await.unwrap();
    }
    let store = |limiter: &str, mode: &str, result: &str| {
        request(&format!(
            "rate_limiter.limiter={limiter} rate_limiter.permits=1 rate_limiter.mode={mode} \
             rate_limiter.result={result} rate_limiter.source=store"
        ))
    };
    assert_eq!(
        ended(),
        ["granted", "denied"].map(|it| store("login:", "enforced", it))
    );

    let orders = client.rate_limiter("orders\nWARN");
    orders.try_acquire(1).await.unwrap_err();
    orders.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    orders.acquire(1).await.unwrap();
    ended();
    drop(tokio::time::timeout(HOUR / 2, orders.acquire(1)).await);
    let of_orders =
        "rate_limiter.limiter=orders\\nWARN rate_limiter.permits=1 rate_limiter.mode=enforced";
    assert_eq!(
        ended(),
        [request(&format!(
            "{of_orders} rate_limiter.result=cancelled"
        ))]
    );
    client
        .rate_limiter("mails")
        .try_acquire(1)
        .await
        .unwrap_err();
    assert_eq!(
        ended(),
        [request(
            "rate_limiter.limiter=mails rate_limiter.permits=1 rate_limiter.mode=enforced \
             rate_limiter.result=not_initialized otel.status_code=ERROR error.type=not_initialized"
        )]
    );

    let strict = |name: &str| {
        let limiter = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
        let limiter = limiter.with_prefix(format!("{name}:")).with_name(name);
        Rule::new(limiter)
    };
    let rules = [strict("one"), strict("other"), strict("shadow").in_shadow()];
    let rules = client.rules(rules).unwrap();
    let _ = rules.check(&()).await.unwrap();
    assert_eq!(
        ended(),
        [
            store("one, other", "enforced", "granted"),
            store("shadow", "shadow", "granted")
        ]
    );
}

#[tokio::test]
async fn each_call_is_a_client_span_by_the_names_of_opentelemetry() {
    record();
    let server = support::Server::start();
    let builder = RedissonClient::builder().response_timeout(Duration::from_secs(60));
    let client = builder.connect(&server.url()).await.unwrap();
    let orders = client.rate_limiter("orders");
    orders.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    assert!(orders.try_acquire(1).await.unwrap());
    let call = |script: &str, requests: u32| {
        format!(
            "EVALSHA otel.kind=client db.system.name=redis db.operation.name=EVALSHA \
             db.stored_procedure.name={script} rate_limiter.requests={requests} rate_limiter.attempt=1 \
             server.address=127.0.0.1 server.port={}",
            server.port()
        )
    };
    let spans = ended();
    assert_eq!(spans[..2], [call("set_rate", 0), call("acquire", 1)]);
    assert_eq!(spans.len(), 3); // that of the request ends last

    let mut raw = server.connection().await;
    redis::cmd("SET")
        .arg("mails")
        .arg("no limiter")
        .exec_async(&mut raw)
        .await
        .unwrap();
    client
        .rate_limiter("mails")
        .try_acquire(1)
        .await
        .unwrap_err();
    let failed = format!(
        "{} otel.status_code=ERROR error.type=WRONGTYPE",
        call("acquire", 1)
    );
    assert_eq!(ended()[0], failed);
}
