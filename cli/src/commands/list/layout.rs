//! Lays out lines with a mark, a name and columns in the width of the terminal. Without a terminal,
//! names are not cut and no column is left out, because a program reads the lines.

use unicode_width::UnicodeWidthStr;

use crate::inspect::health::Health;
use crate::inspect::sample::RateSample;
use crate::terminal::{Color, Terminal, shown};

pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) width: usize,
    /// The width from which on a terminal shows the column.
    pub(crate) from: usize,
}

/// The last column, which is not padded.
pub(crate) const HEALTH: Column = column("HEALTH", 11, 26);

pub(crate) const fn column(heading: &'static str, width: usize, from: usize) -> Column {
    Column {
        heading,
        width,
        from,
    }
}

pub(crate) struct Layout<'a> {
    terminal: Terminal,
    /// The columns that are shown, with their places among all columns.
    columns: Vec<(usize, &'a Column)>,
    /// The width to which names are padded: that of the longest of the first names.
    names: usize,
    /// The greatest width of a name.
    most: usize,
}

impl<'a> Layout<'a> {
    pub(crate) fn new<'n>(
        terminal: Terminal,
        columns: &'a [Column],
        names: impl Iterator<Item = &'n str>,
    ) -> Self {
        let all = columns.iter().enumerate();
        let is_shown = |it: &(usize, &Column)| !terminal.is_terminal || it.1.from <= terminal.width;
        let columns: Vec<_> = all.filter(is_shown).collect();
        let others: usize = columns.iter().map(|(_, it)| it.width + 1).sum();
        let most = match terminal.is_terminal {
            true => terminal.width.saturating_sub(others + 3).max(4),
            false => usize::MAX,
        };
        let longest = names.map(|it| shown(it, most).width()).max().unwrap_or(0);
        Self {
            terminal,
            columns,
            names: longest.clamp(4, 60).min(most),
            most,
        }
    }

    pub(crate) fn heading(&self) -> String {
        let cells: Vec<_> = self.columns.iter().map(|(_, it)| it.heading).collect();
        let line = self.line(' ', "NAME", |place| (cells[place].to_owned(), None));
        self.terminal.paint(Color::Bold, line.trim_end())
    }

    /// A line with these cells: one for each column, including those that are not shown.
    pub(crate) fn row(&self, mark: char, name: &str, cells: &[(String, Option<Color>)]) -> String {
        self.line(mark, name, |place| cells[self.columns[place].0].clone())
    }

    fn line(
        &self,
        mark: char,
        name: &str,
        cell: impl Fn(usize) -> (String, Option<Color>),
    ) -> String {
        let name = shown(name, self.most);
        let padding = " ".repeat(self.names.saturating_sub(name.width()));
        let mut line = format!("{mark} {name}{padding}");
        let last = self.columns.len().saturating_sub(1);
        for (place, (_, column)) in self.columns.iter().enumerate() {
            let (text, color) = cell(place);
            let padding = " ".repeat(column.width.saturating_sub(text.width()));
            let text =
                color.map_or_else(|| text.clone(), |color| self.terminal.paint(color, &text));
            line += &match place == last {
                true => format!("  {text}"),
                false => format!(" {padding}{text}"),
            };
        }
        line
    }
}

/// The mark, the word and their colour for the health of a limiter, or for its use if it is well.
pub(crate) fn health(sample: &RateSample) -> (char, &'static str, Color) {
    let share = super::share_in_use(sample).unwrap_or(0.0);
    match &sample.health {
        it if it.is_sick() => ('!', it.word(), Color::Bad),
        it @ (Health::Stopped | Health::Held(_)) => ('-', it.word(), Color::Warning),
        _ if share >= super::HOT => ('^', "hot", Color::Warning),
        it => (' ', it.word(), Color::Good),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column {
            heading: "RATE",
            width: 6,
            from: 40,
        },
        Column {
            heading: "USE",
            width: 4,
            from: 0,
        },
        HEALTH,
    ];

    fn lines(terminal: Terminal, name: &str) -> [String; 2] {
        let layout = Layout::new(terminal, &COLUMNS, [name].into_iter());
        let cells = ["5/1s", "75%", "ok"].map(|it| (it.to_owned(), None));
        [layout.heading(), layout.row('^', name, &cells)]
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_names_cut_in_the_middle() {
        let terminal = Terminal::real;
        let name = "a-limiter-with-a-long-name:eu";
        assert_eq!(
            lines(terminal(30), name),
            ["  NAME        USE  HEALTH", "^ a-li...:eu  75%  ok"].map(str::to_owned)
        );
        let [heading, row] = lines(terminal(200), name);
        assert!(heading.contains("RATE"), "{heading}");
        assert!(row.contains(name), "{row}");
    }

    #[test]
    fn a_program_reads_whole_names_and_all_columns() {
        let name = "a-limiter-with-a-long-name:eu".repeat(40);
        let [_, row] = lines(Terminal::plain(30), &name);
        assert!(row.contains(&name) && row.contains("5/1s"), "{row}");
    }
}
