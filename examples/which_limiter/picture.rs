//! The picture of one run, as SVG.

use std::fmt::Write;

use crate::run::{Request, Run};
use crate::traffic::{LENGTH, PHASES};

const WIDTH: f64 = 880.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = WIDTH - 20.0;
const DENIED: f64 = 78.0;
/// The marks of granted requests: where they begin and end, from the top.
const GRANTED: (f64, f64) = (90.0, 106.0);
/// Below them, those of requests that go on later.
const GOES_ON: (f64, f64) = (140.0, 156.0);
const PLOT_HEIGHT: f64 = 84.0;
const GAP: f64 = 14.0;
const MARK: f64 = 3.0;
/// What the plots reach up to.
const MOST_LEFT: f64 = 10.0;

/// An SVG for light and dark pages: nothing behind it, and colours that stand out on both.
pub fn draw(run: &Run) -> String {
    let waits = run.requests.iter().any(|r| r.goes_on > r.time);
    let top = if waits { GOES_ON.1 } else { GRANTED.1 } + GAP;
    let bottom = top + PLOT_HEIGHT;
    let mut svg = head(run, bottom + 24.0);
    for &(from, until) in &run.locked {
        lock(&mut svg, from, until, top, bottom);
    }
    edges(&mut svg, run, bottom);
    axes(&mut svg, top, bottom);
    left(&mut svg, run, bottom);
    phases(&mut svg, run);
    requests(&mut svg, run, waits);
    svg + "</svg>\n"
}

