//! The session that the README shows: recorded from the program on a terminal, with a server of its
//! own, by `RECORD_SESSION=1 cargo test -p redisson-rate-limiter-cli --test cli session`.

mod picture;

use std::io::Read;
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;
use std::{env, fs};

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::Cli;
use crate::support::servers::Server;
use crate::watchdog::ended;
use picture::Frame;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/session.svg");
pub const WIDTH: u16 = 92;
pub const HEIGHT: u16 = 24;
/// The largest size of the picture, in bytes: a page loads all of it.
const LARGEST: usize = 64 * 1024;

/// What is typed, and for how long its output is shown, in ms. A comment is typed and not run.
const TYPED: [(&str, u64); 9] = [
    ("rratelimiter set orders:api 8/10s", 1_200),
    ("rratelimiter try orders:api 3", 1_200),
    (
        "rratelimiter try orders:api 6 || echo \"exit code $?\"",
        1_800,
    ),
    ("rratelimiter show orders:api", 5_000),
    ("# commands at the pace of the limiter", 600),
    (
        "seq 3 | rratelimiter run orders:api --each -- echo request",
        2_200,
    ),
    (
        "# Redisson has sent an acquire of 4 twice: they are taken, and no grant has them",
        1_200,
    ),
    ("redis-cli DECRBY '{orders:api}:value' 4 >/dev/null", 800),
    ("rratelimiter doctor orders:api --fix --yes", 4_500),
];
const WATCHED: &str = "rratelimiter watch";

type Screen = Arc<Mutex<vt100::Parser>>;

fn contents(screen: &Screen) -> Vec<picture::Row> {
    picture::rows(screen.lock().unwrap().screen())
}

/// Runs a command of the shell on this screen. `keys` are what a person types meanwhile, each after
/// this many ms; the screen is recorded before each.
fn run(cli: &Cli, screen: &Screen, typed: &str, keys: &[(u64, &str)]) -> Vec<Frame> {
    let program = cli.command("").get_program().display().to_string();
    let mut shell = Command::new("bash");
    let folder = std::path::Path::new(&program).parent().unwrap().display();
    shell.args([
        "-c",
        &format!(
            "PATH={folder}:$PATH; redis-cli() {{ command redis-cli -p {} \"$@\"; }}; {typed}",
            cli.server.port()
        ),
    ]);
    shell
        .env("REDIS_URL", cli.server.url())
        .env("LANG", "C.UTF-8");
    let terminal = PseudoTerminal::start(&shell, WIDTH, HEIGHT);
    let (mut person, mut child) = terminal.into_parts();
    let mut reader = person.try_clone().unwrap();
    let seen = Arc::clone(screen);
    let reading = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut bytes) {
            seen.lock().unwrap().process(&bytes[..read]);
        }
    });
    let mut frames = Vec::new();
    for (after, key) in keys {
        sleep(Duration::from_millis(*after));
        frames.push(Frame {
            rows: contents(screen),
            millis: *after,
        });
        std::io::Write::write_all(&mut person, key.as_bytes()).unwrap();
    }
    ended(&mut child);
    reading.join().unwrap();
    frames
}

/// Types a text behind the prompt, and returns the screen that shows it.
fn type_in(screen: &Screen, text: &str) -> Frame {
    let style = if text.starts_with('#') { "2" } else { "0" };
    let typed = format!("\x1b[32m$\x1b[0m \x1b[{style}m{text}\x1b[0m\r\n");
    screen.lock().unwrap().process(typed.as_bytes());
    Frame {
        rows: contents(screen),
        millis: 500,
    }
}

fn size(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).unwrap()
}

fn record() -> Vec<Frame> {
    let lazy = ["expire", "eviction", "server-del"].map(|it| format!("--lazyfree-lazy-{it}"));
    let lazy = lazy.iter().flat_map(|it| [&it[..], "yes"]);
    let settings: Vec<_> = lazy.chain(["--appendonly", "yes"]).collect();
    let server = Server::start_with(&settings);
    let cli = Cli { server };
    let screen = Arc::new(Mutex::new(vt100::Parser::new(size(HEIGHT), size(WIDTH), 0)));
    let mut frames = Vec::new();
    for (text, millis) in TYPED {
        frames.push(type_in(&screen, text));
        if !text.starts_with('#') {
            run(&cli, &screen, text, &[]);
        }
        frames.push(Frame {
            rows: contents(&screen),
            millis,
        });
    }
    // Limiters in use, for the live view.
    let mut callers = Vec::new();
    for (name, rate, pause) in [
        ("mails", "30/5s", "0.1"),
        ("login:alice", "4/4s", "0.7"),
        ("orders:api", "8/10s", "0.8"),
    ] {
        cli.run(&format!("set {name} {rate}"));
        let program = cli.command("").get_program().display().to_string();
        let asks =
            format!("while {program} try {name} >/dev/null; [ $? -lt 2 ]; do sleep {pause}; done");
        let mut caller = Command::new("sh");
        caller
            .args(["-c", &asks])
            .env("REDIS_URL", cli.server.url());
        callers.push(caller.stderr(Stdio::null()).spawn().unwrap());
    }
    frames.push(type_in(&screen, WATCHED));
    let keys = [
        (8_000, "r"),
        (1_000, "r"),
        (1_000, "j"),
        (1_000, "r"),
        (1_000, "r"),
        (1_000, "q"),
    ];
    let mut watched = run(&cli, &screen, &format!("{WATCHED} --every 250ms"), &keys);
    watched[0].millis = 1_000;
    frames.extend(watched);
    for mut caller in callers {
        caller.kill().unwrap();
        caller.wait().unwrap();
    }
    frames
}

#[test]
fn the_session_of_the_readme_is_small_and_of_these_commands() {
    if env::var_os("RECORD_SESSION").is_some() {
        fs::write(FILE, picture::draw(&record())).unwrap();
    }
    let svg = fs::read_to_string(FILE).unwrap();
    assert!(svg.len() <= LARGEST, "{} bytes", svg.len());
    for (text, _) in TYPED.iter().chain([&(WATCHED, 0)]) {
        assert!(
            svg.contains(&picture::escaped(text)),
            "record it again: {text}"
        );
    }
}
