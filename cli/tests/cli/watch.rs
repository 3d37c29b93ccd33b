use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::servers::Server;
use crate::support::servers::cluster::Cluster;
use crate::support::{Cli, Ran, program};
use crate::watchdog::{Lines, ended, output, until};

/// What is written to a terminal when the picture is left: what restores the earlier screen, and
/// the cursor.
const LEFT: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

fn assert_left(terminal: &PseudoTerminal) {
    let output = &terminal.output;
    for told in LEFT {
        assert!(output.contains(told), "{told:?}: {output:?}");
    }
}

#[test]
fn one_look_is_a_table_or_an_object() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    cli.run("set mails 4/1h");
    cli.run("try orders 3");
    let looked = cli.json("watch --once --every 1h");
    let limiters = looked["limiters"].as_array().unwrap();
    let seen: Vec<_> = limiters
        .iter()
        .map(|it| (&it["name"], &it["available"], &it["granted"]))
        .collect();
    let orders = (&json!("orders"), &json!(1), &json!(3));
    assert_eq!(seen, [orders, (&json!("mails"), &json!(4), &json!(0))]);
    assert_eq!(looked["error"], json!(null));
    let table = cli.run("watch or* --once").out;
    assert!(
        table.contains("orders") && table.contains("75%") && !table.contains("mails"),
        "{table}"
    );
    assert_eq!(cli.run("watch no-such --once").code, 1);
    assert_eq!(cli.run("watch").code, 2, "it needs a terminal");
}

#[test]
fn each_round_is_an_object_and_says_what_is_granted() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut command = cli.command("watch orders --json --every 50ms");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap();
    assert_eq!(next()["limiters"][0]["available"], json!(4));
    cli.run("try orders 3");
    let mut granted = 0;
    until(
        || {
            granted += next()["limiters"][0]["granted"].as_u64().unwrap();
            granted
        },
        |granted| *granted >= 3,
    );
    assert_eq!(granted, 3);
    cli.run("delete orders --yes");
    until(&mut next, |round| round["limiters"] == json!([]));
    // The program ends when its reader is gone.
    drop(lines);
    assert_eq!(ended(&mut child).code(), Some(0));
}

#[test]
fn a_reader_that_has_stopped_does_not_keep_a_signal_from_ending_it() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut command = cli.command("watch orders --json --every 50ms");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    assert!(lines.next().is_some());
    // A signal that is not caught ends the program wherever it is, even in a write that nobody
    // reads.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:\t"));
    let caught = u64::from_str_radix(caught.unwrap(), 16).unwrap();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        assert_eq!(caught & (1 << (signal.as_raw() - 1)), 0, "{signal:?}");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).signal(), Some(15));
}

#[test]
fn grants_are_not_reported_again_while_the_server_is_away() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    cli.run("try orders 3");
    let mut command = cli.command("--response-timeout 300ms watch orders --json --every 50ms");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap();
    until(&mut next, |round| {
        round["limiters"][0]["granted"] == json!(0)
    });
    cli.run("try orders");
    cli.server.signal("KILL");
    let lost = until(&mut next, |round| round["error"] != json!(null));
    let orders = &lost["limiters"][0];
    assert_eq!(orders["name"], json!("orders"));
    assert_eq!(orders["granted"], json!(null));
    assert_eq!(orders["granted_per_second"], json!(null));
    child.kill().unwrap();
    ended(&mut child);
}

#[test]
fn a_primary_that_is_lost_does_not_hide_the_limiters_of_the_others() {
    let cluster = Cluster::start();
    let urls = cluster.urls().join(",");
    let command = |arguments: &str| {
        let mut command = program(arguments);
        command.env("REDIS_URL", &urls);
        command
    };
    for number in 0..12 {
        let mut set = command(&format!("set limiter:{number} 5/1h"));
        assert_eq!(Ran::from(output(&mut set)).code, 0);
    }
    let mut watch = command("--response-timeout 500ms watch --json --every 50ms");
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap();
    until(&mut next, |round| {
        round["limiters"].as_array().unwrap().len() == 12
    });
    cluster.nodes()[0].signal("KILL");
    // Some are sampled in a round in which others could not be.
    let sampled = |round: &Value| {
        let limiters = round["limiters"].as_array().unwrap();
        assert_eq!(limiters.len(), 12);
        let is_sampled = |it: &&Value| it["granted"] != json!(null);
        limiters.iter().filter(is_sampled).count()
    };
    let round = until(&mut next, |round| {
        round["error"] != json!(null) && sampled(round) > 0
    });
    assert!(sampled(&round) < 12, "{round}");
    child.kill().unwrap();
    ended(&mut child);
}

#[test]
fn a_lease_is_not_reported_as_granted_at_each_sample() {
    let cli = Cli::start();
    cli.run("set orders 9/1h");
    let member = [&[24], &[7; 24][..], &3u32.to_le_bytes()].concat();
    let score = (cli.now() + 60_000).to_string();
    let words: [&[u8]; 4] = [b"ZADD", b"{orders}:permits", score.as_bytes(), &member];
    cli.redis(&words);
    cli.redis(&["SET", "{orders}:value", "6"]);
    let mut command = cli.command("watch orders --json --every 50ms");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    let granted = (0..5).map(|_| {
        let round: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        round["limiters"][0]["granted"].as_u64().unwrap()
    });
    assert_eq!(
        granted.collect::<Vec<_>>(),
        [0; 5],
        "when its permits are used, at last"
    );
    drop(lines);
    ended(&mut child);
}

