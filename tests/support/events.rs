//! The tracing events of the test's own thread.
//!
//! The subscriber is that of the whole process: if threads have their own subscribers, one without
//! any can switch an event off for all.

use std::cell::RefCell;
use std::fmt;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The crate's events down to the level INFO.
pub struct Events;

impl Events {
    pub fn start() -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
        SEEN.take();
        Self
    }

    /// All events of this thread since the last time, each with its level and its fields.
    pub fn take(&self) -> Vec<String> {
        SEEN.take()
    }
}

struct Recorder;

struct Text(String);

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("redisson_rate_limiter")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        SEEN.with_borrow_mut(|seen| seen.push(text.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}
