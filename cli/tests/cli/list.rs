use serde_json::{Value, json};

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::servers::cluster::Cluster;
use crate::support::{Cli, Ran, program};
use crate::watchdog::output;

fn objects(ran: &Ran) -> Vec<Value> {
    let lines = ran.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn names(ran: &Ran) -> Vec<String> {
    let objects = objects(ran);
    let names = objects
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn limiters_are_listed_with_their_rates_and_what_is_in_use() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    cli.run("try orders 3");
    cli.run("set mails 9/1s --per-client --keep-alive 1h");
    cli.redis(&["HSET", "a-hash", "field", "value"]);
    let mut listed = objects(&cli.run("list --json"));
    listed.sort_by_key(|it| it["name"].to_string());
    let next = listed[1]["next_return_ms"].take();
    assert!(
        (3_590_000..=3_600_000).contains(&next.as_u64().unwrap()),
        "{next}"
    );
    let lives = listed[0]["time_to_live_ms"].take();
    assert!(
        (3_590_000..=3_600_000).contains(&lives.as_u64().unwrap()),
        "{lives}"
    );
    let per_client = json!({
        "permits": 9, "interval_ms": 1_000, "rate_type": "per_client", "keep_alive_ms": 3_600_000,
    });
    assert_eq!(
        listed,
        [
            json!({
                "name": "mails", "kind": "rate_limiter", "rate": per_client,
                "health": "well", "health_text": null, "clients": { "number": 0, "fullest": null },
                "available": null, "in_use": null, "grants": 0, "next_return_ms": null, "time_to_live_ms": null,
            }),
            json!({
                "name": "orders", "kind": "rate_limiter", "rate": { "permits": 4, "interval_ms": 3_600_000 },
                "health": "well", "health_text": null,
                "available": 1, "in_use": 3, "grants": 1, "next_return_ms": null, "time_to_live_ms": null,
            }),
        ]
    );
    let text = cli.run("list orders");
    assert!(
        text.out.contains("orders") && text.out.contains("4/1h"),
        "{text:?}"
    );
    assert!(
        text.out.contains("75%") && text.out.ends_with("1 limiter; 1 call of SCAN"),
        "{text:?}"
    );
    assert_eq!(cli.run("list no-such*").code, 1);
}

/// The fence of a lease is an empty member at its beginning.
#[test]
fn a_lease_is_one_grant_and_comes_back_after_its_end() {
    let cli = Cli::start();
    cli.run("set orders 9/1h");
    let score = cli.now() + 1_800_000;
    let member = |ahead: u64, permits: u32| {
        let id = [&[7; 16][..], &ahead.to_le_bytes()].concat();
        [&[24], &id[..], &permits.to_le_bytes()].concat()
    };
    for (at, member) in [
        (score - 1_800_000, member(1 << 53, 0)),
        (score, member(1_800_000, 3)),
    ] {
        let at = at.to_string();
        let words: [&[u8]; 4] = [b"ZADD", b"{orders}:permits", at.as_bytes(), &member];
        cli.redis(&words);
    }
    cli.redis(&["SET", "{orders}:value", "6"]);
    let listed = cli.json("list");
    assert_eq!(listed["grants"], json!(1));
    let next = listed["next_return_ms"].as_u64().unwrap();
    assert!((5_390_000..=5_400_000).contains(&next), "{next}");
    let watched = cli.json("watch --once");
    let next = watched["limiters"][0]["next_return_ms"].as_u64().unwrap();
    assert!((5_390_000..=5_400_000).contains(&next), "{next}");
}

#[test]
fn the_busiest_limiters_come_first_if_asked_for() {
    let cli = Cli::start();
    for (name, taken) in [("a", 1), ("b", 3), ("c", 2), ("d", 0)] {
        cli.run(&format!("set {name} 4/1h"));
        if taken > 0 {
            cli.run(&format!("try {name} {taken}"));
        }
    }
    assert_eq!(
        names(&cli.run("list --json --sort use --top 3")),
        ["b", "c", "a"]
    );
    assert_eq!(names(&cli.run("list --json --sort name [bd]")), ["b", "d"]);
}

#[test]
fn keys_of_other_algorithms_are_told_from_those_of_rate_limiters() {
    let cli = Cli::start();
    cli.run("try rate --rate 5/1h");
    for policy in [
        "fixed-window --rate 9/1h",
        "sliding-window-log --rate 9/1h",
        "token-bucket --rate 1/s --capacity 9",
        "quota-bucket --rate 9/1h --capacity 9",
        "leaky-bucket --rate 1/1h --capacity 9",
        "sliding-window-counter --rate 9/1h --period 10m",
    ] {
        let key = policy.split(' ').next().unwrap();
        assert_eq!(cli.run(&format!("try {key} 2 --policy {policy}")).code, 0);
    }
    cli.redis(&["SET", "a-counter", "5"]);
    let listed = objects(&cli.run("list --json --policies --sort name"));
    let kinds: Vec<_> = listed.iter().map(|it| (&it["name"], &it["kind"])).collect();
    let expected = [
        ("fixed-window", "fixed_window"),
        ("leaky-bucket", "bucket"),
        ("quota-bucket", "quota_bucket"),
        ("rate", "rate_limiter"),
        ("sliding-window-counter", "sliding_window_counter"),
        ("sliding-window-log", "sliding_window_log"),
        ("token-bucket", "token_bucket"),
    ];
    let expected = expected.map(|(name, kind)| (json!(name), json!(kind)));
    let expected: Vec<_> = expected.iter().map(|(name, kind)| (name, kind)).collect();
    assert_eq!(kinds, expected);
    assert_eq!(
        names(&cli.run("list --json --sort name")),
        ["quota-bucket", "rate", "token-bucket"]
    );
}

#[test]
fn thousands_of_limiters_are_printed_page_by_page() {
    let cli = Cli::start();
    let script = "for i = 1, 3000 do redis.call('hset', 'limiter:' .. i, 'rate', 5, 'interval', 1000, 'type', 0) end";
    cli.redis(&["EVAL", script, "0"]);
    let mut found = names(&cli.run("list --json"));
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 3_000);
    assert_eq!(
        names(&cli.run("list --json --sort name --top 2")),
        ["limiter:1", "limiter:10"]
    );
}

