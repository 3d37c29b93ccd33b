//! Draws the picture: a table of the hottest limiters, and charts or details of the selected one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::history::{History, Watched};
use super::keys::KEYS;
use crate::commands::list::layout::health;
use crate::commands::list::{HOT, percent, share_in_use};
use crate::report::{lasting, number_of};
use crate::terminal::{self, Terminal, compact, shown};

const CHARTS: u16 = 10;
const BAR: usize = 12;

pub(super) fn draw(frame: &mut Frame<'_>, history: &History, pattern: &str, terminal: &Terminal) {
    if history.view.has_help {
        let lines = KEYS
            .iter()
            .map(|(key, what)| Line::from(format!("{key:<10}{what}")));
        let help = Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: false });
        frame.render_widget(help.block(Block::bordered().title("keys")), frame.area());
        return;
    }
    let charts = match frame.area().height {
        height if height >= CHARTS + 8 => CHARTS,
        height if height >= 8 && history.view.has_details => height - 6,
        _ => 0,
    };
    let areas = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(charts),
        Constraint::Length(1),
    ];
    let [head, cost, table, charts, keys] = Layout::vertical(areas).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(title(history, pattern)).style(bold), head);
    frame.render_widget(Paragraph::new(cost_line(history, terminal)), cost);
    draw_table(frame, table, history, terminal);
    let place = history.selected();
    if let Some((name, watched)) = history.in_order().get(place) {
        match history.view.has_details {
            true => draw_details(frame, charts, name, watched),
            false => draw_charts(frame, charts, name, watched, terminal),
        }
    }
    let text = match history.view.is_filtering {
        true => format!(
            "/{}_   Enter ends, Esc clears",
            shown(&history.view.filter, 40)
        ),
        false => "q quit  / filter  s sort  p pause  Enter details  ? keys".to_owned(),
    };
    frame.render_widget(Paragraph::new(text), keys);
}

/// The title, such as `3 limiters, 1 hot, 1 sick  orders*  by use`.
fn title(history: &History, pattern: &str) -> String {
    let totals = history.totals();
    let mut title = number_of(totals.limiters as u64, "limiter");
    let numbers = [
        (totals.hot, "hot"),
        (totals.sick, "sick"),
        (totals.passed_over, "not shown"),
    ];
    for (number, word) in numbers.into_iter().filter(|(number, _)| *number > 0) {
        title += &format!(", {number} {word}");
    }
    title += &format!("  {}  by {}", shown(pattern, 40), history.order.as_str());
    if !history.view.filter.is_empty() {
        title += &format!("  with `{}`", shown(&history.view.filter, 30));
    }
    title
}

/// Draws the settings and the health of a limiter.
fn draw_details(frame: &mut Frame<'_>, area: Rect, name: &str, watched: &Watched) {
    let sample = &watched.latest;
    let number = |it: Option<u64>| it.map_or_else(|| "not known".to_owned(), |it| it.to_string());
    let next = sample
        .next_return
        .map_or_else(|| "nothing".to_owned(), lasting);
    let health = sample.health.text();
    let lines = [
        sample.settings.in_words(),
        format!(
            "health      {}",
            health.unwrap_or_else(|| sample.health.word().to_owned())
        ),
        format!("available   {}", number(sample.available)),
        format!(
            "in use      {}, in {}",
            number(sample.in_use()),
            number_of(sample.grants, "grant")
        ),
        format!("next return {next}"),
        format!(
            "empty       {:.0}% of the samples",
            watched.share_empty() * 100.0
        ),
        "`rratelimiter explain NAME` and `rratelimiter doctor NAME` say more".to_owned(),
    ];
    let lines: Vec<_> = lines.into_iter().map(Line::from).collect();
    let name = shown(name, usize::from(area.width.saturating_sub(2)));
    let details = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(details.block(Block::bordered().title(name)), area);
}

