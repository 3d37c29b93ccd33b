//! `list`: the limiters that a pattern matches.

mod clients;
pub(crate) mod layout;
mod top;

use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt};
use layout::{Column, Layout, column};
use top::Top;

use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::health::Health;
use crate::inspect::sample::{Kind, RateSample, Sample, sample};
use crate::inspect::scan::Scan;
use crate::output::Output;
use crate::report::{Report, number_of};
use crate::terminal::{Color, Terminal, compact};

/// The most keys that are sampled at the same time.
const AT_ONCE: usize = 32;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter list                              every RRateLimiter, as it is found
  rratelimiter list 'orders:*' --sort use --top 10
  rratelimiter list --sick                       those that are not well
  rratelimiter list 'login:*' --policies         keys of other algorithms too
  rratelimiter list --json | jq -r 'select(.available == 0).name'

It walks over the keys with SCAN, 500 a call on each primary, and blocks no server. Of other algorithms their hashes are found in \
any case; --policies also looks at strings and sorted sets, and so at every key that the pattern matches. Without --sort a \
limiter may be printed twice if the server's table of keys grows meanwhile.")]
pub(crate) struct ListArguments {
    /// Which names, with `*`, `?` and `[abc]` as in the shell
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Look at the keys of all algorithms
    #[arg(long)]
    pub(crate) policies: bool,
    /// Print only limiters that are not well; `doctor` says more of each
    #[arg(long)]
    pub(crate) sick: bool,
    /// Print the first of this order, and not each as it is found
    #[arg(long, value_name = "BY")]
    pub(crate) sort: Option<Order>,
    /// How many, if they are sorted
    #[arg(long, value_name = "N", default_value_t = 100, requires = "sort", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    Name,
    /// Those that are not well first, the worst before the others
    Health,
    /// The share of the rate that is in use, the largest first
    Use,
    /// Permits a second, the most first
    Rate,
    /// Stored grants, the most first
    Grants,
    /// The shortest time to live first
    Ttl,
}

/// The share of the rate in use from which on a limiter is hot.
pub(crate) const HOT: f64 = 0.8;
/// The most limiters with a rate for each client whose clients are looked for.
const MOST_PER_CLIENT: usize = 10_000;

const COLUMNS: [Column; 6] = [
    column("RATE", 12, 56),
    column("AVAILABLE", 10, 66),
    column("USE", 5, 0),
    column("", 10, 100),
    column("TTL", 8, 78),
    layout::HEALTH,
];

pub(super) async fn list(context: &Context, arguments: &ListArguments) -> Result<Report, Failure> {
    let mut list = List {
        arguments,
        output: Output::new(context.is_json),
        layout: None,
        totals: Totals::default(),
        top: arguments
            .sort
            .map(|order| Top::new(order, arguments.top as usize)),
    };
    let mut unread = Unread::default();
    let mut of_clients = Vec::new();
    let pattern = context.store.full_name(&arguments.pattern);
    let of_type = (!arguments.policies).then_some("hash");
    let mut scan = Scan::new(&context.client, &pattern, of_type)?;
    while let Some(keys) = scan.next().await? {
        let names = keys
            .into_iter()
            .filter_map(|key| String::from_utf8(key).ok());
        let looks = names.map(async |name| look_at(context, name).await);
        let mut looks = stream::iter(looks).buffered(AT_ONCE);
        let mut page = Vec::new();
        while let Some(look) = looks.next().await {
            let sample = match look {
                Err(failure) if failure.is_of_one_key() => {
                    unread.note(failure);
                    continue;
                }
                look => look?,
            };
            match sample.filter(|it| !is_part_of_another(it)) {
                Some(it) if it.is_per_client() && of_clients.len() < MOST_PER_CLIENT => {
                    of_clients.push(it);
                }
                Some(it) => page.push(it),
                None => {}
            }
        }
        list.add(page)?;
    }
    let mut calls = scan.calls;
    if !of_clients.is_empty() {
        calls += clients::look_for(context, &mut of_clients).await?;
        list.add(of_clients)?;
    }
    let found = list.finish(calls)?;
    let mut output = Output::new(context.is_json);
    unread.report(&mut output)?;
    Ok(Report::printed(found))
}