#[test]
fn on_a_cluster_the_limiters_of_all_primaries_are_listed() {
    let cluster = Cluster::start();
    let run = |arguments: &str| {
        let mut command = program(arguments);
        Ran::from(output(command.env("REDIS_URL", cluster.urls().join(","))))
    };
    let all: Vec<_> = (0..12)
        .map(|number| format!("limiter:{number:02}"))
        .collect();
    for name in &all {
        assert_eq!(run(&format!("set {name} 5/s")).code, 0);
    }
    assert_eq!(names(&run("list --json --sort name")), all);
}

/// Writes a limiter to the node of a cluster that has its slot.
fn add_to(cluster: &Cluster, name: &str) {
    let mut add = redis::cmd("HSET");
    add.arg(name)
        .arg(&["rate", "5", "interval", "1000", "type", "0"]);
    let written = cluster.nodes().iter().filter(|node| {
        let client = redis::Client::open(node.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        add.exec(&mut connection).is_ok()
    });
    assert_eq!(written.count(), 1, "{name}");
}

#[test]
fn a_name_in_several_slots_does_not_end_a_walk_over_the_others() {
    let cluster = Cluster::start();
    for name in ["a:value", "orders", "a}b", "{}x", "a{b"] {
        add_to(&cluster, name);
    }
    let run = |arguments: &str| {
        let mut command = program(arguments);
        command.env("REDIS_URL", &cluster.urls()[0]);
        Ran::from(output(&mut command))
    };
    let listed = run("list --json --sort name");
    assert_eq!(names(&listed), ["a:value", "orders"], "{listed:?}");
    assert_eq!(listed.code, 0);
    assert!(listed.err.contains("3 keys not looked at: "), "{listed:?}");
    assert!(!listed.err.contains("``"), "{listed:?}"); // a limiter without a name
    let watched = &objects(&run("watch --once --json"))[0];
    let seen = watched["limiters"].as_array().unwrap().iter();
    let mut seen: Vec<_> = seen.map(|it| it["name"].as_str().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["a:value", "orders"]);
    assert_eq!(watched["error"], json!(null));
}

/// Such a limiter is sick, and so it is not left out.
#[test]
fn limiters_whose_settings_are_unreadable_are_listed() {
    let cli = Cli::start();
    cli.run("set orders 5/s");
    for interval in ["nan", "-nan", "inf", "-inf", "1e400", "-5", "x"] {
        let name = format!("limiter {interval}");
        let words = [
            "HSET", &name, "rate", "5", "interval", interval, "type", "0",
        ];
        cli.redis(&words);
    }
    let listed = cli.run("list --json --sort health");
    let all = objects(&listed);
    assert_eq!((all.len(), &*listed.err), (8, ""));
    assert_eq!(all[7]["name"], json!("orders"));
    for it in &all[..7] {
        assert_eq!(it["health"], json!("settings-unreadable"));
        let interval = it["name"].as_str().unwrap().split_once(' ').unwrap().1;
        let shown = &it["rate"]["interval_ms"];
        assert_eq!(shown.to_string().trim_matches('"'), interval);
    }
    let watched = cli.json("watch --once");
    assert_eq!(watched["error"], json!(null));
    assert_eq!(watched["limiters"].as_array().unwrap().len(), 8);
}

#[test]
fn limiters_that_are_not_well_have_a_mark_and_a_word() {
    let cli = Cli::start();
    for name in ["above", "lost", "many", "misses", "old", "well", "hot"] {
        cli.run(&format!("set {name} 10/1h"));
        cli.run(&format!("try {name} {}", if name == "hot" { 9 } else { 4 }));
    }
    for (name, value) in [("above", "13"), ("lost", "5"), ("many", "8")] {
        cli.redis(&["SET", &format!("{{{name}}}:value"), value]);
    }
    cli.redis(&["DEL", "{misses}:value"]);
    cli.redis(&["ZADD", "{old}:permits", "7", "junk"]);
    let text = cli.run("list --sort health");
    assert_eq!(text.code, 0);
    let lines: Vec<_> = text.out.lines().collect();
    assert_eq!(lines[0], "7 limiters, 1 hot, 5 sick; 1 call of SCAN");
    let words = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (
            words[0].to_owned(),
            words[1].to_owned(),
            line.rsplit("  ").next().unwrap().to_owned(),
        )
    };
    let rows: Vec<_> = lines[2..7].iter().map(|line| words(line)).collect();
    let expected = [
        ("!", "above", "above rate"),
        ("!", "misses", "value lost"),
        ("!", "old", "old members"),
        ("!", "many", "too many"),
        ("!", "lost", "lost"),
    ];
    let expected = expected.map(|(mark, name, word)| (mark.into(), name.into(), word.into()));
    assert_eq!(rows, expected, "{text:?}");
    assert!(
        lines[7..]
            .iter()
            .any(|it| it.starts_with("^ hot ") && it.ends_with("  hot"))
    );
    assert!(
        lines[7..]
            .iter()
            .any(|it| it.starts_with("  well ") && it.ends_with("  ok"))
    );
    let sick = names(&cli.run("list --json --sick --sort name"));
    assert_eq!(sick, ["above", "lost", "many", "misses", "old"]);
    // `doctor` says the same.
    for it in objects(&cli.run("list --json --sick")) {
        let found = cli
            .run(&format!("doctor {}", it["name"].as_str().unwrap()))
            .out;
        assert!(
            found.contains(&format!("{}:", it["health"].as_str().unwrap())),
            "{found}"
        );
    }
    cli.redis(&["FLUSHALL"]);
    cli.run("set well 10/1h");
    assert_eq!(cli.run("list --sick").code, 1, "none is sick");
}

