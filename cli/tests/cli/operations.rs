use std::time::Duration;

use redisson_rate_limiter::AnyPolicy;
use serde_json::json;

use crate::support::{Cli, Ran, program};
use crate::watchdog::{ended, output};

#[test]
fn every_command_has_examples_a_manual_page_and_completions() {
    let help = Ran::from(output(&mut program("help"))).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<_> = { commands.take_while(|line| !line.is_empty()) }
        .filter_map(|line| line.split_whitespace().next())
        .filter(|it| *it != "help")
        .collect();
    assert_eq!(commands.len(), 22, "{commands:?}");
    for command in commands {
        let help = Ran::from(output(&mut program(&format!("{command} --help")))).out;
        assert!(help.contains(&format!("rratelimiter {command}")), "{help}");
        assert!(help.contains("Examples:"), "{command}: {help}");
        let short = Ran::from(output(&mut program(&format!("{command} -h")))).out;
        let bare = short
            .lines()
            .filter(|line| line.starts_with("  <") || line.starts_with("  ["))
            .find(|line| line.split_whitespace().count() == 1);
        assert_eq!(bare, None, "{command}: an argument without a word about it");
        let page = Ran::from(output(&mut program(&format!("man {command}")))).out;
        assert!(
            page.contains(&format!(".TH rratelimiter-{command} 1")),
            "{page}"
        );
        let completions = Ran::from(output(&mut program("completions bash"))).out;
        let case = format!("rratelimiter,{command})");
        assert!(completions.contains(&case), "{command}");
    }
}

