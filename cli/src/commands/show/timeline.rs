//! Draws the window as a timeline: how many permits come back when, and which process has taken
//! them.

use super::grants::{PARTS, Taker};
use crate::report::lasting;
use crate::terminal::Terminal;
use std::time::Duration;

/// The mark of clients that cannot be told apart.
pub(super) const OTHERS: char = '-';

/// The mark of a process in the timeline, by its place in the list.
pub(super) fn mark(place: usize) -> char {
    // In a list that is longer than the alphabet, marks repeat.
    char::from(b'a' + (place % 26) as u8)
}

/// Draws the lines of the timeline: the columns, below each the mark of the process that holds most
/// of it (unless no process is known), and the scale.
pub(super) fn draw(
    parts: &[u64],
    takers: &[(u64, Taker)],
    interval: Duration,
    terminal: &Terminal,
) -> Vec<String> {
    let width = terminal.width.saturating_sub(4).min(PARTS);
    let in_columns = |parts: &[u64]| -> Vec<u64> {
        let column = |column| {
            let (from, to) = (column * PARTS / width, (column + 1) * PARTS / width);
            parts[from..to].iter().sum()
        };
        (0..width).map(column).collect()
    };
    let columns = in_columns(parts);
    let most = columns.iter().copied().max().unwrap_or(0).max(1);
    let column = |permits: &u64| {
        let eighths = (u128::from(*permits) * 8).div_ceil(u128::from(most));
        terminal.column(eighths as usize)
    };
    let line: String = columns.iter().map(column).collect();
    let (half, whole) = (lasting(interval / 2), lasting(interval));
    let middle = width / 2;
    let scale = format!(
        "now{half:>before$}{whole:>after$}",
        before = middle.saturating_sub(3),
        after = width - middle.max(3)
    );
    let mut lines = vec![format!("  |{line}|")];
    if !takers.is_empty() {
        let by_taker: Vec<_> = takers
            .iter()
            .map(|(_, taker)| in_columns(&taker.parts[..]))
            .collect();
        let marks: String = columns
            .iter()
            .enumerate()
            .map(|(column, all)| mark_of(column, *all, &by_taker))
            .collect();
        lines.push(format!("   {}", marks.trim_end()));
    }
    lines.push(format!("   {scale}"));
    lines
}

/// The mark of the process that holds the most permits of a column, or of the others if they hold
/// more; a space if the column has no permits.
fn mark_of(column: usize, all: u64, by_taker: &[Vec<u64>]) -> char {
    let held = by_taker.iter().map(|columns| columns[column]);
    let others = all.saturating_sub(held.clone().sum());
    let most = held
        .enumerate()
        .max_by_key(|(place, held)| (*held, std::cmp::Reverse(*place)));
    match most {
        _ if all == 0 => ' ',
        Some((place, held)) if held >= others => mark(place),
        _ => OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeline_has_the_width_of_the_terminal() {
        let mut parts = vec![0; PARTS];
        (parts[0], parts[PARTS - 1]) = (8, 1);
        for width in [40, 80, 160] {
            let terminal = Terminal::plain(width);
            let lines = draw(&parts, &[], Duration::from_secs(10), &terminal);
            let [line, scale] = &lines[..] else {
                panic!("{lines:?}");
            };
            assert_eq!(
                (line.chars().count(), scale.chars().count()),
                (width, width - 1)
            );
            assert!(line.starts_with("  |# ") && line.ends_with(" .|"), "{line}");
            assert!(scale.ends_with("10s") && scale.contains(" 5s"), "{scale}");
        }
    }

    #[test]
    fn each_column_has_the_mark_of_the_process_that_holds_most_of_it() {
        let holding = |held: &[(usize, u64)]| {
            let mut taker = Taker::default();
            held.iter()
                .for_each(|(part, held)| taker.parts[*part] = *held);
            taker
        };
        let mut parts = vec![0; PARTS];
        (parts[0], parts[60], parts[120], parts[239]) = (5, 5, 5, 5);
        let takers = [
            (7, holding(&[(0, 5), (60, 2), (239, 1)])),
            (9, holding(&[(60, 3), (239, 1)])),
        ];
        let lines = draw(
            &parts,
            &takers,
            Duration::from_secs(10),
            &Terminal::plain(84),
        );
        let marks: String = lines[1].chars().skip(3).collect();
        assert_eq!(marks.len(), 80);
        let at = |column: usize| marks.as_bytes()[column] as char;
        assert_eq!([at(0), at(20), at(40), at(79)], ['a', 'b', '-', '-']);
        assert_eq!(marks.chars().filter(|it| *it == ' ').count(), 76);
    }
}