#[test]
fn the_clients_of_a_rate_for_each_are_listed_together_with_the_fullest() {
    let cli = Cli::start();
    cli.run("set orders 4/1h --per-client");
    for (client, permits) in [("a", 1), ("b", 3), ("c", 2)] {
        cli.run(&format!("try orders {permits} --client-id {client}"));
    }
    cli.run("set {mails} 4/1h --per-client");
    cli.run("try {mails} 4 --client-id d");
    let listed = objects(&cli.run("list --json --sort use"));
    let clients: Vec<_> = listed.iter().map(|it| it["clients"].clone()).collect();
    assert_eq!(
        clients,
        [
            json!({ "number": 1, "fullest": { "client": "d", "in_use": 4 } }),
            json!({ "number": 3, "fullest": { "client": "b", "in_use": 3 } }),
        ]
    );
    let text = cli.run("list orders").out;
    assert!(text.contains("3 clients") && text.contains("75%"), "{text}");
    assert!(text.contains("fullest: 3 in use by client b"), "{text}");
    // A damaged client makes the limiter sick.
    cli.redis(&["SET", "{orders}:value:c", "1"]);
    assert_eq!(
        objects(&cli.run("list --json orders"))[0]["health"],
        json!("permits-lost")
    );
}

fn on_a_terminal(cli: &Cli, width: u16, arguments: &str) -> Vec<String> {
    let mut terminal = PseudoTerminal::start(&cli.command(arguments), width, 24);
    terminal.ended();
    let output = terminal.output.replace("\r\n", "\n");
    let mut lines = Vec::new();
    for line in output.lines() {
        let mut parser = vt100::Parser::new(1.try_into().unwrap(), 600.try_into().unwrap(), 0);
        parser.process(line.as_bytes());
        lines.push(parser.screen().contents().trim_end().to_owned());
    }
    lines
}

#[test]
fn a_list_is_as_wide_as_the_terminal_and_cuts_names_in_the_middle() {
    let cli = Cli::start();
    let long = format!("orders:{}:eu-west-1", "x".repeat(200));
    cli.run(&format!("set {long} 5/10m"));
    cli.run("set orders 9007199254740992/1h");
    cli.redis(&[
        "HSET",
        "bad",
        "rate",
        &"9".repeat(500),
        "interval",
        "x",
        "type",
        "0",
    ]);
    for width in [20, 40, 60, 80, 100, 200] {
        for arguments in ["list", "list --sort name", "watch --once"] {
            let lines = on_a_terminal(&cli, width, arguments);
            let all = lines.join("\n");
            assert!(
                lines.iter().all(|it| it.chars().count() <= width.into()),
                "{width}:\n{all}"
            );
            let row = lines
                .iter()
                .find(|it| it.trim_start().starts_with("orders:"));
            let is_cut = row.is_some_and(|it| it.contains("...") && it.contains("-1 "));
            assert!(is_cut || width < 40, "{width}:\n{all}");
        }
    }
    let piped = cli.run("list").out;
    assert!(
        piped.contains(&long) && piped.contains("9007199254740992/1h"),
        "{piped}"
    );
    assert!(cli.run("watch --once").out.contains(&long));
}
