//! A picture with a bar for each contender of a workload.

use std::fmt::Write;

/// What is drawn of a contender.
pub struct Bar {
    pub name: String,
    pub kind: Kind,
    pub value: f64,
    /// Stands behind the bar.
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    /// Ours, and may leave the scale.
    OursBeyond,
    /// A script alone, without the rest of its client.
    Bare,
    Peer,
    /// Grants without asking the server, and more than the limit; may leave the scale.
    Approximate,
}

const WIDTH: f64 = 880.0;
const MARGIN: f64 = 20.0;
const HEAD: f64 = 62.0;
const STEP: f64 = 22.0;
const BAR: f64 = 15.0;
/// What the names take, and what the texts behind the longest bar do.
const NAMES: f64 = 280.0;
const TEXTS: f64 = 270.0;

/// An SVG for light and dark pages: nothing behind it, and colours that stand out on both.
pub fn draw(title: &str, subtitle: &str, bars: &[Bar]) -> String {
    let within = |bar: &&Bar| !matches!(bar.kind, Kind::Approximate | Kind::OursBeyond);
    let within = bars.iter().filter(within);
    let most = within
        .map(|bar| bar.value)
        .fold(f64::MIN_POSITIVE, f64::max);
    let longest = WIDTH - 2.0 * MARGIN - NAMES - TEXTS;
    let height = HEAD + STEP * bars.len() as f64 + MARGIN / 2.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">
<title>{title}</title>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #6e7781; }}
.head {{ font-size: 15px; font-weight: 600; }}
.name {{ text-anchor: end; }}
.ours {{ fill: #e8590c; }} .bare {{ fill: #8a929c; }} .peer {{ fill: #3b82c4; }} .approximate {{ fill: #3b82c4; opacity: 0.5; }}
text.ours {{ font-weight: 600; }} text.approximate {{ opacity: 1; }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #b1bac4; }} }}
</style>
<text class="head" x="{MARGIN}" y="24">{title}</text>
<text x="{MARGIN}" y="44">{subtitle}</text>
"#
    );
    for (place, bar) in bars.iter().enumerate() {
        let top = HEAD + place as f64 * STEP;
        let base = top + BAR - 3.0;
        let (class, name, text) = (bar.kind.class(), &bar.name, &bar.text);
        let start = MARGIN + NAMES;
        let length = (bar.value / most * longest).clamp(1.0, longest);
        let leaves = bar.value > most;
        let behind = start + length + if leaves { 22.0 } else { 6.0 };
        let _ = writeln!(
            svg,
            r#"<text class="name {class}" x="{:.0}" y="{base:.0}">{name}</text>
<rect class="{class}" x="{start:.0}" y="{top:.0}" width="{length:.1}" height="{BAR}" rx="2"/>"#,
            start - 8.0,
        );
        if leaves {
            let (from, to, middle) = (start + length, start + length + 14.0, top + BAR / 2.0);
            let bottom = top + BAR;
            let _ = writeln!(
                svg,
                r#"<path class="{class}" d="M{from:.0} {top:.0}L{to:.0} {middle:.1}L{from:.0} {bottom:.0}Z"/>"#
            );
        }
        let _ = writeln!(svg, r#"<text x="{behind:.0}" y="{base:.0}">{text}</text>"#);
    }
    svg + "</svg>\n"
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Ours | Self::OursBeyond => "ours",
            Self::Bare => "bare",
            Self::Peer => "peer",
            Self::Approximate => "approximate",
        }
    }
}