#[test]
fn the_picture_is_drawn_sorted_resized_and_left() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    cli.run("try orders 3");
    let mut terminal = PseudoTerminal::start(&cli.command("watch --every 50ms"), 100, 24);
    terminal.until("orders");
    terminal.until("1 of 4 left");
    terminal.type_in("s");
    terminal.until("grants");
    terminal.resize(60, 12);
    terminal.until("orders"); // all of it again
    terminal.resize(10, 3);
    terminal.resize(120, 40);
    terminal.until("1 of 4 left");
    terminal.type_in("q");
    assert_eq!(terminal.ended(), Some(0));
    assert_left(&terminal);
}

#[test]
fn without_colours_the_picture_has_none() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    for (no_color, has_colors) in [("", true), ("1", false)] {
        let mut command = cli.command("watch --every 50ms");
        command.env("NO_COLOR", no_color);
        let mut terminal = PseudoTerminal::start(&command, 100, 24);
        terminal.until("4 of 4 left");
        terminal.type_in("\x03");
        assert_eq!(terminal.ended(), Some(0));
        let green = ["\x1b[32m", "\x1b[38;5;2"]
            .iter()
            .any(|it| terminal.output.contains(it));
        assert_eq!(green, has_colors, "{:?}", terminal.output);
    }
}

#[test]
fn a_server_that_is_lost_is_reported_and_found_again() {
    let mut cli = Cli::start();
    let port = cli.server.port();
    cli.run("set orders 4/1h");
    let command = cli.command("--response-timeout 300ms watch --every 50ms");
    let mut terminal = PseudoTerminal::start(&command, 100, 24);
    terminal.until("4 of 4 left");
    cli.server.signal("KILL");
    terminal.until("no answer, tried");
    cli.server = Server::start_at(port, &[]);
    terminal.until("calls a second");
    cli.run("set mails 4/1h");
    terminal.until("mails");
    terminal.type_in("q");
    assert_eq!(terminal.ended(), Some(0));
    assert_left(&terminal);
}

#[test]
fn a_signal_restores_the_terminal() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut script = std::process::Command::new("sh");
    let program = cli.command("watch --every 50ms");
    let program = program.get_program().display().to_string();
    script.args(["-c", &format!("{program} watch --every 50ms & child=$!; read line; kill -TERM $child; wait $child; echo ended $?")]);
    script.env("REDIS_URL", cli.server.url());
    let mut terminal = PseudoTerminal::start(&script, 100, 24);
    terminal.until("4 of 4 left");
    terminal.type_in("\n");
    terminal.until("ended 143");
    assert_eq!(terminal.ended(), Some(0));
    assert_left(&terminal);
}

#[test]
fn a_terminal_that_hangs_up_ends_it() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut terminal = PseudoTerminal::start(&cli.command("watch --every 50ms"), 100, 24);
    terminal.until("4 of 4 left");
    assert_eq!(terminal.hung_up(), Some(129));
}

/// The terminal fails before the signal arrives.
#[test]
fn a_terminal_that_hangs_up_ends_it_as_the_signal_does() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let watch = cli.command("watch --every 50ms");
    let mut without_signal = std::process::Command::new("env");
    without_signal
        .arg("--block-signal=HUP")
        .arg(watch.get_program())
        .args(watch.get_args())
        .env("REDIS_URL", cli.server.url());
    let mut terminal = PseudoTerminal::start(&without_signal, 100, 24);
    terminal.until("4 of 4 left");
    assert_eq!(terminal.hung_up(), Some(129));
}

#[test]
fn a_terminal_that_nobody_reads_holds_up_neither_samples_nor_a_signal() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut terminal = PseudoTerminal::start(&cli.command("watch --every 50ms"), 200, 50);
    terminal.until("4 of 4 left");
    terminal.fill();
    let sampled = cli.calls_of("evalsha");
    // The picture changes with each call.
    let calls = || {
        cli.run("try orders");
        cli.calls_of("evalsha")
    };
    until(calls, |calls| *calls >= sampled + 20);
    terminal.terminate();
    assert_eq!(terminal.exit_code(), Some(143));
    terminal.ended();
    assert_left(&terminal);
}

/// The terminal library reads input level-triggered. If it were edge-triggered, a key that came
/// with a resize would wait for the next event.
#[test]
fn a_key_right_after_a_resize_is_read_at_once() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut terminal = PseudoTerminal::start(&cli.command("watch --every 50ms"), 100, 24);
    terminal.until("4 of 4 left");
    for round in 0..60 {
        let width = 100 + round % 2;
        terminal.resize(width - 40, 24);
        terminal.resize(width, 24);
        let (key, order) = if round % 2 == 0 {
            ("n", "by name")
        } else {
            ("u", "by use")
        };
        terminal.type_in(key);
        terminal.until_seen(order);
    }
    terminal.resize(10, 3);
    terminal.resize(120, 40);
    terminal.type_in("q");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn a_person_filters_pauses_and_looks_closer() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    cli.run("set quota 4/1h");
    cli.redis(&["SET", "{quota}:value", "1"]);
    let mut terminal = PseudoTerminal::start(&cli.command("watch --every 50ms"), 120, 24);
    terminal.until_seen("2 limiters, 1 sick");
    terminal.type_in("/q");
    terminal.until_seen("/q_");
    terminal.type_in("\r");
    terminal.until_seen("with `q`");
    terminal.type_in("\r");
    terminal.until_seen("3 permits lost: they never come back");
    terminal.type_in("p");
    terminal.until_seen("paused: p goes on");
    terminal.type_in("p");
    terminal.until_seen("calls a second");
    terminal.type_in("?");
    terminal.until_seen("only names with a text");
    terminal.type_in("\x1b");
    terminal.until_seen("with `q`");
    terminal.type_in("q");
    assert_eq!(terminal.ended(), Some(0));
    assert_left(&terminal);
}
