//! The picture: decisions a second of each contender, a panel for each workload.

use std::fmt::Write;

use benchmarks::{rounded, thousands};

use crate::{
    contender::Contender,
    numbers::micros,
    sample::{Sampled, Summary},
    workload::{MANY, Traffic},
};

const WIDTH: f64 = 880.0;
const HEAD: f64 = 48.0;
const MARGIN: f64 = 20.0;
const PANEL: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
const TITLE: f64 = 22.0;
const STEP: f64 = 22.0;
const BAR: f64 = 15.0;
/// What the names of the contenders take, and what the numbers beside the longest bar do.
const NAMES: f64 = 108.0;
const NUMBERS: f64 = 150.0;

/// An SVG for light and dark pages: nothing behind it, and colours that stand out on both.
pub fn draw(sampled: &[Sampled]) -> String {
    let shown: Vec<&Sampled> = sampled.iter().filter(|s| is_shown(s)).collect();
    let bars = shown.iter().map(|s| bars(s).len()).max();
    let panel_height = TITLE + STEP * bars.unwrap_or_default() as f64 + MARGIN;
    let height = HEAD + shown.len().div_ceil(2) as f64 * panel_height;
    let right = WIDTH - MARGIN;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">
<title>Decisions a second of each contender</title>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #6e7781; }}
.head {{ font-size: 15px; font-weight: 600; }}
.name {{ text-anchor: end; }}
.ours {{ fill: #e8590c; }} .script {{ fill: #8a929c; }} .redisson {{ fill: #3b82c4; }}
text.ours {{ font-weight: 600; }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #b1bac4; }} }}
</style>
<text class="head" x="{MARGIN}" y="26">Decisions per second · p99</text>
<text class="name" x="{right}" y="26">Grey: the script alone, sent without the rest of its client. Each panel has its own scale.</text>
"#
    );
    for (place, sampled) in shown.into_iter().enumerate() {
        let x = MARGIN + (place % 2) as f64 * (PANEL + MARGIN);
        let y = HEAD + (place / 2) as f64 * panel_height;
        panel(&mut svg, sampled, x, y);
    }
    svg + "</svg>\n"
}

/// The table has all; here, of the denied, one stands for the rest.
fn is_shown(sampled: &Sampled) -> bool {
    sampled.workload.traffic == Traffic::Granted || sampled.workload.callers == MANY
}

fn bars(sampled: &Sampled) -> Vec<&Summary> {
    let all = sampled.summaries.iter();
    all.filter(|summary| summary.contender != Contender::ThisCrateByName)
        .collect()
}

fn panel(svg: &mut String, sampled: &Sampled, x: f64, y: f64) {
    let bars = bars(sampled);
    let most = bars.iter().map(|bar| bar.throughput).fold(0.0, f64::max);
    let _ = writeln!(
        svg,
        r#"<text class="head" x="{x}" y="{:.0}">{}</text>"#,
        y + 12.0,
        sampled.workload
    );
    for (place, bar) in bars.into_iter().enumerate() {
        let top = y + TITLE + place as f64 * STEP;
        let base = top + BAR - 3.0;
        let (name, class) = name_and_class(bar.contender);
        let start = x + NAMES;
        let length = (bar.throughput / most * (PANEL - NAMES - NUMBERS)).max(1.0);
        let _ = writeln!(
            svg,
            r#"<text class="name {class}" x="{:.0}" y="{base:.0}">{name}</text>
<rect class="{class}" x="{start:.0}" y="{top:.0}" width="{length:.1}" height="{BAR}" rx="2"/>
<text x="{:.0}" y="{base:.0}">{} · {}</text>"#,
            start - 8.0,
            start + length + 6.0,
            thousands(rounded(bar.throughput)),
            micros(bar.p99),
        );
    }
}

fn name_and_class(contender: Contender) -> (&'static str, &'static str) {
    match contender {
        Contender::ThisCrate | Contender::ThisCrateByName => ("this crate", "ours"),
        Contender::OurScript => ("our script", "script"),
        Contender::RedissonScript => ("Redisson's script", "script"),
        Contender::Redisson => ("Redisson", "redisson"),
        Contender::RedissonAsync => ("Redisson, async", "redisson"),
    }
}
