//! The sections of the page that these figures fill, each between two comments, and their pictures.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use benchmarks::bars::{self, Bar, Kind};
use benchmarks::blocks;

use crate::Plan;
use crate::contender::Contender;
use crate::goals;
use crate::grants::{CALLERS, Granted, LIMIT, PROCESSES};
use crate::servers::Servers;
use crate::speed::{LEADING, OTHERS, Speed, Speeds, Workload};

/// A section: its title, the file of its picture, what the picture shows, and what the section says
/// first.
struct Section {
    title: &'static str,
    picture: &'static str,
    shows: &'static str,
    text: &'static str,
}

const SECTIONS: [Section; 4] = [
    Section {
        title: "A limit for each user",
        picture: "benchmarks-users.svg",
        shows: "decisions a second · beside the bare script · CPU of client + server for each",
        text: "256 callers in one process ask for a random one of 10,000 keys, again as soon as they have an answer. All are granted.",
    },
    Section {
        title: "One hot limiter",
        picture: "benchmarks-hot.svg",
        shows: "decisions a second · beside the bare script · CPU of client + server for each",
        text: "256 callers in one process ask for one key. This crate sends what arrives meanwhile as one call.",
    },
    Section {
        title: "The latency of one caller",
        picture: "benchmarks-latency.svg",
        shows: "p50 of a decision, shorter is better · beside the bare script",
        text: "One caller asks for one key, so that nothing is shared.",
    },
    Section {
        title: "Through the HTTP layer",
        picture: "benchmarks-http.svg",
        shows: "requests a second · beside the first · CPU of client + server for each",
        text: "Tower layers in front of a handler that answers at once, with the user in a header and the header fields that say what \
               is left: 256 callers, 10,000 users, on Redis.",
    },
];

/// What is written here, in the order of [`write`].
const BLOCKS: [&str; 3] = ["peers", "grants", "other peers"];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The page as it is. Read before anything is measured, as it may lack a place for the figures.
pub fn read() -> String {
    let page = fs::read_to_string(docs().join("benchmarks.md")).expect("the page");
    for name in BLOCKS {
        let has_block = blocks::text(&page, name).is_some();
        assert!(
            has_block,
            "the page has no block \"{name}\": run the benchmark side_by_side first"
        );
    }
    page
}

/// Writes the page and the pictures, or what they would be to a folder for temporary files.
pub fn write(
    page: &str,
    speeds: &Speeds,
    granted: &[Granted],
    server: &Servers,
    plan: Plan,
    is_quick: bool,
) {
    let mut leading = String::new();
    let mut pictures = Vec::new();
    for ((section, workload), speeds) in SECTIONS.iter().zip(&LEADING).zip(&speeds.leading) {
        let _ = write!(
            leading,
            "\n## {}\n\n{}\n\n![{}][{}]\n\n",
            section.title, section.text, section.title, section.picture
        );
        table(&mut leading, workload, speeds);
        pictures.push((section.picture, picture(section, workload, speeds)));
    }
    leading.push('\n');
    for section in &SECTIONS {
        let _ = writeln!(leading, "[{0}]: {0}", section.picture);
    }
    let grants = grants(granted);
    let mut others = String::new();
    for (workload, speeds) in OTHERS.iter().zip(&speeds.others) {
        let _ = writeln!(others, "\n{}:\n", workload.name);
        table(&mut others, workload, speeds);
    }
    let _ = write!(others, "\n{}", how(server, plan));
    println!("{leading}{grants}{others}");
    let texts = BLOCKS.iter().zip([leading, grants, others]);
    let page = texts.fold(page.to_owned(), |page, (name, text)| {
        blocks::with_text(&page, name, &text).expect("it was there when the page was read")
    });
    let folder = match is_quick {
        true => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target"),
        false => docs(),
    };
    fs::create_dir_all(&folder).expect("the folder of the page");
    fs::write(folder.join("benchmarks.md"), page).expect("the page, written");
    for (name, picture) in pictures {
        fs::write(folder.join(name), picture).expect("a picture, written");
    }
    eprintln!("peers: written to {}", folder.display());
}

/// What the others are compared with: the bare script, or else the first.
fn base(speeds: &[Speed]) -> Option<&Speed> {
    let bare = speeds
        .iter()
        .find(|speed| speed.contender == Contender::Bare);
    bare.or(speeds.first())
}

fn name(contender: Contender) -> String {
    match contender.kind() {
        Kind::Ours => format!("**{}**", contender.name()),
        _ => contender.name().to_owned(),
    }
}

