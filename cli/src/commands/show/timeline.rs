//! The window as a timeline: how many permits come back when.

use super::grants::PARTS;
use crate::report::lasting;
use crate::terminal::Terminal;
use std::time::Duration;

/// Two lines: a column for each part of the time from now on, and the scale.
pub(super) fn draw(parts: &[u64], interval: Duration, terminal: &Terminal) -> [String; 2] {
    let width = terminal.width.saturating_sub(4).min(PARTS);
    let columns: Vec<u64> = (0..width)
        .map(|column| {
            let (from, to) = (column * PARTS / width, (column + 1) * PARTS / width);
            parts[from..to].iter().sum()
        })
        .collect();
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
    [format!("  |{line}|"), format!("   {scale}")]
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
            let [line, scale] = draw(&parts, Duration::from_secs(10), &terminal);
            assert_eq!(
                (line.chars().count(), scale.chars().count()),
                (width, width - 1)
            );
            assert!(line.starts_with("  |# ") && line.ends_with(" .|"), "{line}");
            assert!(scale.ends_with("10s") && scale.contains(" 5s"), "{scale}");
        }
    }
}