struct List<'a> {
    arguments: &'a ListArguments,
    output: Output,
    /// The layout, which is made from the first names that are printed.
    layout: Option<Layout<'static>>,
    totals: Totals,
    top: Option<Top>,
}

impl List<'_> {
    fn add(&mut self, mut page: Vec<Sample>) -> Result<(), Failure> {
        page.iter().for_each(|it| self.totals.note(it));
        if self.arguments.sick {
            page.retain(Sample::is_sick);
        }
        match &mut self.top {
            Some(top) => page.into_iter().for_each(|it| top.add(it)),
            None => self.print(&page)?,
        }
        self.output.flush()
    }

    /// Returns whether there was anything to print.
    fn finish(mut self, calls: u64) -> Result<bool, Failure> {
        let summary = self.totals.in_words(calls);
        // The summary of an unsorted list is known only at the end, which is also where a person
        // sees it, below a long list.
        let top = self.top.take();
        let is_sorted = top.is_some();
        if is_sorted {
            self.text(&summary)?;
        }
        if let Some(top) = top {
            self.print(&top.in_order().collect::<Vec<_>>())?;
        }
        if !is_sorted {
            self.text(&summary)?;
        }
        self.output.flush()?;
        Ok(match self.arguments.sick {
            true => self.totals.sick > 0,
            false => self.totals.limiters > 0,
        })
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        let terminal = self.output.terminal;
        for line in terminal.lines(text, 0) {
            self.output
                .text(terminal.paint(Color::Dim, line.trim_end()))?;
        }
        Ok(())
    }

    fn print(&mut self, samples: &[Sample]) -> Result<(), Failure> {
        if samples.is_empty() {
            return Ok(());
        }
        if self.layout.is_none() {
            let names = samples.iter().map(|it| &*it.name);
            let layout = Layout::new(self.output.terminal, &COLUMNS, names);
            self.output.text(layout.heading())?;
            self.layout = Some(layout);
        }
        let Some(layout) = &self.layout else {
            return Ok(());
        };
        for sample in samples {
            self.output.json(|| sample.to_json())?;
            let (mark, cells) = cells(sample, &self.output.terminal);
            self.output.text(layout.row(mark, &sample.name, &cells))?;
            let fullest = sample.clients().and_then(|it| it.fullest.as_ref());
            if let Some((client, in_use)) = fullest {
                let terminal = &self.output.terminal;
                let start = format!("    fullest: {in_use} in use by client ");
                let client = terminal.fitted(client, start.len());
                self.output
                    .text(terminal.paint(Color::Dim, &(start + &client)))?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Totals {
    limiters: u64,
    hot: u64,
    sick: u64,
    stopped: u64,
    held: u64,
}

impl Totals {
    fn note(&mut self, sample: &Sample) {
        self.limiters += 1;
        let Kind::Rate(it) = &sample.kind else { return };
        self.sick += u64::from(it.health.is_sick());
        self.stopped += u64::from(it.health == Health::Stopped);
        let is_held = matches!(it.health, Health::Held(_));
        self.held += u64::from(is_held);
        let is_hot = share_in_use(it).is_some_and(|it| it >= HOT);
        self.hot += u64::from(is_hot && !is_held && !it.health.is_sick());
    }

    fn in_words(&self, calls: u64) -> String {
        let mut words = number_of(self.limiters, "limiter");
        for (number, word) in [
            (self.hot, "hot"),
            (self.sick, "sick"),
            (self.stopped, "stopped"),
            (self.held, "held"),
        ] {
            if number > 0 {
                words += &format!(", {number} {word}");
            }
        }
        words + "; " + &number_of(calls, "call") + " of SCAN"
    }
}

fn cells(sample: &Sample, terminal: &Terminal) -> (char, [(String, Option<Color>); 6]) {
    let plain = |text: &str| (text.to_owned(), None);
    let life = plain(&sample.life());
    let it = match &sample.kind {
        Kind::Rate(it) => it,
        Kind::Policy(policy, holds) => {
            let kind = plain(&policy.replace('_', " "));
            let holds = holds.map_or_else(String::new, |it| counted(it, terminal));
            return (
                ' ',
                [kind, plain(&holds), plain(""), plain(""), life, plain("")],
            );
        }
    };
    let available = match (&it.clients, it.available) {
        (Some(clients), _) => number_of(clients.number, "client"),
        (None, Some(available)) => counted(available, terminal),
        (None, None) => "-".to_owned(),
    };
    let (mark, word, color) = layout::health(it);
    let (percent, bar) = match (it.in_use(), share_in_use(it)) {
        (Some(used), Some(share)) => {
            let bar = terminal.bar(used, it.permits, 10);
            (percent(share), (bar, Some(color_of(share))))
        }
        _ => ("-".to_owned(), plain("")),
    };
    let rate = match it.settings.numbers() {
        Some((rate, _)) => {
            let argument = it.settings.as_argument();
            let interval = argument.split_once('/').map_or("", |it| it.1);
            format!("{}/{interval}", counted(rate.unsigned_abs(), terminal))
        }
        None => terminal.fitted_to(&it.settings.as_argument(), 12),
    };
    let word = (word.to_owned(), Some(color));
    (
        mark,
        [
            plain(&rate),
            plain(&available),
            plain(&percent),
            bar,
            life,
            word,
        ],
    )
}

/// A number as a text: short on a terminal, and in full for programs.
fn counted(number: u64, terminal: &Terminal) -> String {
    match terminal.is_terminal {
        true => compact(number),
        false => number.to_string(),
    }
}

/// A share in percent, rounded down, so that only a limiter that is used up has 100%.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).floor())
}

fn color_of(share: f64) -> Color {
    match share {
        share if share >= 1.0 => Color::Bad,
        share if share >= HOT => Color::Warning,
        _ => Color::Good,
    }
}

/// Keys that cannot be read, because the user of the connection may not, or because a cluster has
/// them in several slots.
#[derive(Default)]
struct Unread {
    keys: u64,
    last: Option<Failure>,
}

impl Unread {
    fn note(&mut self, failure: Failure) {
        self.keys += 1;
        self.last = Some(failure);
    }

    /// Reports the keys on the standard error, because they are not part of the list.
    fn report(self, output: &mut Output) -> Result<(), Failure> {
        let Some(failure) = self.last else {
            return Ok(());
        };
        output.flush()?;
        let keys = number_of(self.keys, "key");
        // Only printed: the exit code is that of the list.
        failure
            .after(&format!("{keys} not looked at"))
            .print(output.is_json);
        Ok(())
    }
}

async fn look_at(context: &Context, name: String) -> Result<Option<Sample>, Failure> {
    // A sliding window counter has no key with its own name. It is found by the key with the
    // lengths of its periods, and sampled by the key with its start.
    let Some(base) = name.strip_suffix("-periods").filter(|it| it.contains('{')) else {
        return sample(&context.client, &name, None, i64::MAX).await;
    };
    let start = sample(&context.client, &format!("{base}-st"), None, i64::MAX).await?;
    let in_braces = base.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    Ok(start.map(|start| Sample {
        name: in_braces.unwrap_or(base).to_owned(),
        kind: Kind::Policy("sliding_window_counter", None),
        ..start
    }))
}

/// Whether a key belongs to a limiter with another name: the value of an `RRateLimiter`, or the
/// second key of a bucket.
fn is_part_of_another(sample: &Sample) -> bool {
    let ends = ["-st", "-lock", "-window", "-periods", ":audit", ":call"];
    let name = &sample.name;
    !matches!(sample.kind, Kind::Rate(_))
        && name.contains('{')
        && (ends.iter().any(|end| name.ends_with(end))
            || name.contains(":value")
            || name.contains(":permits")
            || is_counter_of_a_period(name))
}

/// Whether the name ends with the start of a period in ms, such as `{name}-1763900000000`.
fn is_counter_of_a_period(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(_, end)| end.len() >= 13 && end.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The share of the rate that is in use.
pub(crate) fn share_in_use(sample: &RateSample) -> Option<f64> {
    Some(sample.in_use()? as f64 / sample.permits.max(1) as f64)
}

fn per_second(sample: &RateSample) -> f64 {
    sample.permits as f64 / sample.interval.max(Duration::from_millis(1)).as_secs_f64()
}
