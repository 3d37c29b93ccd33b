//! `explain`: why a limiter denies now, which processes hold its permits, when they come back, and
//! what rate would have been enough.

use std::collections::BTreeMap;

use clap::Args;
use redisson_rate_limiter::Decision;
use serde_json::json;

use super::show::grants::{Noted, PARTS};
use super::show::in_words;
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::grants::read;
use crate::inspect::health::Health;
use crate::inspect::sample::{Kind, sample};
use crate::inspect::scan::text_reply;
use crate::inspect::settings::Settings;
use crate::output::Output;
use crate::report::{Report, millis, number_of};
use crate::terminal::{Color, shown};

/// The most clients of the server that are named.
const MOST_CLIENTS: usize = 8;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter explain orders:api
  rratelimiter explain orders:api 5                for a request of 5 permits
  rratelimiter explain mails --client-id worker-7  a rate for each client: those of this one

It only reads. A process of the Rust crate is known by the ids of its calls. Which client of Redisson took a permit no grant \
says: those that are connected are named, by CLIENT LIST, where the user of the connection may ask.")]
pub(crate) struct ExplainArguments {
    /// A limiter
    name: String,
    /// How many permits a request asks for
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    permits: u32,
}

/// The facts about a limiter that `explain` prints.
struct Explained {
    name: String,
    settings: Settings,
    /// The client whose permits were read, if the rate is for each client.
    client: Option<String>,
    health: Health,
    /// The decision that the request would get; `None` if the limiter cannot grant it at all.
    peeked: Option<Decision>,
    noted: Noted,
    /// The clients that are connected to the servers, in words.
    connected: Vec<String>,
    /// Whether the limiter did not change while it was read.
    is_exact: bool,
    /// The number of permits that the request asks for.
    permits: u32,
}

pub(super) async fn explain(
    context: &Context,
    arguments: &ExplainArguments,
) -> Result<Report, Failure> {
    let limiter = context.rate_limiter(&arguments.name);
    let name = limiter.name();
    context.refuse_other(name).await?;
    let settings = context.settings(name).await?;
    if !settings.are_a_limiters() {
        return Ok(Report::missing(name, json!({ "name": name, "rate": null })));
    }
    let client = settings.is_per_client().then(|| context.client.id());
    let sampled = sample(&context.client, name, client, i64::MAX).await?;
    let health = match sampled.map(|it| it.kind) {
        Some(Kind::Rate(it)) => it.health,
        _ => Health::Unchecked,
    };
    let (reading, noted) = read(&context.client, name, client, Noted::new, Noted::note).await?;
    let is_possible = settings.faults().is_empty()
        && settings
            .numbers()
            .is_some_and(|(rate, _)| i64::from(arguments.permits) <= rate);
    let peeked = match is_possible && !matches!(health, Health::Unreadable(_)) {
        true => Some(limiter.peek(arguments.permits).await?),
        false => None,
    };
    let explained = Explained {
        name: name.to_owned(),
        client: client.map(str::to_owned),
        settings,
        health,
        peeked,
        noted,
        connected: connected(context).await,
        is_exact: reading.is_exact,
        permits: arguments.permits,
    };
    let mut output = Output::new(context.is_json);
    explained.print(&mut output)?;
    Ok(Report::printed(true))
}

