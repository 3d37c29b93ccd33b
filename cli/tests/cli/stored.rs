//! Whatever is stored, each command ends without a panic, and shows it.

use serde_json::{Value, json};

use crate::support::{Cli, Ran, ran_with};
use crate::watchdog::output;

/// Texts that stand where numbers should.
const TEXTS: [&str; 18] = [
    "0",
    "1",
    "5",
    "1000",
    "-1",
    "-0",
    "05",
    "+5",
    "5.5",
    "1e17",
    "nan",
    "inf",
    "x",
    "",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "99999999999999999999",
];
const COMMANDS: [&str; 19] = [
    "config NAME",
    "explain NAME",
    "show NAME",
    "list",
    "list --sort use",
    "list --policies --sick",
    "watch NAME --once",
    "doctor NAME",
    "doctor --fix --yes --legacy remove NAME",
    "peek NAME 2",
    "available NAME",
    "try NAME",
    "try NAME --rate 5/s",
    "acquire NAME --timeout 10ms",
    "release NAME",
    "set NAME 7/1h --if-missing",
    "update NAME 7/1h",
    "set NAME 8/1h --yes",
    "run NAME --timeout 10ms -- true",
];

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most
    }

    fn text(&mut self) -> &'static str {
        TEXTS[self.below(TEXTS.len())]
    }
}

fn member(random: &mut Random) -> Vec<u8> {
    let lengths = [0, 1, 4, 8, 13, 20, 21, 29, 33];
    let mut member: Vec<u8> = (0..lengths[random.below(lengths.len())])
        .map(|_| random.below(256) as u8)
        .collect();
    if random.below(3) > 0 && member.len() >= 5 {
        member[0] = (member.len() - 5) as u8;
    }
    member
}

/// Writes a key of some kind, and what this kind may hold.
fn write(cli: &Cli, key: &str, random: &mut Random) {
    match random.below(8) {
        0 => {}
        1 => drop(cli.redis(&["RPUSH", key, random.text()])),
        2 => drop(cli.redis(&["SADD", key, random.text()])),
        3 => drop(cli.redis(&["HSET", key, "tokens", random.text()])),
        4 | 5 => drop(cli.redis(&["SET", key, random.text()])),
        _ => {
            for _ in 0..random.below(4) + 1 {
                let scores = ["0", "-inf", "+inf", "1e300", "-5.5", "NOW"];
                let score = scores[random.below(scores.len())];
                let score = score.replace("NOW", &cli.now().to_string());
                let member = member(random);
                let words: [&[u8]; 4] = [b"ZADD", key.as_bytes(), score.as_bytes(), &member];
                cli.redis(&words);
            }
        }
    }
}

fn store(cli: &Cli, random: &mut Random) {
    cli.redis(&["FLUSHDB"]);
    if random.below(10) == 0 {
        write(cli, "orders", random);
    } else {
        let mut words = vec!["HSET", "orders", "other", "x"];
        for field in ["rate", "interval", "type", "keepAliveTime"] {
            if random.below(10) > 0 {
                words.extend([field, random.text()]);
            }
        }
        if random.below(4) > 0 {
            words.drain(2..4);
        }
        if words.len() > 2 {
            cli.redis(&words);
        }
    }
    for key in [
        "{orders}:value",
        "{orders}:permits",
        "{orders}:value:a",
        "{orders}:permits:a",
    ] {
        write(cli, key, random);
    }
    if random.below(4) == 0 {
        cli.redis(&["EXPIRE", "orders", "100"]);
    }
}

fn assert_told(ran: &Ran, what: &str) {
    let codes = [0, 1, 2, 3];
    assert!(codes.contains(&ran.code), "{what}: {ran:?}");
    assert!(!ran.err.contains("panicked"), "{what}: {ran:?}");
    // A list as JSON has no line where there is no limiter; nor has a command that prints nothing.
    let may_be_silent = what.contains(": run") || what.contains("a run") || what.contains("--json");
    assert!(
        may_be_silent || !(ran.out.is_empty() && ran.err.is_empty()),
        "{what}: {ran:?}"
    );
}

#[test]
fn every_command_ends_without_a_panic_whatever_is_stored() {
    let cli = Cli::start();
    let mut random = Random(7);
    for round in 0..60 {
        store(&cli, &mut random);
        for place in 0..6 {
            let command = COMMANDS[(round * 6 + place) % COMMANDS.len()].replace("NAME", "orders");
            for json in ["", "--json "] {
                let command = format!("{json}--client-id a {command}");
                let ran = cli.run(&command);
                assert_told(&ran, &format!("round {round}: {command}"));
                if !json.is_empty() && ran.code < 2 {
                    for line in ran.out.lines() {
                        let read = serde_json::from_str::<Value>(line);
                        read.unwrap_or_else(|error| panic!("{command}: {error}: {ran:?}"));
                    }
                }
            }
        }
        let command = "--client-id a run orders --each --timeout 1ms -- true";
        assert_ne!(ran_with(&mut cli.command(command), "a\n").code, 101);
        assert_told(&cli.run("delete orders --yes"), "delete");
    }
}

#[test]
fn what_redisson_stores_is_shown_as_it_is() {
    let cli = Cli::start();
    for (name, rate, interval, keep_alive, words) in [
        ("stopped", "0", "1000", "0", "0 per 1s"),
        ("instant", "5", "0", "0", "5 per 0ms"),
        ("short", "5", "3600000", "500", "5 per 1h, keep alive 500ms"),
        (
            "huge",
            "9007199254740993",
            "1000",
            "0",
            "`9007199254740993` per 1s",
        ),
    ] {
        let fields = [
            "rate",
            rate,
            "interval",
            interval,
            "type",
            "0",
            "keepAliveTime",
            keep_alive,
        ];
        cli.redis(&[&["HSET", name][..], &fields].concat());
        let text = cli.run(&format!("config {name}"));
        assert!(text.code == 0 && text.out.starts_with(words), "{text:?}");
        let shown = &cli.json(&format!("config {name}"))["rate"];
        assert_eq!(
            shown["permits"],
            json!(rate.parse::<i64>().unwrap()),
            "{name}"
        );
        assert_eq!(
            shown["interval_ms"],
            json!(interval.parse::<i64>().unwrap()),
            "{name}"
        );
    }
    cli.run("set well 5/1h");
    let listed = output(&mut cli.command("--json list --sort name"));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let health: Vec<_> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|it| (it["name"].clone(), it["health"].clone()))
        .collect();
    let expected = [
        ("huge", "settings-unreadable"),
        ("instant", "settings-unreadable"),
        ("short", "keep-alive-too-short"),
        ("stopped", "stopped"),
        ("well", "well"),
    ];
    assert_eq!(
        health,
        expected.map(|(name, health)| (json!(name), json!(health)))
    );
    let watched = cli.json("watch --once");
    assert_eq!(
        watched["limiters"].as_array().unwrap().len(),
        5,
        "{watched}"
    );
}
