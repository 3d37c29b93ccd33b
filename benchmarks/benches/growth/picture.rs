//! The picture: the longest call by the number of grants, a panel for each operation, both axes
//! logarithmic.

use std::fmt::Write;

use crate::fixture::{Cost, Costs};

const WIDTH: f64 = 920.0;
const HEAD: f64 = 56.0;
const PANEL: (f64, f64) = (220.0, 120.0);
const GAP: (f64, f64) = (76.0, 56.0);
/// Left of the first panel, for the labels of its axis.
const MARGIN: f64 = 52.0;
const COLUMNS: usize = 3;
/// The least and the most that is shown, in powers of ten of a ms.
const SHOWN: (f64, f64) = (-2.0, 4.0);

/// An SVG for light and dark pages: nothing behind it, and colours that stand out on both.
pub fn draw(sizes: &[u32], rows: &[(&str, Vec<Costs>)]) -> String {
    let lines = rows.len().div_ceil(COLUMNS) as f64;
    let height = HEAD + lines * (PANEL.1 + GAP.1);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">
<title>The longest call by the number of grants</title>
<style>
text {{ font: 11px system-ui, sans-serif; fill: #6e7781; }}
.head {{ font-size: 15px; font-weight: 600; }}
.end {{ text-anchor: end; }}
.grid {{ stroke: #8a929c; stroke-opacity: .35; }}
polyline {{ fill: none; stroke-width: 2.5; }}
polyline.ours {{ stroke: #e8590c; }} polyline.redisson {{ stroke: #3b82c4; }}
text.ours {{ fill: #e8590c; font-weight: 600; }} text.redisson {{ fill: #3b82c4; font-weight: 600; }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #b1bac4; }} }}
</style>
<text class="head" x="30" y="24">The longest call, in ms, by the number of grants</text>
<text class="ours" x="640" y="24">this crate</text><text class="redisson" x="720" y="24">Redisson 4.7.0</text>
"#
    );
    for (place, (name, costs)) in rows.iter().enumerate() {
        let x = MARGIN + (place % COLUMNS) as f64 * (PANEL.0 + GAP.0);
        let y = HEAD + (place / COLUMNS) as f64 * (PANEL.1 + GAP.1);
        panel(&mut svg, sizes, name, costs, x, y);
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, sizes: &[u32], name: &str, costs: &[Costs], x: f64, y: f64) {
    let _ = writeln!(svg, r#"<text x="{x}" y="{}">{name}</text>"#, y - 4.0);
    let height = |millis: f64| {
        let power = millis.max(1e-9).log10().clamp(SHOWN.0, SHOWN.1);
        y + PANEL.1 * (1.0 - (power - SHOWN.0) / (SHOWN.1 - SHOWN.0))
    };
    for (millis, label) in [
        (0.01, "0.01"),
        (1.0, "1"),
        (100.0, "100"),
        (10_000.0, "10,000"),
    ] {
        let at = height(millis);
        let _ = writeln!(
            svg,
            r#"<line class="grid" x1="{x}" x2="{}" y1="{at:.1}" y2="{at:.1}"/><text class="end" x="{}" y="{:.1}">{label}</text>"#,
            x + PANEL.0,
            x - 4.0,
            at + 4.0,
        );
    }
    let step = PANEL.0 / (sizes.len() - 1) as f64;
    for (place, &size) in sizes.iter().enumerate() {
        let _ = writeln!(
            svg,
            r#"<text x="{:.0}" y="{:.0}" text-anchor="middle">{}</text>"#,
            x + place as f64 * step,
            y + PANEL.1 + 14.0,
            short(size),
        );
    }
    let of_ours: fn(&Costs) -> Option<Cost> = |costs| Some(costs.ours);
    let of_redisson: fn(&Costs) -> Option<Cost> = |costs| costs.redissons;
    for (class, cost) in [("redisson", of_redisson), ("ours", of_ours)] {
        let points = costs.iter().enumerate().filter_map(|(place, costs)| {
            let across = x + place as f64 * step;
            let millis = cost(costs)?.longest.as_secs_f64() * 1_000.0;
            Some(format!("{across:.1},{:.1}", height(millis)))
        });
        let points: Vec<_> = points.collect();
        if points.is_empty() {
            continue;
        }
        let _ = writeln!(
            svg,
            r#"<polyline class="{class}" points="{}"/>"#,
            points.join(" ")
        );
    }
}

/// A round number in a few letters: 100k, 1M.
fn short(number: u32) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}M", number / 1_000_000),
    }
}
