//! The text that `show` prints.

use std::time::Duration;

use super::grants::KEPT;
use super::timeline::{OTHERS, draw, mark};
use super::{MOST_CLIENTS, Shown};
use crate::failure::Failure;
use crate::inspect::member::Generation;
use crate::output::Output;
use crate::report::{lasting, number_of};
use crate::terminal::{Color, Terminal, shown};

pub(super) fn print(
    output: &mut Output,
    name: &str,
    all: &[Shown],
    more_clients: usize,
) -> Result<(), Failure> {
    let Some((overall, clients)) = all.split_first() else {
        return Ok(());
    };
    let stored = &overall.reading.stored;
    let terminal = output.terminal;
    let name = shown(name, terminal.width);
    output.text(terminal.paint(Color::Bold, &name))?;
    let rate = stored.settings.in_words();
    output.text(match stored.settings.faults().is_empty() {
        true => format!("  rate        {rate}"),
        false => terminal.paint(Color::Bad, &format!("  rate        {rate}")),
    })?;
    output.text(format!("  settings    {}", life(stored.lives[0])))?;
    if stored.settings.is_per_client() {
        output.text(format!("  clients     {}", clients.len() + more_clients))?;
        for client in clients {
            let id = client.client.as_deref().unwrap_or_default();
            output.text("")?;
            output.text(format!("client {}", shown(id, terminal.width)))?;
            print_permits(output, client)?;
        }
        if more_clients > 0 {
            output.text(format!(
                "\n{more_clients} more than the {MOST_CLIENTS} shown"
            ))?;
        }
        return Ok(());
    }
    print_permits(output, overall)
}

fn print_permits(output: &mut Output, it: &Shown) -> Result<(), Failure> {
    let terminal = output.terminal;
    let stored = &it.reading.stored;
    let Some((rate, interval)) = stored.settings.numbers() else {
        return Ok(());
    };
    let whole = rate.unsigned_abs();
    let available = it.available().unwrap_or_default();
    let used = match it.noted.hold_ends {
        Some(_) => it.noted.live,
        None => rate.saturating_sub(available).max(0).unsigned_abs(),
    };
    let color = match available {
        ..=0 => Color::Bad,
        _ => Color::Good,
    };
    let bar = terminal.paint(color, &terminal.bar(used, whole, 20));
    output.text(format!(
        "  available   {available} of {rate}  {bar} {used} in use"
    ))?;
    if let Some(ends) = it.noted.hold_ends {
        let line = format!("  held        nobody gets a permit for {}", in_words(ends));
        output.text(terminal.paint(Color::Warning, &line))?;
    }
    let value = if stored.value.is_empty() {
        "none"
    } else {
        &stored.value
    };
    let lives = (life(stored.lives[1]), life(stored.lives[2]));
    output.text(format!("  value       {}; {}", shown(value, 40), lives.0))?;
    output.text(format!(
        "  grants      {}, of {} in use; {}",
        it.grants(),
        number_of(it.noted.live, "permit"),
        lives.1
    ))?;
    for (place, line) in invariant(it, &terminal).iter().enumerate() {
        let heading = if place == 0 { "invariant" } else { "" };
        output.text(format!("  {heading:<12}{line}"))?;
    }
    for (generation, number) in &it.noted.generations {
        let line = format!("  written by  {generation}: {number}");
        let is_misread = generation.is_legacy() || *generation == Generation::Malformed;
        output.text(match is_misread {
            true => terminal.paint(Color::Bad, &line),
            false => line,
        })?;
    }
    if it.noted.ahead > 0 {
        let ahead = in_words(it.noted.ahead);
        let line = format!("  clock       a client is {ahead} ahead of the server");
        output.text(terminal.paint(Color::Warning, &line))?;
    }
    let (takers, others) = it.noted.takers();
    for (place, (process, taker)) in takers.iter().enumerate() {
        let (permits, grants) = (
            number_of(taker.permits, "permit"),
            number_of(taker.grants, "grant"),
        );
        output.text(format!(
            "  taken by    {} process {process:016x}: {permits} in {grants}",
            mark(place)
        ))?;
    }
    if others > 0 && it.client.is_none() {
        // The others need a mark only if processes have marks.
        let mark = match takers.is_empty() {
            true => String::new(),
            false => format!("{OTHERS} "),
        };
        let clients = match takers.len() {
            KEPT => "all other clients",
            _ => "clients that cannot be told apart",
        };
        output.text(format!(
            "  taken by    {mark}{clients}: {}",
            number_of(others, "permit")
        ))?;
    }
    if it.noted.live > 0 {
        output.text("  comes back:")?;
        let interval = Duration::from_millis(interval.unsigned_abs());
        for line in draw(&it.noted.parts, &takers, interval, &terminal) {
            output.text(line)?;
        }
        if it.noted.later > 0 {
            let (later, whole) = (it.noted.later, lasting(interval));
            output.text(format!("  later       {later} after {whole}"))?;
        }
        let mut next = "  next        ".to_owned();
        for (place, (at, permits)) in it.noted.returns.iter().take(5).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            let more = format!("{comma}{permits} in {}", in_words(*at));
            if place > 0 && next.len() + more.len() > terminal.width {
                break;
            }
            next += &more;
        }
        output.text(next)?;
    }
    Ok(())
}

/// Says whether the value and the grants add up to the rate, in lines of less than 80 columns.
fn invariant(it: &Shown, terminal: &Terminal) -> Vec<String> {
    let hint = "`rratelimiter doctor` says more";
    let (color, mut lines) = match it.drift() {
        Some(0) => (Color::Good, vec!["holds: value + grants = rate".to_owned()]),
        Some(drift) => {
            let permits = number_of(drift.unsigned_abs(), "permit");
            let (by, more) = match drift {
                ..0 => ("lost", hint.to_owned()),
                _ => (
                    "too many",
                    format!("as after a release by Redisson; {hint}"),
                ),
            };
            let line = format!("does not hold: {permits} {by}");
            (Color::Bad, vec![line, more])
        }
        None => (Color::Bad, vec![format!("cannot be checked; {hint}")]),
    };
    if !it.reading.is_exact {
        lines.push("it changed while it was read".to_owned());
    }
    lines
        .iter()
        .map(|line| terminal.paint(color, line))
        .collect()
}

pub(crate) fn in_words(millis: i64) -> String {
    lasting(Duration::from_millis(millis.max(0).unsigned_abs()))
}

fn life(left: i64) -> String {
    match left {
        -2 => "no key".to_owned(),
        -1 => "does not expire".to_owned(),
        left => format!("expires in {}", in_words(left)),
    }
}