impl Explained {
    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        output.json(|| {
            let returns = self
                .returns()
                .map(|(permits, at)| json!({ "permits": permits, "in_ms": at }));
            json!({
                "name": self.name, "rate": self.settings.to_json(), "client": self.client,
                "granted": self.peeked.as_ref().is_some_and(Decision::is_granted),
                "why": self.why(), "permits_in_use": self.noted.live, "returns": returns,
                "rate_that_is_enough": self.rate_that_is_enough(),
                "health": self.health.code(), "health_text": self.health.text(),
                "takers": self.noted.takers_to_json(), "connected_clients": self.connected,
                "is_exact": self.is_exact,
            })
        })?;
        let terminal = output.terminal;
        let name = self.name.escape_debug();
        let heading = format!("{name}: {}", self.settings.in_words());
        for line in terminal.lines(&heading, 2) {
            output.text(terminal.paint(Color::Bold, line.trim_end()))?;
        }
        for line in self.lines() {
            for part in terminal.lines(&line, 2) {
                output.text(part.trim_end())?;
            }
        }
        output.flush()
    }

    fn lines(&self) -> Vec<String> {
        let permits = number_of(self.permits.into(), "permit");
        let mut lines = vec![format!("A request of {permits} {}.", self.why())];
        if let Some(client) = &self.client {
            let client = shown(client, 60);
            lines.push(format!(
                "Each client has the rate to itself; this one is {client}."
            ));
        }
        if let Some(ends) = self.noted.hold_ends {
            lines.push(format!(
                "It is held: nobody gets a permit for {}.",
                in_words(ends)
            ));
        } else if let Some(sick) = self.health.text() {
            lines.push(format!(
                "It is not well: {sick}. See `rratelimiter doctor`."
            ));
        }
        if self.noted.live == 0 {
            lines.push("No permits are in use.".to_owned());
            return lines;
        }
        let in_use = number_of(self.noted.live, "permit");
        let grants: u64 = self.noted.generations.values().sum();
        lines.push(format!(
            "In use: {in_use}, in {}.",
            number_of(grants, "grant")
        ));
        let (processes, others) = self.noted.takers();
        for (process, taker) in &processes {
            let held = number_of(taker.permits, "permit");
            lines.push(format!(
                "  process {process:016x} of the Rust crate holds {held}"
            ));
        }
        if others > 0 {
            let held = number_of(others, "permit");
            lines.push(format!("  {held} by clients that no grant tells apart"));
        }
        if others > 0 && !self.connected.is_empty() {
            let connected = self.connected.join(", ");
            lines.push(format!("  connected to the server now: {connected}"));
        }
        let mut back: Vec<String> = Vec::new();
        for (permits, at) in self.returns() {
            let text = at.map(|at| format!("{permits} within {}", in_words(at)));
            back.extend(text.filter(|it| !back.contains(it)));
        }
        if !back.is_empty() {
            lines.push(format!("They come back: {}.", back.join(", ")));
        }
        let (_, interval) = self.settings.numbers().unwrap_or_default();
        if self.noted.hold_ends.is_some() {
            return lines;
        }
        lines.push(format!(
            "A rate of {} per {} would have been enough for what is in use and this request.",
            self.rate_that_is_enough(),
            in_words(interval)
        ));
        if !self.is_exact {
            lines.push("It changed while it was read.".to_owned());
        }
        lines
    }

    /// Whether the request would be granted, and why, such as `would be denied: 0 are left, and
    /// enough are back in 3s`.
    fn why(&self) -> String {
        match &self.peeked {
            Some(peeked) if peeked.is_granted() => "would be granted".to_owned(),
            Some(_) if self.noted.hold_ends.is_some() => "would be denied".to_owned(),
            Some(peeked) => {
                let wait = peeked.retry_after().map_or(0, millis);
                let wait = in_words(i64::try_from(wait).unwrap_or(i64::MAX));
                let left = peeked.remaining();
                format!("would be denied: {left} are left, and enough are back in {wait}")
            }
            None => match self.health.text() {
                Some(text) if !matches!(self.health, Health::Stopped) => {
                    format!("fails: {text}")
                }
                Some(text) => format!("would be refused: {text}"),
                None => "would be refused: it is above the rate".to_owned(),
            },
        }
    }

    /// For 1 permit, a tenth and half of the rate: the number of permits, and the time in ms within
    /// which as many come back. The time is `None` if fewer permits are in use.
    fn returns(&self) -> [(u64, Option<i64>); 3] {
        let (rate, interval) = self.settings.numbers().unwrap_or((1, 1));
        let rate = rate.unsigned_abs();
        [1, rate.div_ceil(10), rate.div_ceil(2)].map(|permits| {
            let mut returned = 0_u64;
            let part = self.noted.parts.iter().position(|held| {
                returned = returned.saturating_add(*held);
                returned >= permits
            });
            let at = part.map(|part| {
                let part = i64::try_from(part + 1).unwrap_or(i64::MAX);
                interval.saturating_mul(part) / PARTS as i64
            });
            (permits, at.map(|it| it.max(1)))
        })
    }

    fn rate_that_is_enough(&self) -> u64 {
        self.noted.live.saturating_add(self.permits.into())
    }
}

/// The clients that are connected to the servers, in words: host, name and library, and the number
/// of connections. Empty if the user of the connection may not list them.
async fn connected(context: &Context) -> Vec<String> {
    let mut hosts: BTreeMap<String, u64> = BTreeMap::new();
    for server in context.client.servers().unwrap_or_default() {
        let listed = text_reply(&server, ["CLIENT", "LIST"]).await;
        let listed = listed.unwrap_or_default();
        for line in listed.lines() {
            let field = |name: &str| {
                let mut fields = line.split(' ').filter_map(|it| it.split_once('='));
                let found = fields.find(|(field, text)| *field == name && !text.is_empty());
                found.map(|(_, text)| text)
            };
            let library = field("lib-name").unwrap_or_default();
            if !library.to_lowercase().contains("redisson") && field("name").is_none() {
                continue;
            }
            let address = field("addr").unwrap_or_default();
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let words = [Some(host), field("name"), field("lib-name")];
            let words: Vec<_> = words.into_iter().flatten().collect();
            *hosts.entry(shown(&words.join(" "), 60)).or_default() += 1;
        }
    }
    let more = hosts.len().saturating_sub(MOST_CLIENTS);
    let mut named: Vec<_> = hosts
        .into_iter()
        .take(MOST_CLIENTS)
        .map(|(host, number)| format!("{host} ({})", number_of(number, "connection")))
        .collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named
}