fn colored(terminal: &Terminal, color: Color) -> Style {
    match terminal.has_colors {
        true => Style::new().fg(color),
        false => Style::new(),
    }
}

fn cost_line<'a>(history: &History, terminal: &Terminal) -> Line<'a> {
    if let Some((error, times)) = &history.error {
        let times = number_of(*times, "time");
        let text = format!("stale: no answer, tried {times}: {}", shown(error, 300));
        let style = colored(terminal, Color::Red).add_modifier(Modifier::BOLD);
        return Line::styled(text, style);
    }
    if history.view.is_paused {
        let style = colored(terminal, Color::Yellow).add_modifier(Modifier::BOLD);
        return Line::styled("paused: p goes on", style);
    }
    let text = format!(
        "sampling: {:.0} calls a second, under way {:.2} % of the time",
        history.calls_per_second,
        history.busy * 100.0
    );
    Line::from(text)
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, history: &History, terminal: &Terminal) {
    let width = area.width;
    let shown_columns: Vec<_> = COLUMNS
        .iter()
        .enumerate()
        .filter(|(_, (_, _, from))| width >= *from)
        .map(|(place, _)| place)
        .collect();
    let others: u16 = shown_columns
        .iter()
        .map(|place| COLUMNS[*place].1 + 1)
        .sum();
    let names = usize::from(width.saturating_sub(others + 2)).max(4);
    let all = history.in_order();
    let rows = all.into_iter().map(|(name, it)| {
        let cells = cells(it, terminal);
        let mark = health(&it.latest).0;
        let name = format!("{mark} {}", shown(name, names));
        let row = shown_columns
            .iter()
            .map(|place| Cell::from(cells[*place].clone()));
        let row = Row::new([Cell::from(name)].into_iter().chain(row));
        // A limiter that the last round did not sample may have changed, so its row is dim.
        match it.is_new && history.error.is_none() && !history.view.is_paused {
            true => row,
            false => row.style(Style::new().add_modifier(Modifier::DIM)),
        }
    });
    let columns = shown_columns.iter().map(|place| COLUMNS[*place]);
    let widths = [Constraint::Min(6)].into_iter();
    let widths = widths.chain(
        columns
            .clone()
            .map(|(_, width, _)| Constraint::Length(width)),
    );
    let heads = ["  limiter"]
        .into_iter()
        .chain(columns.map(|(head, ..)| head));
    let heads = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(heads)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(history.selected()));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The columns: heading, width, and the width from which on a terminal shows the column.
const COLUMNS: [(&str, u16, u16); 8] = [
    ("rate", 12, 60),
    ("available", 10, 74),
    ("", BAR as u16, 110),
    ("use", 5, 0),
    ("granted/s", 9, 50),
    ("next return", 12, 96),
    ("empty", 5, 90),
    ("health", 11, 34),
];

fn cells<'a>(it: &Watched, terminal: &Terminal) -> [Span<'a>; 8] {
    let sample = &it.latest;
    let next = sample.next_return.map_or_else(|| "-".to_owned(), lasting);
    let share = share_in_use(sample);
    let (available, used, bar) = match (sample.available, share) {
        (Some(available), Some(share)) => {
            let bar = terminal.bar(sample.in_use().unwrap_or(0), sample.permits, BAR);
            (compact(available), percent(share), bar)
        }
        _ if sample.is_per_client() => ("per client".to_owned(), String::new(), String::new()),
        _ => ("not known".to_owned(), String::new(), String::new()),
    };
    let color = match share {
        Some(share) if share >= 1.0 => Color::Red,
        Some(share) if share >= HOT => Color::Yellow,
        _ => Color::Green,
    };
    let (_, word, color_of_word) = health(sample);
    let word_color = match color_of_word {
        terminal::Color::Bad => Color::Red,
        terminal::Color::Warning => Color::Yellow,
        terminal::Color::Good | terminal::Color::Dim | terminal::Color::Bold => Color::Green,
    };
    [
        Span::from(shown(&sample.settings.as_argument(), 12)),
        Span::from(available),
        Span::styled(bar, colored(terminal, color)),
        Span::from(used),
        Span::from(format!("{:.1}", it.per_second)),
        Span::from(next),
        Span::from(format!("{:.0}%", it.share_empty() * 100.0)),
        Span::styled(word, colored(terminal, word_color)),
    ]
}

