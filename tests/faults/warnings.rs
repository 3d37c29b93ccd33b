//! What the crate failed to give back, as its warnings say.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What was not given back of one limiter.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotGivenBack {
    /// The permits that refunds did not give back.
    pub permits: i64,
    /// The number of calls whose permits are not known.
    pub calls: u64,
}

static WARNINGS: LazyLock<Mutex<HashMap<String, NotGivenBack>>> = LazyLock::new(|| {
    tracing::subscriber::set_global_default(Warnings).expect("the only subscriber");
    Mutex::default()
});

/// Starts to listen.
pub fn listen() {
    LazyLock::force(&WARNINGS);
}

/// What was not given back of this limiter since this process started.
pub fn of(limiter: &str) -> NotGivenBack {
    let warnings = WARNINGS.lock().unwrap();
    warnings.get(limiter).copied().unwrap_or_default()
}

struct Warnings;

#[derive(Default)]
struct Fields {
    message: String,
    limiter: String,
    permits: Option<i64>,
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("redisson_rate_limiter")
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields
            .message
            .contains("of a cancelled request come back only when")
        {
            let mut warnings = WARNINGS.lock().unwrap();
            let warning = warnings.entry(fields.limiter).or_default();
            match fields.permits {
                Some(permits) => warning.permits += permits,
                None => warning.calls += 1,
            }
        }
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
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "permits" {
            self.permits = Some(value as i64);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "limiter" => self.limiter = format!("{value:?}"),
            _ => {}
        }
    }
}
