//! Screens of a terminal as one SVG that shows them in turn. A row that several screens have is
//! written once.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{HEIGHT, WIDTH};

/// The size of a character, and the margin.
const CELL: (f64, f64) = (8.4, 17.0);
const MARGIN: f64 = 12.0;

/// The colours of a terminal, from black to white, and what stands for its own two.
const COLORS: [&str; 8] = [
    "#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#bac2de",
];
const TEXT: &str = "#cdd6f4";
const BACKGROUND: &str = "#1e1e2e";

/// What a screen shows, and for how long.
pub struct Frame {
    pub rows: Vec<Row>,
    pub millis: u64,
}

/// Texts with their columns.
pub type Row = Vec<(u16, Style, String)>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Style {
    color: vt100::Color,
    is_bold: bool,
    is_dim: bool,
    is_inverse: bool,
}

pub fn rows(screen: &vt100::Screen) -> Vec<Row> {
    (0..HEIGHT).map(|row| texts(screen, row)).collect()
}

fn texts(screen: &vt100::Screen, row: u16) -> Row {
    let mut texts: Row = Vec::new();
    for column in 0..WIDTH {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let style = Style {
            color: cell.fgcolor(),
            is_bold: cell.bold(),
            is_dim: cell.dim(),
            is_inverse: cell.inverse(),
        };
        let text = if cell.contents().is_empty() {
            " "
        } else {
            cell.contents()
        };
        match texts.last_mut() {
            Some((_, last, run)) if *last == style => *run += text,
            _ => texts.push((column, style, text.to_owned())),
        }
    }
    // Blanks show nothing, unless they are inverse.
    texts.retain(|(_, style, text)| style.is_inverse || !text.trim().is_empty());
    for (_, style, text) in &mut texts {
        if !style.is_inverse {
            text.truncate(text.trim_end().len());
        }
    }
    texts
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn as_svg(row: &Row) -> String {
    let mut svg = String::new();
    for (column, style, text) in row {
        let x = f64::from(*column) * CELL.0;
        let color = match style.color {
            vt100::Color::Idx(at) => COLORS[usize::from(at) % COLORS.len()],
            _ => TEXT,
        };
        let width = text.chars().count() as f64 * CELL.0;
        let fill = match style.is_inverse {
            true => {
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"-13\" width=\"{width:.1}\" height=\"17\" fill=\"{color}\"/>"
                );
                BACKGROUND
            }
            false => color,
        };
        let _ = write!(svg, "<text x=\"{x:.1}\"");
        if fill != TEXT {
            let _ = write!(svg, " fill=\"{fill}\"");
        }
        if style.is_bold {
            svg += " font-weight=\"bold\"";
        }
        if style.is_dim {
            svg += " opacity=\".6\"";
        }
        // Whatever the font, the columns stand below each other.
        let _ = write!(svg, " textLength=\"{width:.1}\">{}</text>", escaped(text));
    }
    svg
}

pub fn draw(frames: &[Frame]) -> String {
    let (width, height) = (
        f64::from(WIDTH) * CELL.0 + 2.0 * MARGIN,
        f64::from(HEIGHT) * CELL.1 + 2.0 * MARGIN,
    );
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let (mut rows, mut screens, mut shown) = (String::new(), String::new(), String::new());
    let whole: u64 = frames.iter().map(|it| it.millis).sum();
    let mut from = 0;
    for (place, frame) in frames.iter().enumerate() {
        let _ = write!(screens, "<g class=\"s{place}\">");
        for (line, row) in frame
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| !row.is_empty())
        {
            let svg = as_svg(row);
            let next = known.len();
            let at = *known.entry(svg.clone()).or_insert_with(|| {
                let _ = writeln!(rows, "<g id=\"r{next}\">{svg}</g>");
                next
            });
            let y = CELL.1 * (line as f64) + 14.0;
            let _ = write!(screens, "<use href=\"#r{at}\" y=\"{y:.0}\"/>");
        }
        screens += "</g>\n";
        let percent = |millis: u64| millis as f64 * 100.0 / whole as f64;
        let (start, end) = (percent(from), percent(from + frame.millis));
        from += frame.millis;
        let _ = writeln!(
            shown,
            ".s{place}{{animation:f{place} {whole}ms step-end infinite}}@keyframes f{place}{{0%{{opacity:0}}{start:.2}%{{opacity:1}}{end:.2}%{{opacity:0}}}}"
        );
    }
    let last = frames.len().saturating_sub(1);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\">\n\
         <title>A session of rratelimiter on a terminal</title>\n\
         <style>text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}\n\
         g[class]{{opacity:0}}\n{shown}\
         @media(prefers-reduced-motion:reduce){{g[class]{{animation:none}}.s{last}{{opacity:1}}}}</style>\n\
         <defs>\n{rows}</defs>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\" fill=\"{TEXT}\">\n{screens}</g>\n</svg>\n"
    )
}