fn head(run: &Run, height: f64) -> String {
    let (name, rule) = (&run.shown.name, &run.shown.rule);
    let (asked, granted) = (run.requests.len(), granted(run.requests.iter()));
    let what = PHASES.iter().enumerate().map(|(place, phase)| {
        let granted = granted_in(run, place);
        format!(" {}: {granted} of {} granted.", phase.name, phase.count)
    });
    let what: String = what.collect();
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title what">
<title id="title">{name}: {granted} of {asked} requests granted in {} seconds</title>
<desc id="what">{rule}. In order:{what}</desc>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #6e7781; }}
.head {{ font-size: 15px; font-weight: 600; }}
.end {{ text-anchor: end; }} .middle {{ text-anchor: middle; }}
.granted {{ fill: #3b82c4; }} .waits {{ stroke: #3b82c4; stroke-opacity: .5; }}
.denied {{ fill: none; stroke: #e8590c; stroke-width: 1.3; }}
.locked {{ fill: #e8590c; fill-opacity: .12; }}
.left {{ fill: #8a929c; fill-opacity: .25; stroke: none; }}
.line {{ fill: none; stroke: #8a929c; stroke-width: 1.3; }}
.axis {{ stroke: #8a929c; stroke-opacity: .6; }}
.edge {{ stroke: #8a929c; stroke-opacity: .9; stroke-dasharray: 3 3; }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #b1bac4; }} }}
</style>
<text x="20" y="24"><tspan class="head">{name}</tspan><tspan dx="12">{rule}</tspan></text>
<text class="end" x="{RIGHT}" y="24">{granted} of {asked} granted</text>
"#,
        LENGTH / 1_000,
    )
}

fn x(time: f64) -> f64 {
    LEFT + time / LENGTH as f64 * (RIGHT - LEFT)
}

fn at(time: i64) -> f64 {
    x(time.min(LENGTH) as f64)
}

fn axes(svg: &mut String, top: f64, bottom: f64) {
    let label = LEFT - 8.0;
    let _ = writeln!(
        svg,
        r#"<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{RIGHT}" y2="{bottom}"/>
<text class="end" x="{label}" y="{}">denied</text>
<text class="end" x="{label}" y="{}">granted</text>
<text class="end" x="{label}" y="{}">{MOST_LEFT}</text>
<text class="end" x="{label}" y="{}">left</text>
<text class="end" x="{label}" y="{}">0</text>"#,
        DENIED + 4.0,
        GRANTED.1 - 4.0,
        top + 8.0,
        (top + bottom) / 2.0 + 4.0,
        bottom,
    );
    for second in 0..=LENGTH / 1_000 {
        let (x, y) = (at(second * 1_000), bottom + 18.0);
        let class = if second * 1_000 < LENGTH {
            "middle"
        } else {
            "end"
        };
        let _ = writeln!(
            svg,
            r#"<line class="axis" x1="{x:.1}" y1="{bottom}" x2="{x:.1}" y2="{}"/>
<text class="{class}" x="{x:.1}" y="{y}">{second} s</text>"#,
            bottom + 5.0,
        );
    }
}

fn edges(svg: &mut String, run: &Run, bottom: f64) {
    for &edge in run.edges.iter().filter(|&&edge| edge < LENGTH) {
        let _ = writeln!(
            svg,
            r#"<line class="edge" x1="{0:.1}" y1="{1}" x2="{0:.1}" y2="{bottom}"/>"#,
            at(edge),
            DENIED - 8.0,
        );
    }
}

fn lock(svg: &mut String, from: i64, until: i64, top: f64, bottom: f64) {
    let (start, end, above) = (at(from), at(until), DENIED - 8.0);
    let _ = writeln!(
        svg,
        r#"<rect class="locked" x="{start:.1}" y="{above}" width="{:.1}" height="{}"/>
<text class="middle" x="{:.1}" y="{}">locked out</text>"#,
        end - start,
        bottom - above,
        (start + end) / 2.0,
        (top + bottom) / 2.0 + 4.0,
    );
}

/// What is left, as an area of steps with a line on it.
fn left(svg: &mut String, run: &Run, bottom: f64) {
    let y = |left: u64| bottom - left as f64 / MOST_LEFT * PLOT_HEIGHT;
    let mut steps = String::new();
    for &(time, left) in &run.left {
        let _ = match steps.is_empty() {
            true => write!(steps, "M{LEFT} {:.1}", y(left)),
            false => write!(steps, "H{:.1}V{:.1}", at(time), y(left)),
        };
    }
    let _ = writeln!(
        svg,
        r#"<path class="left" d="{steps}H{RIGHT}V{bottom}H{LEFT}Z"/>
<path class="line" d="{steps}H{RIGHT}"/>"#
    );
}

fn phases(svg: &mut String, run: &Run) {
    for (place, phase) in PHASES.iter().enumerate() {
        let (x, granted) = (x(phase.middle()), granted_in(run, place));
        let (name, count) = (phase.name, phase.count);
        let _ = writeln!(
            svg,
            r#"<text class="middle" x="{x:.1}" y="48">{name}</text>
<text class="middle" x="{x:.1}" y="63">{granted} of {count}</text>"#
        );
    }
}

fn requests(svg: &mut String, run: &Run, waits: bool) {
    if waits {
        let (label, y) = (LEFT - 8.0, GOES_ON.1 - 4.0);
        let _ = writeln!(
            svg,
            r#"<text class="end" x="{label}" y="{y}">goes on</text>"#
        );
    }
    for request in &run.requests {
        let here = at(request.time);
        if !request.is_granted {
            let _ = writeln!(
                svg,
                r#"<circle class="denied" cx="{here:.1}" cy="{DENIED}" r="1.8"/>"#
            );
            continue;
        }
        mark(svg, here, GRANTED);
        if waits && request.goes_on <= LENGTH {
            let there = at(request.goes_on);
            mark(svg, there, GOES_ON);
            let (from, to) = (GRANTED.1, GOES_ON.0);
            let _ = writeln!(
                svg,
                r#"<line class="waits" x1="{here:.1}" y1="{from}" x2="{there:.1}" y2="{to}"/>"#
            );
        }
    }
}

fn mark(svg: &mut String, x: f64, (from, to): (f64, f64)) {
    let _ = writeln!(
        svg,
        r#"<rect class="granted" x="{:.1}" y="{from}" width="{MARK}" height="{}" rx="1"/>"#,
        x - MARK / 2.0,
        to - from,
    );
}

fn granted_in(run: &Run, place: usize) -> usize {
    let before = PHASES[..place].iter().map(|phase| phase.count).sum();
    let requests = run.requests.iter().skip(before);
    granted(requests.take(PHASES[place].count))
}

fn granted<'a>(requests: impl Iterator<Item = &'a Request>) -> usize {
    requests.filter(|request| request.is_granted).count()
}