fn table(text: &mut String, workload: &Workload, speeds: &[Speed]) {
    let shows_median = workload.has_median();
    let (p50, line) = match shows_median {
        true => ("| p50 | ratio ", "|--:|--:"),
        false => ("", ""),
    };
    let _ = writeln!(
        text,
        "| limiter | decisions/s | ± | ratio {p50}| client CPU | server CPU | both, ratio |\n|---|--:|--:|--:{line}|--:|--:|--:|"
    );
    let Some(base) = base(speeds) else {
        return;
    };
    for speed in speeds {
        let name = name(speed.contender);
        let median = match shows_median {
            true => format!(
                "| {} | {:.2}× ",
                micros(speed.median),
                speed.median / base.median
            ),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "| {name} | {} | {:.0} % | {:.2}× {median}| {} | {} | {:.2}× |",
            hundreds(speed.per_second),
            speed.spread * 100.0,
            speed.per_second / base.per_second,
            micros(speed.client),
            micros(speed.server),
            (speed.client + speed.server) / (base.client + base.server),
        );
    }
    let missing = workload.contenders.iter();
    let missing = missing.filter(|it| speeds.iter().all(|speed| speed.contender != **it));
    for contender in missing {
        let _ = writeln!(
            text,
            "\n{} left requests without an answer.",
            contender.name()
        );
    }
    let goals = goals::lines(workload, speeds);
    if !goals.is_empty() {
        let _ = writeln!(text, "{goals}");
    }
}

fn picture(section: &Section, workload: &Workload, speeds: &[Speed]) -> String {
    let Some(base) = base(speeds) else {
        return String::new();
    };
    // What answers without asking the server would leave nothing of the others to be seen.
    let is_kept = |speed: &&Speed| !(workload.has_median() && speed.contender.answers_itself());
    let bars = speeds.iter().filter(is_kept).map(|speed| {
        let (value, text) = match workload.has_median() {
            true => {
                let ratio = speed.median / base.median;
                (
                    speed.median,
                    format!("{} · {ratio:.2}×", micros(speed.median)),
                )
            }
            false => {
                let text = format!(
                    "{} · {:.2}× · {} + {}",
                    hundreds(speed.per_second),
                    speed.per_second / base.per_second,
                    micros(speed.client),
                    micros(speed.server)
                );
                (speed.per_second, text)
            }
        };
        Bar {
            name: speed.contender.name().to_owned(),
            kind: match speed.contender {
                Contender::Leased => Kind::OursBeyond,
                other => other.kind(),
            },
            value,
            text,
        }
    });
    let bars: Vec<Bar> = bars.collect();
    bars::draw(section.title, section.shows, &bars)
}

fn grants(granted: &[Granted]) -> String {
    let mut text = format!(
        "\n## What they grant of {LIMIT} a second\n\n\
         {PROCESSES} processes with {CALLERS} callers each ask all the time for one key with this limit:\n\n\
         | limiter | granted a second, on average | most in any second |\n|---|--:|--:|\n"
    );
    for granted in granted {
        let name = name(granted.contender);
        let _ = writeln!(
            text,
            "| {name} | {:.0} | {} |",
            granted.per_second, granted.most
        );
    }
    text += "\nThe seconds are those of the callers' clock, which sees a grant when its answer arrives. Two windows of a fixed window, and a \
             bucket that is full at first, together with what flows in, grant up to twice the limit in a second; limiters that keep each \
             grant, such as RateLimiter, do not. A cache that is synchronised from time to time exceeds the limit by what its clients grant \
             in between.\n";
    text
}

fn how(server: &Servers, plan: Plan) -> String {
    format!(
        "The ratio compares with a script that does INCRBY, and PEXPIRE for a new key, called over one connection. CPU is the CPU time \
         of all client processes and of all servers, divided by the decisions. Medians of {} rounds ({} for a limit for each user, for \
         one caller and through the HTTP layer) of {} ms in which the limiters take turns, each on an emptied server, with 100,000,000 a minute to grant, or 1 where most \
         requests are denied; ± is half of the range of the rounds. Redis {}. limitador and trypema have no client for a cluster; trypema \
         asks for Redis 7.2.\n",
        plan.rounds,
        plan.close_rounds,
        plan.round.as_millis(),
        server.version(),
    )
}

/// To the next hundred.
fn hundreds(number: f64) -> String {
    benchmarks::thousands((number / 100.0).round() as u64 * 100)
}

fn micros(micros: f64) -> String {
    match micros {
        ..9.95 => format!("{micros:.1} µs"),
        _ => format!("{micros:.0} µs"),
    }
}