fn draw_charts(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    watched: &Watched,
    terminal: &Terminal,
) {
    let halves = [Constraint::Percentage(60), Constraint::Percentage(40)];
    let [upper, lower] = Layout::vertical(halves).areas(area);
    let available = watched.available.back().copied().unwrap_or(0);
    let permits = watched.latest.permits;
    let title = format!("{}: {available} of {permits} left", shown(name, 60));
    let most_granted = watched.granted.iter().copied().max().unwrap_or(0);
    let charts = [
        (
            upper,
            title,
            &watched.available,
            watched.latest.permits,
            Color::Green,
        ),
        (
            lower,
            format!("granted a sample, {most_granted} at most"),
            &watched.granted,
            0,
            Color::Cyan,
        ),
    ];
    for (area, title, data, most, color) in charts {
        let width = usize::from(area.width.saturating_sub(2));
        let newest = data.iter().skip(data.len().saturating_sub(width)).copied();
        let data: Vec<u64> = newest.collect();
        let most = most.max(data.iter().copied().max().unwrap_or(0)).max(1);
        let sparkline = Sparkline::default()
            .block(Block::bordered().title(title))
            .data(&data)
            .max(most)
            .style(colored(terminal, color));
        frame.render_widget(sparkline, area);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::backend::TestBackend;

    use super::super::history::Round;
    use super::super::history::tests::{round, sample};
    use super::*;

    fn drawn(width: u16, height: u16, history: &History) -> String {
        let mut screen = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
        let terminal = Terminal::plain(width.into());
        screen
            .draw(|frame| draw(frame, history, "orders*", &terminal))
            .unwrap();
        screen.backend().to_string()
    }

    fn history() -> History {
        let mut history = History::new(10, Duration::from_secs(1));
        history.note(round([
            sample("orders:a", 10, 0, 0),
            sample("orders:b", 0, 4, 0),
        ]));
        history
    }

    #[test]
    fn the_hottest_limiter_comes_first_with_what_is_left_of_it() {
        let picture = drawn(130, 24, &history());
        let line = |text: &str| {
            picture
                .lines()
                .position(|line| line.contains(text))
                .unwrap()
        };
        assert!(line("orders:b") < line("orders:a"), "{picture}");
        for part in [
            "10/1s",
            "100%",
            "############",
            "250ms",
            "0 of 10 left",
            "2 limiters, 1 hot",
            "3 calls a second",
            "0.20 %",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }

    #[test]
    fn the_picture_can_be_drawn_at_every_size() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 5), (80, 24), (300, 100)] {
            drawn(width, height, &history());
            drawn(width, height, &History::new(1, Duration::from_secs(1)));
        }
    }

    #[test]
    fn a_lost_server_is_reported_and_the_last_samples_stay() {
        let mut history = history();
        history.note(Round {
            error: Some("refused\x1b[2J".to_owned()),
            ..Round::default()
        });
        let picture = drawn(100, 24, &history);
        assert!(
            picture.contains("no answer, tried 1 time: refused\\u{1b}[2J"),
            "{picture}"
        );
        assert!(picture.contains("orders:b"), "{picture}");
    }

    #[test]
    fn a_hostile_name_is_escaped() {
        let mut history = History::new(10, Duration::from_secs(1));
        history.note(round([sample("a\x1b]0;x\x07b\nc", 1, 0, 0)]));
        let picture = drawn(100, 24, &history);
        assert!(picture.contains("a\\u{1b}]0;x\\u{7}b\\nc"), "{picture}");
    }
}
