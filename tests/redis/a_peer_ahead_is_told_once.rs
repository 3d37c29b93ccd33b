//! A grant that a peer's clock scored ahead of the server's is warned of, once a limiter.

use std::fmt;
use std::sync::{Arc, Mutex};

use redisson_rate_limiter::{RRateLimiter, Rate, RedissonClient, State};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::keys::{self, member};
use crate::stage::{HOUR, NAME, Stage};

/// Keeps the fields of each warning of the crate.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<Fields>>>);

#[derive(Debug, Clone, Default)]
struct Fields {
    limiter: String,
    ahead_ms: i64,
    message: String,
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("redisson_rate_limiter")
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "ahead_ms" {
            self.ahead_ms = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "limiter" => self.limiter = format!("{value:?}"),
            "message" => self.message = format!("{value:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_score_ahead_of_the_server_is_warned_of_once_with_by_how_much() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let mut stage = Stage::set().await;
    let client = RedissonClient::connect(&stage.server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();

    let minute_ahead = keys::time(&mut stage.raw).await + 60_000;
    stage.add(minute_ahead, &member(&[7; 16], 1)).await;
    let before = keys::time(&mut stage.raw).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let after = keys::time(&mut stage.raw).await;
    for rate in 11..14 {
        // Under another rate the grants are looked at again.
        let rate = Rate::overall(rate, HOUR);
        limiter.set_rate_with(rate, State::Keep).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    let told = warnings.0.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].limiter, NAME);
    let ahead = minute_ahead - after..=minute_ahead - before;
    assert!(
        ahead.contains(&told[0].ahead_ms),
        "{told:?} not in {ahead:?}"
    );
    assert!(told[0].message.contains("ahead"), "{told:?}");
}

#[tokio::test]
async fn grants_of_this_client_are_not_warned_of() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let stage = Stage::set().await;
    let client = RedissonClient::connect(&stage.server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    for _ in 0..11 {
        limiter.try_acquire(1).await.unwrap();
    }
    assert!(warnings.0.lock().unwrap().is_empty());
}
