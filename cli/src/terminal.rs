//! What the terminal can show: its width, and whether it has colours and Unicode.

use std::env;
use std::io::{self, IsTerminal};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    pub(crate) width: usize,
    pub(crate) has_colors: bool,
    has_unicode: bool,
    pub(crate) is_terminal: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Color {
    Good,
    Warning,
    Bad,
    Dim,
    Bold,
}

const NARROWEST: usize = 20;
const WIDEST: usize = 500;

impl Terminal {
    /// The terminal of the standard output. If the output is no terminal, `COLUMNS` sets the width,
    /// and `CLICOLOR_FORCE` turns on colours.
    pub(crate) fn of_stdout() -> Self {
        let stdout = io::stdout();
        let set = |name| env::var_os(name).is_some_and(|it| !it.is_empty());
        let says = |name, text: &str| env::var(name).is_ok_and(|it| it == text);
        let size = rustix::termios::tcgetwinsize(&stdout);
        let width = size.ok().map(|size| usize::from(size.ws_col));
        let columns = || env::var("COLUMNS").ok()?.parse().ok();
        let width = width.filter(|it| *it > 0).or_else(columns);
        let is_able = stdout.is_terminal() && !says("TERM", "dumb");
        let is_forced = set("CLICOLOR_FORCE") && !says("CLICOLOR_FORCE", "0");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"];
        let locale = locale
            .iter()
            .find_map(|it| env::var(it).ok().filter(|it| !it.is_empty()));
        let locale = locale.unwrap_or_default().to_lowercase();
        Self {
            width: width.unwrap_or(80).clamp(NARROWEST, WIDEST),
            has_colors: !set("NO_COLOR") && (is_able || is_forced),
            is_terminal: stdout.is_terminal(),
            has_unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// An output that is no terminal, without colours and with ASCII only.
    #[cfg(test)]
    pub(crate) fn plain(width: usize) -> Self {
        Self {
            width,
            has_colors: false,
            has_unicode: false,
            is_terminal: false,
        }
    }

    /// A terminal of this width, without colours and with ASCII only.
    #[cfg(test)]
    pub(crate) fn real(width: usize) -> Self {
        Self {
            is_terminal: true,
            ..Self::plain(width)
        }
    }

    pub(crate) fn paint(&self, color: Color, text: &str) -> String {
        if !self.has_colors {
            return text.to_owned();
        }
        let code = match color {
            Color::Good => "32",
            Color::Warning => "33",
            Color::Bad => "31",
            Color::Dim => "2",
            Color::Bold => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Splits a text into lines: on a terminal, lines that fit its width, indented from the second
    /// on; elsewhere a single line, which is easier to search.
    pub(crate) fn lines(&self, text: &str, indent: usize) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in text.split_inclusive(' ') {
            let line = lines.last().map_or(0, |it| it.chars().count());
            let is_full = line + word.trim_end().chars().count() > self.width;
            if self.is_terminal && is_full && line > indent {
                lines.push(" ".repeat(indent));
            }
            if let Some(line) = lines.last_mut() {
                *line += word;
            }
        }
        lines
    }

    /// The text of a key that follows `used` columns of a line. It is cut if the output is a
    /// terminal.
    pub(crate) fn fitted(&self, text: &str, used: usize) -> String {
        self.fitted_to(text, self.width.saturating_sub(used))
    }

    /// The text of a key in at most `columns` columns. It is cut if the output is a terminal.
    pub(crate) fn fitted_to(&self, text: &str, columns: usize) -> String {
        match self.is_terminal {
            true => shown(text, columns),
            false => shown(text, usize::MAX),
        }
    }

    /// The character for a column of a chart whose height is this number of eighths.
    pub(crate) fn column(&self, eighths: usize) -> char {
        let columns: [char; 9] = match self.has_unicode {
            true => [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            false => [' ', '.', '.', '-', '-', '=', '=', '#', '#'],
        };
        columns[eighths.min(8)]
    }

    /// A bar of `width` characters, of which the share `part / whole` is full.
    pub(crate) fn bar(&self, part: u64, whole: u64, width: usize) -> String {
        let share = part.min(whole) as f64 / whole.max(1) as f64;
        let full = (share * width as f64).round() as usize;
        let (full_mark, empty_mark) = match self.has_unicode {
            true => ("█", "░"),
            false => ("#", "."),
        };
        full_mark.repeat(full) + &empty_mark.repeat(width - full)
    }
}

/// The text of a key, with control characters escaped, in at most `most` columns. It is cut in the
/// middle, because names often differ only at their ends.
pub(crate) fn shown(text: &str, most: usize) -> String {
    const CUT: &str = "...";
    let escaped: String = text.escape_debug().collect();
    if escaped.width() <= most {
        return escaped;
    }
    let kept = most.saturating_sub(CUT.len());
    let head = fitting(escaped.chars(), kept.div_ceil(2));
    let tail = fitting(escaped.chars().rev(), kept / 2);
    let tail: String = tail.chars().rev().collect();
    let cut = &CUT[..CUT.len().min(most)];
    format!("{head}{cut}{tail}")
}

/// The first characters, as many as fit in `columns` columns.
fn fitting(characters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    let fits = |it: &char| {
        used += it.width().unwrap_or(0);
        used <= columns
    };
    characters.take_while(fits).collect()
}

/// A number of at most 6 characters: `999999`, `1.0M`, `9.0P`.
pub(crate) fn compact(number: u64) -> String {
    const UNITS: [(u64, char); 4] = [
        (1_000_000_000_000_000, 'P'),
        (1_000_000_000_000, 'T'),
        (1_000_000_000, 'G'),
        (1_000_000, 'M'),
    ];
    match UNITS.iter().find(|(unit, _)| number >= *unit) {
        Some((unit, letter)) => {
            let tenths = number / (unit / 10);
            format!("{}.{}{letter}", tenths / 10, tenths % 10)
        }
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_colours_gets_no_escape_sequence() {
        assert_eq!(Terminal::plain(80).paint(Color::Bad, "lost"), "lost");
        let colored = Terminal {
            has_colors: true,
            ..Terminal::plain(80)
        };
        assert_eq!(colored.paint(Color::Bad, "lost"), "\x1b[31mlost\x1b[0m");
    }

    #[test]
    fn a_long_text_is_one_line_unless_it_is_on_a_terminal() {
        let text = "  a: twelve letters here";
        assert_eq!(Terminal::plain(12).lines(text, 4), [text]);
        let terminal = Terminal {
            is_terminal: true,
            ..Terminal::plain(12)
        };
        assert_eq!(
            terminal.lines(text, 4),
            ["  a: twelve ", "    letters ", "    here"]
        );
        assert_eq!(
            terminal.lines("averylongwordfirst b", 4),
            ["averylongwordfirst ", "    b"]
        );
    }

    #[test]
    fn a_bar_has_its_width_whatever_it_shows() {
        for (part, whole, bar) in [(0, 0, "...."), (1, 4, "#..."), (9, 4, "####")] {
            assert_eq!(Terminal::plain(80).bar(part, whole, 4), bar);
        }
    }

    #[test]
    fn a_text_is_escaped_and_then_cut() {
        assert_eq!(shown("a\x1bb", 20), "a\\u{1b}b");
        assert_eq!(shown("abcdefgh", 6), "ab...h");
        assert_eq!(shown("abcdefgh", 8), "abcdefgh");
        assert_eq!(shown("abcdefgh", 2), "..");
        assert_eq!(shown("\u{202e}nimda", 20), "\\u{202e}nimda");
        // Each of these characters has two columns.
        assert_eq!(shown("限流器限流器", 9), "限...器");
    }

    #[test]
    fn a_large_number_is_written_in_few_characters() {
        for (number, text) in [
            (0, "0"),
            (999_999, "999999"),
            (1_000_000, "1.0M"),
            (999_999_999, "999.9M"),
            (1 << 53, "9.0P"),
        ] {
            assert_eq!(compact(number), text);
        }
    }
}
