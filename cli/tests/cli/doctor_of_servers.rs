//! Servers with harmful settings, and users that lack permissions.

use serde_json::{Value, json};

use crate::doctor::found;
use crate::support::servers::Server;
use crate::support::{Cli, Ran, program};
use crate::watchdog::output;

fn of_server(ran: &Ran) -> Vec<String> {
    let objects = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let findings = objects.filter(|it| it["kind"] == "server" || it["kind"] == "permissions");
    let codes = findings.flat_map(|it| it["findings"].as_array().unwrap().clone());
    codes
        .map(|it| it["code"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn settings_of_the_server_that_lose_grants_are_found() {
    let server = Server::start_with(&[
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
        "--lazyfree-lazy-expire",
        "yes",
        "--lazyfree-lazy-eviction",
        "yes",
        "--lazyfree-lazy-server-del",
        "yes",
        "--appendonly",
        "yes",
    ]);
    let cli = Cli { server };
    let ran = cli.run("doctor --json orders");
    let codes = of_server(&ran);
    assert!(codes.contains(&"server-may-evict".to_owned()), "{ran:?}");
    assert!(
        !codes.contains(&"server-frees-inline".to_owned()),
        "{ran:?}"
    );
    assert!(
        !codes.contains(&"server-not-persistent".to_owned()),
        "{ran:?}"
    );
    let plain = of_server(&Cli::start().run("doctor --json orders"));
    assert!(
        plain.contains(&"server-frees-inline".to_owned()),
        "{plain:?}"
    );
    assert!(
        plain.contains(&"server-not-persistent".to_owned()),
        "{plain:?}"
    );
}

#[test]
fn permissions_that_the_user_lacks_are_tried_and_not_guessed() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    for (user, rules) in [("dry", "+@all -zadd"), ("tried", "+@all -zadd -acl")] {
        let words: Vec<_> = ["ACL", "SETUSER", user, "on", ">password", "~*"]
            .into_iter()
            .chain(rules.split(' '))
            .collect();
        cli.redis(&words);
        let url = format!("redis://{user}:password@127.0.0.1:{}", cli.server.port());
        let run = || {
            Ran::from(output(
                program("doctor --json orders").env("REDIS_URL", &url),
            ))
        };
        let ran = run();
        assert!(
            of_server(&ran).contains(&"server-not-permitted".to_owned()),
            "{ran:?}"
        );
        assert!(user == "tried" || ran.out.contains("ZADD"), "{ran:?}");
        cli.redis(&["ACL", "SETUSER", user, "+zadd"]);
        let ran = run();
        assert!(
            !of_server(&ran).contains(&"server-not-permitted".to_owned()),
            "{ran:?}"
        );
    }
    let listed = cli.run("list --json");
    assert_eq!(
        listed.out.lines().count(),
        1,
        "no limiter of the trial is left: {listed:?}"
    );
}

/// Runs a command as a user of this server with a password and these rules.
fn run_as(cli: &Cli, rules: &str, arguments: &str) -> Ran {
    let words = ["ACL", "SETUSER", "user", "reset", "on", ">password"];
    cli.redis(&[&words[..], &rules.split(' ').collect::<Vec<_>>()].concat());
    let url = format!("redis://user:password@127.0.0.1:{}", cli.server.port());
    Ran::from(output(program(arguments).env("REDIS_URL", url)))
}

/// The permissions of docs/connections.md, and those that README.md adds.
#[test]
fn a_user_with_the_documented_permissions_can_look_and_mend() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.redis(&["SET", "{orders}:value", "7"]);
    let page = include_str!("../../../docs/connections.md");
    let (_, rule) = page.split_once("'~{orders:*' ").unwrap();
    let (rule, _) = rule.split_once("\n#").unwrap();
    let words = rule.split_whitespace().filter(|it| *it != "\\");
    let rules = ["~*"]
        .into_iter()
        .chain(words)
        .chain(["+scan", "+getrange", "+hlen"]);
    let rules = rules.collect::<Vec<_>>().join(" ");
    for arguments in [
        "list",
        "show orders",
        "watch --once",
        "doctor --fix --yes",
        "doctor",
    ] {
        let ran = run_as(&cli, &rules, arguments);
        assert_eq!(ran.code, 0, "{arguments}: {ran:?}");
    }
    cli.run("set mails 10/1h --per-client");
    cli.redis(&["SET", "{mails}:value:gone", "5"]);
    let ran = run_as(&cli, &rules, "doctor --fix --yes");
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn what_the_user_may_not_read_is_reported_and_the_rest_is_examined() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run("set mails 10/1h");
    cli.redis(&["SET", "{orders}:value", "7"]);
    let ran = run_as(&cli, "~orders ~{orders}* +@all", "doctor --json");
    let expected = ("orders".to_owned(), "permits-lost".to_owned(), false);
    assert_eq!(found(&ran), [expected]);
    let codes = of_server(&ran);
    assert!(codes.contains(&"not-checked".to_owned()), "{ran:?}");
    assert!(
        !codes.contains(&"server-not-permitted".to_owned()),
        "{ran:?}"
    );
    // The values have other names than the limiters.
    let ran = run_as(&cli, "~orders +@all", "doctor --json orders");
    let expected = (
        "orders".to_owned(),
        "server-not-permitted".to_owned(),
        false,
    );
    assert_eq!((found(&ran), ran.code), (vec![expected], 1), "{ran:?}");
    // A limiter whose name is given is examined without SCAN.
    let ran = run_as(&cli, "~* +@all -scan", "doctor --json orders");
    let expected = ("orders".to_owned(), "permits-lost".to_owned(), false);
    assert_eq!((found(&ran), ran.code), (vec![expected], 1), "{ran:?}");
    let ran = run_as(&cli, "~mails +@all -scan", "doctor --json orders");
    assert_eq!((found(&ran), ran.code), (Vec::new(), 1), "{ran:?}");
    for rules in [
        "~* +@all -info -config",
        "~* +@all -evalsha -eval",
        "~* +@all -scan",
    ] {
        let ran = run_as(&cli, rules, "doctor --json orders");
        let lacks =
            ran.out.contains("server-not-permitted") || ran.out.contains("server-settings-hidden");
        assert!(ran.code < 2 && lacks, "{rules}: {ran:?}");
    }
    let listed = run_as(&cli, "~orders ~{orders}* +@all", "list --json");
    assert_eq!(
        (listed.code, listed.out.lines().count()),
        (0, 1),
        "{listed:?}"
    );
    let told: Value = serde_json::from_str(&listed.err).unwrap();
    let told = &told["error"];
    assert_eq!(told["kind"], json!("permission_denied"));
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with("1 key not looked at: "), "{told}");
}

#[test]
fn if_settings_are_hidden_what_info_says_of_them_is_examined() {
    let settings = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let cli = Cli {
        server: Server::start_with(&settings),
    };
    let port = cli.server.port().to_string();
    let _replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    while !info(&cli).contains("connected_slaves:1") {
        std::thread::yield_now();
    }
    let codes = || {
        let mut codes = of_server(&run_as(&cli, "~* &* +@all -config", "doctor --json orders"));
        codes.retain(|it| it != "server-unmaintained");
        codes
    };
    let hidden = [
        "server-settings-hidden",
        "server-may-evict",
        "server-not-persistent",
        "server-replicas-may-lag",
    ];
    assert_eq!(codes(), hidden);
    cli.redis(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    cli.redis(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(codes(), [hidden[0], hidden[2]]);
}

fn info(cli: &Cli) -> String {
    redis::from_redis_value(cli.redis(&["INFO"])).unwrap()
}
