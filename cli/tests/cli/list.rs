use serde_json::{Value, json};

use crate::support::servers::cluster::Cluster;
use crate::support::{Cli, Ran, program};

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
                "available": null, "in_use": null, "grants": 0, "next_return_ms": null, "time_to_live_ms": null,
            }),
            json!({
                "name": "orders", "kind": "rate_limiter", "rate": { "permits": 4, "interval_ms": 3_600_000 },
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
        text.out.contains("75%") && text.out.ends_with("1 limiter, 1 call of SCAN"),
        "{text:?}"
    );
    assert_eq!(cli.run("list no-such*").code, 1);
}

/// The fence is an empty member at its beginning.
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
        "fixed-window --limit 9 --window 1h",
        "sliding-window-log --limit 9 --window 1h",
        "token-bucket --per-second 1 --capacity 9",
        "quota-bucket --quota 9 --period 1h --capacity 9",
        "leaky-bucket --quantity 1 --period 1h --capacity 9",
        "sliding-window-counter --limit 9 --window 1h --period 10m",
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
        Ran::from(
            command
                .env("REDIS_URL", cluster.urls().join(","))
                .output()
                .unwrap(),
        )
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
        Ran::from(command.output().unwrap())
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

#[test]
fn an_interval_that_is_no_number_does_not_end_a_walk() {
    let cli = Cli::start();
    cli.run("set orders 5/s");
    for interval in ["nan", "-nan", "inf", "-inf", "1e400", "-5", "x", ""] {
        let name = format!("limiter {interval}");
        let words = [
            "HSET", &name, "rate", "5", "interval", interval, "type", "0",
        ];
        cli.redis(&words);
    }
    let listed = cli.run("list --json");
    assert_eq!(
        (names(&listed), &*listed.err),
        (vec!["orders".to_owned()], "")
    );
    let watched = cli.json("watch --once");
    assert_eq!(watched["error"], json!(null));
    assert_eq!(watched["limiters"].as_array().unwrap().len(), 1);
}
