//! The picture: hottest limiters, and the selected one over time.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState};

use super::history::{History, Watched};
use crate::commands::list::share_in_use;
use crate::report::{lasting, number_of};
use crate::terminal::{Terminal, shown};

const CHARTS: u16 = 10;
const BAR: usize = 12;

pub(super) fn draw(frame: &mut Frame<'_>, history: &History, pattern: &str, terminal: &Terminal) {
    let charts = if frame.area().height >= CHARTS + 8 {
        CHARTS
    } else {
        0
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
    let title = format!("{}  by {}", shown(pattern, 60), history.order.as_str());
    frame.render_widget(Paragraph::new(title).style(bold), head);
    frame.render_widget(Paragraph::new(cost_line(history, terminal)), cost);
    draw_table(frame, table, history, terminal);
    let place = history.selected();
    if let Some((name, watched)) = history.in_order().get(place) {
        draw_charts(frame, charts, name, watched, terminal);
    }
    let text = "q quit   up/down select   s sort   r redraw";
    frame.render_widget(Paragraph::new(text), keys);
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
        let text = format!("no answer, tried {times}: {}", shown(error, 300));
        let style = colored(terminal, Color::Red).add_modifier(Modifier::BOLD);
        return Line::styled(text, style);
    }
    let text = format!(
        "sampling: {:.0} calls a second, under way {:.2} % of the time",
        history.calls_per_second,
        history.busy * 100.0
    );
    Line::from(text)
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, history: &History, terminal: &Terminal) {
    let rows = history
        .in_order()
        .into_iter()
        .map(|(name, it)| row(name, it, terminal));
    let widths = [
        Constraint::Min(12),
        Constraint::Length(14),
        Constraint::Length(10),
        Constraint::Length(BAR as u16),
        Constraint::Length(5),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Length(6),
    ];
    let heads = [
        "limiter",
        "rate",
        "available",
        "",
        "use",
        "granted/s",
        "next return",
        "empty",
    ];
    let heads = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(heads)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(history.selected()));
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'a>(name: &str, it: &Watched, terminal: &Terminal) -> Row<'a> {
    let sample = &it.latest;
    let rate = format!("{}/{}", sample.permits, lasting(sample.interval));
    let next = sample.next_return.map_or_else(|| "-".to_owned(), lasting);
    let share = share_in_use(sample);
    let (available, percent, bar) = match (sample.available, share) {
        (Some(available), Some(share)) => {
            let bar = terminal.bar(sample.in_use().unwrap_or(0), sample.permits, BAR);
            (available.to_string(), format!("{:.0}%", share * 100.0), bar)
        }
        _ if sample.is_per_client() => ("per client".to_owned(), String::new(), String::new()),
        _ => ("not known".to_owned(), String::new(), String::new()),
    };
    let color = match share {
        Some(share) if share >= 1.0 => Color::Red,
        Some(share) if share >= 0.8 => Color::Yellow,
        _ => Color::Green,
    };
    Row::new([
        Cell::from(shown(name, 200)),
        Cell::from(rate),
        Cell::from(available),
        Cell::from(Span::styled(bar, colored(terminal, color))),
        Cell::from(percent),
        Cell::from(format!("{:.1}", it.per_second)),
        Cell::from(next),
        Cell::from(format!("{:.0}%", it.share_empty() * 100.0)),
    ])
}

fn draw_charts(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    watched: &Watched,
    terminal: &Terminal,
) {
    let halves = [Constraint::Percentage(60), Constraint::Percentage(40)];
    let [left, right] = Layout::vertical(halves).areas(area);
    let available = watched.available.back().copied().unwrap_or(0);
    let title = format!(
        "{}: {available} of {} left",
        shown(name, 60),
        watched.latest.permits
    );
    let charts = [
        (
            left,
            title,
            &watched.available,
            watched.latest.permits,
            Color::Green,
        ),
        (
            right,
            "granted".to_owned(),
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
        let picture = drawn(100, 24, &history());
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
            "3 calls a second",
            "0.20 %",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }

    #[test]
    fn it_is_drawn_at_every_size() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 5), (80, 24), (300, 100)] {
            drawn(width, height, &history());
            drawn(width, height, &History::new(1, Duration::from_secs(1)));
        }
    }

    #[test]
    fn a_lost_server_is_told_and_what_was_seen_stays() {
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
