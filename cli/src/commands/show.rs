//! `show`: prints what a limiter holds, and when its permits come back.

pub(crate) mod grants;
mod print;
mod timeline;

use clap::Args;
use grants::Noted;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::grants::{Reading, read};
use crate::inspect::scan::clients_of;
use crate::inspect::settings::number;
use crate::output::Output;
use crate::report::Report;

pub(crate) use print::in_words;

/// The most clients that are shown in full, for a rate for each client.
const MOST_CLIENTS: usize = 20;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter show orders:api
  rratelimiter show orders:api --json | jq .permits[].drift
  NO_COLOR=1 rratelimiter show orders:api > ticket.txt

Which client took a permit is known of a rate for each client. Of other limiters grants are put together that one process of the \
Rust crate has made, as the ids of its calls ascend; Redisson's are random. A reading of more than 500 grants takes several calls, and \
is repeated until it finds the same twice.")]
pub(crate) struct ShowArguments {
    /// A limiter
    pub(crate) name: String,
}

/// What was read of the keys of all clients, or of those of one client.
struct Shown {
    client: Option<String>,
    reading: Reading,
    noted: Noted,
}

pub(super) async fn show(context: &Context, arguments: &ShowArguments) -> Result<Report, Failure> {
    let name = context.store.full_name(&arguments.name);
    let overall = read_one(context, &name, None).await?;
    if !overall.reading.stored.settings.are_a_limiters() {
        context.refuse_other(&name).await?;
        let json = json!({ "name": name, "rate": null });
        return Ok(Report::missing(&name, json));
    }
    let mut all = vec![overall];
    let mut more_clients = 0;
    if all[0].reading.stored.settings.is_per_client() {
        let (clients, more) = clients_of(&context.client, &name, MOST_CLIENTS).await?;
        more_clients = more;
        for client in clients {
            all.push(read_one(context, &name, Some(client)).await?);
        }
    }
    let mut output = Output::new(context.is_json);
    print::print(&mut output, &name, &all, more_clients)?;
    output.json(|| to_json(&name, &all, more_clients))?;
    output.flush()?;
    Ok(Report::printed(true))
}

async fn read_one(context: &Context, name: &str, client: Option<String>) -> Result<Shown, Failure> {
    let reading = read(
        &context.client,
        name,
        client.as_deref(),
        Noted::new,
        Noted::note,
    );
    let (reading, noted) = reading.await?;
    Ok(Shown {
        client,
        reading,
        noted,
    })
}

impl Shown {
    /// By how much the sum of value and grants exceeds the rate; negative if it is less. `None` if
    /// that is not known.
    fn drift(&self) -> Option<i64> {
        let stored = &self.reading.stored;
        let (rate, _) = stored.settings.numbers()?;
        let held = i64::try_from(self.noted.permits).ok()?;
        match stored.value() {
            Some(value) => Some(value.saturating_add(held).saturating_sub(rate)),
            // A missing value is right if no permits were ever taken; otherwise it is lost.
            None if stored.value.is_empty() && held == 0 => Some(0),
            None => None,
        }
    }

    /// The number of grants, without fences and holds.
    fn grants(&self) -> u64 {
        self.reading.stored.grants.saturating_sub(self.noted.beside)
    }

    /// The permits that an acquire would find.
    fn available(&self) -> Option<i64> {
        let (rate, _) = self.reading.stored.settings.numbers()?;
        if self.noted.hold_ends.is_some() {
            return Some(0);
        }
        let live = i64::try_from(self.noted.live).ok()?;
        let expired = i64::try_from(self.noted.permits).ok()? - live;
        let value = self.reading.stored.value();
        let available = value.map_or(rate - live, |value| value.saturating_add(expired));
        Some(available.min(rate))
    }

    fn to_json(&self) -> Value {
        let stored = &self.reading.stored;
        let lives = |place: usize| match stored.lives[place] {
            -2..0 => Value::Null,
            left => left.into(),
        };
        json!({
            "client": self.client,
            "available": self.available(),
            "value": stored.value(),
            "drift": self.drift(),
            "grants": self.grants(),
            "permits_in_use": self.noted.live,
            "held_for_ms": self.noted.hold_ends,
            "clock_ahead_ms": self.noted.ahead,
            "generations": self.noted.generations_to_json(),
            "returns": self.noted.returns_to_json(),
            "takers": self.noted.takers_to_json(),
            "time_to_live_ms": { "settings": lives(0), "value": lives(1), "permits": lives(2) },
            "is_exact": self.reading.is_exact,
        })
    }
}

fn to_json(name: &str, all: &[Shown], more_clients: usize) -> Value {
    let stored = &all[0].reading.stored;
    let settings = &stored.settings;
    let shown = match all {
        [overall] => vec![overall.to_json()],
        [_, clients @ ..] => clients.iter().map(Shown::to_json).collect(),
        [] => Vec::new(),
    };
    json!({
        "name": name,
        "rate": number(&settings.rate),
        "interval_ms": number(&settings.interval),
        "rate_type": match settings.rate_type.as_str() { "0" => "overall", "1" => "per_client", _ => "missing" },
        "keep_alive_ms": number(&settings.keep_alive),
        "permits": shown,
        "more_clients": more_clients,
    })
}
