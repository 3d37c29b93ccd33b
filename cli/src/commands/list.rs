//! `list`: the limiters that a pattern matches.

mod top;

use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt};

use super::Context;
use crate::failure::Failure;
use crate::inspect::sample::{Kind, RateSample, Sample, sample};
use crate::inspect::scan::Scan;
use crate::output::Output;
use crate::report::{Report, lasting, number_of};
use crate::terminal::{Color, shown};
use top::Top;

/// How many keys are looked at at the same time.
const AT_ONCE: usize = 32;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter list                              every RRateLimiter, as it is found
  rratelimiter list 'orders:*' --sort use --top 10
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
    /// The share of the rate that is in use, the largest first
    Use,
    /// Permits a second, the most first
    Rate,
    /// Stored grants, the most first
    Grants,
    /// The shortest time to live first
    Ttl,
}

pub(super) async fn list(context: &Context, arguments: &ListArguments) -> Result<Report, Failure> {
    let mut output = Output::new(context.is_json);
    let mut found = 0u64;
    let mut unread = Unread::default();
    let mut top = arguments
        .sort
        .map(|order| Top::new(order, arguments.top as usize));
    heading(&mut output)?;
    let pattern = context.store.full_name(&arguments.pattern);
    let of_type = (!arguments.policies).then_some("hash");
    let mut scan = Scan::new(context, &pattern, of_type)?;
    while let Some(keys) = scan.next().await? {
        let names = keys
            .into_iter()
            .filter_map(|key| String::from_utf8(key).ok());
        let looks = names.map(async |name| look_at(context, name).await);
        let mut looks = stream::iter(looks).buffered(AT_ONCE);
        while let Some(look) = looks.next().await {
            let sample = match look {
                Err(failure) if failure.is_of_one_key() => {
                    unread.note(failure);
                    continue;
                }
                look => look?,
            };
            let Some(sample) = sample else { continue };
            if is_part_of_another(&sample) {
                continue;
            }
            found += 1;
            match &mut top {
                Some(top) => top.add(sample),
                None => print(&mut output, &sample)?,
            }
        }
        output.flush()?;
    }
    for sample in top.map(Top::in_order).into_iter().flatten() {
        print(&mut output, &sample)?;
    }
    let (limiters, calls) = (number_of(found, "limiter"), number_of(scan.calls, "call"));
    let summary = format!("{limiters}, {calls} of SCAN");
    output.text(output.terminal.paint(Color::Dim, &summary))?;
    output.flush()?;
    unread.tell(&mut output)?;
    Ok(Report::printed(found > 0))
}

/// Keys that cannot be read: the user of the connection may not, or a cluster has them in several slots.
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

    /// On the standard error, as it is no limiter.
    fn tell(self, output: &mut Output) -> Result<(), Failure> {
        let Some(failure) = self.last else {
            return Ok(());
        };
        output.flush()?;
        let keys = number_of(self.keys, "key");
        // The others were listed: it does not change the exit code.
        failure
            .after(&format!("{keys} not looked at"))
            .print(output.is_json);
        Ok(())
    }
}

async fn look_at(context: &Context, name: String) -> Result<Option<Sample>, Failure> {
    // A limiter that counts periods has no key of its own name. These are its lengths, and beside them is its start.
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

/// A counter or a level that belongs to a limiter with another name: values of `RRateLimiter`, and the second keys of buckets.
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

/// `{name}-1763900000000`
fn is_counter_of_a_period(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(_, end)| end.len() >= 13 && end.bytes().all(|byte| byte.is_ascii_digit()))
}

fn heading(output: &mut Output) -> Result<(), Failure> {
    let width = name_width(output);
    let line = format!(
        "{:<width$} {:>18} {:>12} {:>5}  {:<10} {:>8}",
        "NAME", "RATE", "AVAILABLE", "USE", "", "TTL"
    );
    output.text(output.terminal.paint(Color::Bold, &line))
}

fn name_width(output: &Output) -> usize {
    output.terminal.width.saturating_sub(60).max(20)
}

fn print(output: &mut Output, sample: &Sample) -> Result<(), Failure> {
    output.json(|| sample.to_json())?;
    let width = name_width(output);
    let name = shown(&sample.name, width);
    let life = sample.life();
    output.text(match &sample.kind {
        Kind::Rate(it) => {
            let terminal = &output.terminal;
            let (available, share, bar) = match it.in_use() {
                Some(used) => {
                    let share = share_in_use(it).unwrap_or(0.0);
                    let bar = terminal.bar(used, it.permits, 10);
                    let color = match share {
                        share if share >= 1.0 => Color::Bad,
                        share if share >= 0.8 => Color::Warning,
                        _ => Color::Good,
                    };
                    let percent = format!("{:.0}%", share * 100.0);
                    let available = it.available.unwrap_or(0).to_string();
                    (available, percent, terminal.paint(color, &bar))
                }
                None if it.is_per_client() => {
                    ("per client".to_owned(), String::new(), " ".repeat(10))
                }
                None => ("not known".to_owned(), String::new(), " ".repeat(10)),
            };
            let rate = format!("{}/{}", it.permits, lasting(it.interval));
            format!("{name:<width$} {rate:>18} {available:>12} {share:>5}  {bar} {life:>8}")
        }
        Kind::Policy(policy, holds) => {
            let kind = policy.replace('_', " ");
            let holds = holds.map_or_else(String::new, |it| it.to_string());
            format!(
                "{name:<width$} {kind:>18} {holds:>12} {:>5}  {:<10} {life:>8}",
                "", ""
            )
        }
    })
}

/// The share of the rate that is in use.
pub(crate) fn share_in_use(sample: &RateSample) -> Option<f64> {
    Some(sample.in_use()? as f64 / sample.permits.max(1) as f64)
}

fn per_second(sample: &RateSample) -> f64 {
    sample.permits as f64 / sample.interval.max(Duration::from_millis(1)).as_secs_f64()
}