#[test]
fn a_limiter_lives_from_set_to_delete() {
    let cli = Cli::start();
    assert_eq!(cli.run("set orders 2/1h").out, "orders: 2 per 1h");
    assert_eq!(cli.run("try orders").code, 0);
    assert_eq!(cli.run("available orders").out, "1");
    assert_eq!(cli.run("try orders 2").code, 1);
    let peeked = cli.json("peek orders");
    assert_eq!(
        (&peeked["granted"], &peeked["remaining"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(cli.run("peek orders").out, "would be granted: 0 of 2 left");
    assert!(
        cli.run("peek orders 2")
            .out
            .starts_with("would be denied: 1 of 2 left, retry after ")
    );
    assert_eq!(cli.run("available orders").out, "1");
    assert_eq!(cli.run("release orders").out, "2 available");
    let updated = cli.run("update orders 7/1h").out;
    assert_eq!(updated, "orders: 2 per 1h -> 7 per 1h");
    assert_eq!(cli.run("expire orders 2h").out, "expires in 2h");
    assert_eq!(cli.run("expire orders --never").code, 0);
    let config = cli.json("config orders");
    assert_eq!(config["rate"]["permits"], json!(7));
    assert_eq!(config["time_to_live_ms"], json!(null));
    assert_eq!(cli.run("delete orders --yes").out, "deleted");
    assert_eq!(cli.run("delete orders --yes").code, 2);
    assert_eq!(cli.run("config orders").code, 2);
}

#[test]
fn an_update_keeps_what_it_does_not_name() {
    let cli = Cli::start();
    cli.run("set mails 9/1h --per-client --keep-alive 2h");
    cli.run("try mails 3 --client-id one");
    let updated = cli.run("update mails 20/1h --client-id one");
    let words = "9 per 1h per client, keep alive 2h -> 20 per 1h per client, keep alive 2h";
    assert!(
        updated.out.starts_with(&format!("mails: {words}")),
        "{updated:?}"
    );
    assert_eq!(cli.run("available mails --client-id one").out, "17");
    assert_eq!(cli.run("update mails 20/1h --keep-alive 3h").code, 0);
    let rate = &cli.json("config mails")["rate"];
    assert_eq!(rate["keep_alive_ms"], json!(10_800_000));
    for command in ["update mails 20/4h", "set mails 20/4h --yes"] {
        let refused = cli.run(command);
        assert_eq!(refused.code, 2, "it lives for less");
        let kept = "the limiter, 20 per 1h per client, keep alive 3h, would be gone before";
        assert!(refused.err.contains(kept), "{refused:?}");
    }
}

#[test]
fn a_set_of_an_existing_limiter_keeps_what_is_not_named() {
    let cli = Cli::start();
    let set = cli.run("set orders 9/1h --per-client --keep-alive 2h").out;
    assert_eq!(set, "orders: 9 per 1h per client, keep alive 2h");
    cli.run("try orders 3");
    let refused = cli.run("set orders 5/1h");
    assert_eq!((refused.code, &*refused.out), (2, ""));
    assert!(
        refused
            .err
            .contains("has a rate, 9 per 1h per client, keep alive 2h")
    );
    assert_eq!(cli.run("config orders --json").code, 0);

    let set = cli.run("set orders 5/1h --yes");
    let words = "orders: 9 per 1h per client, keep alive 2h -> 5 per 1h per client, keep alive 2h";
    assert!(set.code == 0 && set.out.starts_with(words), "{set:?}");
    assert_eq!(cli.run("available orders").out, "2");
    assert_eq!(
        cli.run("set orders 5/1h").code,
        0,
        "nothing changes, so nothing is asked"
    );

    // Each field is changed by the option that names it.
    let set = cli.json("set orders 5/1h --yes --overall");
    assert_eq!(set["permits_forgotten"], json!(true));
    assert_eq!(set["rate"]["keep_alive_ms"], json!(7_200_000));
    cli.run("try orders 3");
    cli.run("set orders 5/1h --yes --reset");
    assert_eq!(cli.run("available orders").out, "5");
}

/// Without its keep alive no request renews the time to live, and the limiter would be gone with
/// it.
#[test]
fn a_limiter_that_loses_its_keep_alive_loses_its_time_to_live() {
    for command in ["set orders 5/1h --yes", "update orders 5/1h"] {
        let cli = Cli::start();
        cli.run("set orders 2/1h --keep-alive 2h");
        cli.run("try orders");
        let kept = cli.run(command).out;
        assert_eq!(
            kept,
            "orders: 2 per 1h, keep alive 2h -> 5 per 1h, keep alive 2h"
        );
        let set = cli.run(&format!("{command} --no-keep-alive"));
        assert!(
            set.out.ends_with("-> 5 per 1h, without a time to live"),
            "{set:?}"
        );
        for key in ["orders", "{orders}:value", "{orders}:permits"] {
            assert_eq!(cli.redis(&["PTTL", key]), redis::Value::Int(-1), "{key}");
        }
        cli.run("expire orders 3h");
        let set = cli.run(&command.replace('5', "6")).out;
        assert!(set.contains("6 per 1h; expires in 2h 59m"), "{set}");
    }
}

#[test]
fn set_if_missing_leaves_the_rate_that_is_there() {
    let cli = Cli::start();
    assert_eq!(cli.json("set orders 2/s --if-missing")["set"], json!(true));
    assert_eq!(cli.run("set orders 9/s --if-missing").code, 1);
    assert_eq!(cli.run("config orders").out, "2 per 1s; does not expire");
    for command in [
        "update others 9/s",
        "try others",
        "available others",
        "release others",
    ] {
        assert_eq!(cli.run(command).code, 2, "{command}");
    }
}

#[test]
fn a_rate_in_the_call_makes_a_limiter_that_is_missing() {
    let cli = Cli::start();
    assert_eq!(
        cli.run("try orders --rate 1/1h --per-client --keep-alive 2h")
            .code,
        0
    );
    let rate = &cli.json("config orders")["rate"];
    assert_eq!(rate["rate_type"], json!("per_client"));
    assert_eq!(rate["keep_alive_ms"], json!(7_200_000));
}

#[test]
fn no_limiter_is_made_for_more_permits_than_its_rate() {
    let cli = Cli::start();
    cli.run("set orders 5/1h");
    for (command, end) in [("try", ""), ("acquire", ""), ("run", " -- true")] {
        let too_many = match command {
            "run" => "mails --permits 6",
            _ => "mails 6",
        };
        let ran = cli.run(&format!("{command} {too_many} --rate 5/1h{end}"));
        // The message is that of an existing limiter.
        let there = cli.run(&format!(
            "{command} {}{end}",
            too_many.replace("mails", "orders")
        ));
        assert_eq!(ran.err, there.err.replace("orders", "mails"), "{command}");
        assert_eq!((ran.code, there.code), (2, 2), "{command}");
        assert_eq!(cli.run("config mails").code, 2, "{command}");
    }
}

#[test]
fn a_rate_in_the_call_changes_no_existing_limiter() {
    let cli = Cli::start();
    cli.run("set orders 9/1h");
    let set = cli.run("config orders").out;
    for command in ["try", "peek", "acquire", "run"] {
        let end = if command == "run" { " -- true" } else { "" };
        let ran = cli.run(&format!("{command} orders --rate 5/1s --per-client{end}"));
        assert_eq!(ran.code, 0, "{command}: {ran:?}");
        assert_eq!(cli.run("config orders").out, set, "{command}");
    }
    assert_eq!(cli.run("available orders").out, "6");
    assert_eq!(cli.run("peek mails --rate 5/1h").code, 0);
    assert_eq!(cli.run("config mails").code, 2, "a peek makes none");
    assert_eq!(cli.run("acquire mails 2 --rate 5/1h").code, 0);
    assert_eq!(cli.run("available mails").out, "3");
}

#[test]
fn clients_of_a_rate_for_each_are_told_apart_by_their_ids() {
    let cli = Cli::start();
    cli.run("set orders 1/1h --per-client");
    for (client, code) in [("a", 0), ("b", 0), ("a", 1), ("b", 1)] {
        assert_eq!(
            cli.run(&format!("try orders --client-id {client}")).code,
            code
        );
    }
}

#[test]
fn a_rate_for_each_client_holds_across_the_runs_of_the_program() {
    let cli = Cli::start();
    cli.run("set orders 1/1h --per-client");
    let codes: Vec<_> = (0..4).map(|_| cli.run("try orders").code).collect();
    assert_eq!(codes, [0, 1, 1, 1]);
    let id = cli.json("config orders")["client"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(cli.json("try orders")["client"], json!(id));
    assert_eq!(cli.json("available orders")["client"], json!(id));
    assert!(
        cli.run("try orders")
            .out
            .ends_with(&format!(", as client {id}"))
    );
    assert!(
        cli.run("peek orders")
            .out
            .ends_with(&format!(", as client {id}"))
    );
    assert_eq!(cli.run("try orders --client-id other").code, 0);
}

#[test]
fn a_limiter_is_deleted_with_the_keys_of_all_its_clients() {
    for command in ["delete orders --yes", "expire orders 0s --yes"] {
        let cli = Cli::start();
        cli.run("set orders 9/1h --per-client");
        for client in ["a", "b", "c:d"] {
            cli.run(&format!("try orders 2 --client-id {client}"));
        }
        cli.run("try orders");
        cli.run("release orders --client-id a 2"); // leaves a value and no grants
        cli.run("set others 9/1h --per-client");
        cli.run("try others");
        cli.redis(&["SET", "{orders}:value:story", "once"]);
        cli.redis(&["SET", "{orders}:value:score", "10"]); // above the rate
        let deleted = cli.run(command);
        assert_eq!(deleted.code, 0, "{deleted:?}");
        let mut lines: Vec<_> = deleted.out.lines().collect();
        lines.sort_unstable();
        let expected = [
            "deleted, with the keys of 6 clients",
            "kept {orders}:value:score, which holds what no limiter does",
            "kept {orders}:value:story, which holds what no limiter does",
        ];
        assert_eq!(lines, expected);
        let keys: Vec<String> = redis::from_redis_value(cli.redis(&["KEYS", "*orders*"])).unwrap();
        assert_eq!(keys.len(), 2, "{keys:?}");
        assert_eq!(cli.redis(&["DBSIZE"]), redis::Value::Int(5));
    }
}

#[test]
fn an_acquire_waits_until_permits_are_there_or_its_time_is_up() {
    let cli = Cli::start();
    cli.run("set orders 1/1h");
    assert_eq!(cli.json("acquire orders")["granted"], json!(true));
    let denied = cli.run("acquire orders --timeout 50ms");
    assert_eq!(denied.code, 1, "{denied:?}");
    let mut waiting = cli.command("acquire orders").spawn().unwrap();
    // It is enough if the release comes before the program waits.
    cli.run("release orders");
    assert_eq!(ended(&mut waiting).code(), Some(0));
    assert_eq!(cli.run("available orders").out, "0");
}

#[test]
fn each_policy_decides_and_is_reset_by_its_key() {
    let cli = Cli::start();
    let policies = [
        "fixed-window --rate 2/1h",
        "sliding-window-log --rate 2/1h",
        "sliding-window-counter --rate 2/1h --period 30m",
        "token-bucket --rate 1/s --capacity 2",
        "quota-bucket --rate 2/1h --capacity 2",
        "leaky-bucket --rate 1/1h --capacity 1",
        "penalty-token-bucket --rate 1/1h --capacity 2",
        "gcra --rate 1/1h --burst 2",
    ];
    let names = policies.map(|it| it.split(' ').next().unwrap());
    for known in AnyPolicy::examples(1, Duration::from_secs(1)) {
        let name = known.algorithm().replace('_', "-");
        assert!(name == "shared-rate" || names.contains(&&*name), "{name}");
    }
    for (policy, key) in policies.into_iter().zip(names) {
        let arguments = format!("{key} 2 --prefix a: --policy {policy}");
        assert_eq!(cli.run(&format!("peek {arguments}")).code, 0, "{policy}");
        assert_eq!(cli.run(&format!("try {arguments}")).code, 0, "{policy}");
        if key != "token-bucket" {
            assert_eq!(cli.run(&format!("try {arguments}")).code, 1, "{policy}");
        }
        let target = arguments.replacen(" 2", "", 1);
        let deleted = cli.run(&format!("delete --yes {target}"));
        assert_eq!(deleted.out, "deleted", "{policy}");
        assert_eq!(cli.run(&format!("try {arguments}")).code, 0, "{policy}");
    }
}

#[test]
fn a_policys_acquire_comes_back_when_the_policy_says() {
    let cli = Cli::start();
    let acquire = "acquire a --policy fixed-window --rate 1/300ms";
    assert_eq!(cli.run(acquire).code, 0);
    assert_eq!(cli.run(acquire).code, 0);
    let hour = "acquire b --policy fixed-window --rate 1/1h --timeout 1s";
    assert_eq!(cli.run(hour).code, 0);
    assert_eq!(cli.run(hour).code, 1);
}

#[test]
fn an_acquire_takes_no_turn_that_comes_after_its_time() {
    let cli = Cli::start();
    let bucket = "a --policy leaky-bucket --rate 1/1h --capacity 3";
    assert_eq!(cli.run(&format!("acquire {bucket} --timeout 1s")).code, 0);
    let before = cli.json(&format!("peek {bucket}"));
    assert_eq!(cli.run(&format!("acquire {bucket} --timeout 1s")).code, 1);
    let after = cli.json(&format!("peek {bucket}"));
    assert_eq!(before["remaining"], after["remaining"]);
}

#[test]
fn an_acquire_with_a_timeout_makes_one_call_unless_there_are_turns() {
    let cli = Cli::start();
    for (policy, calls) in [
        ("token-bucket --rate 1/s --capacity 9", 1),
        ("leaky-bucket --rate 1/1ms --capacity 9", 2),
    ] {
        let acquire = format!("acquire {calls} --timeout 1h --policy {policy}");
        assert_eq!(cli.run(&acquire).code, 0); // the server knows the scripts from now on
        cli.redis(&["CONFIG", "RESETSTAT"]);
        assert_eq!(cli.run(&acquire).code, 0);
        let info = cli.redis(&["INFO", "commandstats"]);
        let info: String = redis::from_redis_value(info).unwrap();
        let made = info.split("cmdstat_evalsha:calls=").nth(1).unwrap();
        assert_eq!(
            made.split(',').next(),
            Some(&*calls.to_string()),
            "{policy}"
        );
    }
}

#[test]
fn completions_and_manual_need_no_server() {
    let completions = Ran::from(output(&mut program("completions bash")));
    assert!(completions.out.contains("_rratelimiter"), "{completions:?}");
    let page = Ran::from(output(&mut program("man")));
    assert!(page.out.contains(".TH rratelimiter"), "{page:?}");
}

#[test]
fn with_json_each_command_prints_an_object_also_of_a_mistake() {
    let run = |arguments: &str| Ran::from(output(&mut program(arguments)));
    for (arguments, named) in [
        ("--json no-such", "no-such"),
        ("try --json", "<NAME>"),
        ("expire orders --json", "TIME"),
        ("set orders five/s --json", "five"),
    ] {
        let ran = run(arguments);
        assert_eq!((ran.code, &*ran.out), (2, ""), "{ran:?}");
        let told: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!(told["error"]["kind"], json!("usage"));
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(named), "{message}");
        assert!(!message.starts_with("error"), "{message}");
    }
    // It is an argument of the command.
    let ran = run("run --no-such orders -- true --json");
    assert!(ran.err.starts_with("error: "), "{ran:?}");
    for (arguments, text) in [("completions bash", "_rratelimiter"), ("man try", ".TH")] {
        let ran = run(&format!("{arguments} --json"));
        let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert!(object["text"].as_str().unwrap().contains(text), "{object}");
    }
}
