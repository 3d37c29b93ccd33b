use serde_json::json;

use crate::support::{Cli, Ran, program};

#[test]
fn every_command_has_examples_a_manual_page_and_completions() {
    let help = Ran::from(program("help").output().unwrap()).out;
    let commands = { help.lines() }
        .skip_while(|line| *line != "Commands:")
        .skip(1);
    let commands: Vec<_> = { commands.take_while(|line| !line.is_empty()) }
        .filter_map(|line| line.split_whitespace().next())
        .filter(|it| *it != "help")
        .collect();
    assert_eq!(commands.len(), 18, "{commands:?}");
    for command in commands {
        let help = Ran::from(program(&format!("{command} --help")).output().unwrap()).out;
        assert!(help.contains(&format!("rratelimiter {command}")), "{help}");
        assert!(help.contains("Examples:"), "{command}: {help}");
        let short = Ran::from(program(&format!("{command} -h")).output().unwrap()).out;
        let bare = { short.lines() }
            .filter(|line| line.starts_with("  <") || line.starts_with("  ["))
            .find(|line| line.split_whitespace().count() == 1);
        assert_eq!(bare, None, "{command}: an argument without a word about it");
        let page = Ran::from(program(&format!("man {command}")).output().unwrap()).out;
        assert!(
            page.contains(&format!(".TH rratelimiter-{command} 1")),
            "{page}"
        );
        let completions = Ran::from(program("completions bash").output().unwrap()).out;
        assert!(completions.contains(&format!("__{command}")), "{command}");
    }
}

#[test]
fn a_limiter_lives_from_set_to_delete() {
    let cli = Cli::start();
    assert_eq!(cli.run("set orders 2/1h").out, "orders: 2 per 3600s");
    assert_eq!(cli.run("try orders").code, 0);
    assert_eq!(cli.run("available orders").out, "1");
    assert_eq!(cli.run("try orders 2").code, 1);
    let peeked = cli.json("peek orders");
    assert_eq!(
        (&peeked["granted"], &peeked["remaining"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(cli.run("available orders").out, "1");
    assert_eq!(cli.run("release orders").out, "2 available");
    assert_eq!(cli.run("update orders 7/1h").out, "orders: 7 per 3600s");
    assert_eq!(cli.run("expire orders 2h").out, "expires in 2h");
    assert_eq!(cli.run("expire orders --never").code, 0);
    let config = cli.json("config orders");
    assert_eq!(config["rate"]["permits"], json!(7));
    assert_eq!(config["time_to_live_ms"], json!(null));
    assert_eq!(cli.run("delete orders --yes").out, "deleted");
    assert_eq!(cli.run("delete orders --yes").code, 1);
    assert_eq!(cli.run("config orders").code, 1);
}

#[test]
fn an_update_keeps_what_it_is_not_told() {
    let cli = Cli::start();
    cli.run("set mails 9/1h --per-client --keep-alive 2h");
    cli.run("try mails 3 --client-id one");
    let updated = cli.run("update mails 20/1h --client-id one");
    assert_eq!(
        updated.out,
        "mails: 20 per 3600s per client, keep alive 7200s"
    );
    assert_eq!(cli.run("available mails --client-id one").out, "17");
    assert_eq!(cli.run("update mails 20/1h --keep-alive 3h").code, 0);
    let rate = &cli.json("config mails")["rate"];
    assert_eq!(rate["keep_alive_ms"], json!(10_800_000));
    assert_eq!(cli.run("update mails 20/4h").code, 2, "it lives for less");
}

#[test]
fn a_rate_that_is_set_without_the_keep_alive_before_is_told_to_expire() {
    let cli = Cli::start();
    let set = cli.run("set orders 2/1h --keep-alive 2h").out;
    assert_eq!(set, "orders: 2 per 3600s, keep alive 7200s");
    let set = cli.run("set orders 2/1h").out;
    assert!(
        set.starts_with("orders: 2 per 3600s; expires in 1h 59m"),
        "{set}"
    );
    cli.run("expire orders --never");
    assert_eq!(cli.run("set orders 2/1h").out, "orders: 2 per 3600s");
}

#[test]
fn set_if_missing_leaves_the_rate_that_is_there() {
    let cli = Cli::start();
    assert_eq!(
        cli.json("set orders 2/s --if-missing"),
        json!({"set": true})
    );
    assert_eq!(cli.run("set orders 9/s --if-missing").code, 1);
    assert_eq!(cli.run("config orders").out, "2 per 1s; does not expire");
    assert_eq!(cli.run("update others 9/s").code, 1);
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
        // As of a limiter that is there.
        let there = cli.run(&format!(
            "{command} {}{end}",
            too_many.replace("mails", "orders")
        ));
        assert_eq!(ran.err, there.err.replace("orders", "mails"), "{command}");
        assert_eq!((ran.code, there.code), (2, 2), "{command}");
        assert_eq!(cli.run("config mails").code, 1, "{command}");
    }
}

#[test]
fn a_rate_in_the_call_changes_no_limiter_that_is_there() {
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
    assert_eq!(cli.run("config mails").code, 1, "a peek makes none");
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
fn an_acquire_waits_until_permits_are_there_or_its_time_is_up() {
    let cli = Cli::start();
    cli.run("set orders 1/1h");
    assert_eq!(cli.json("acquire orders")["granted"], json!(true));
    let denied = cli.run("acquire orders --timeout 50ms");
    assert_eq!(denied.code, 1, "{denied:?}");
    let mut waiting = cli.command("acquire orders").spawn().unwrap();
    // Also if it comes before the program waits.
    cli.run("release orders");
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    assert_eq!(cli.run("available orders").out, "0");
}

#[test]
fn each_policy_decides_and_is_reset_by_its_key() {
    let cli = Cli::start();
    for policy in [
        "fixed-window --limit 2 --window 1h",
        "sliding-window-log --limit 2 --window 1h",
        "sliding-window-counter --limit 2 --window 1h --period 30m",
        "token-bucket --per-second 1 --capacity 2",
        "quota-bucket --quota 2 --period 1h --capacity 2",
        "leaky-bucket --quantity 1 --period 1h --capacity 1",
        "penalty-token-bucket --quantity 1 --period 1h --capacity 2",
    ] {
        let key = policy.split(' ').next().unwrap();
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
    let acquire = "acquire a --policy fixed-window --limit 1 --window 300ms";
    assert_eq!(cli.run(acquire).code, 0);
    assert_eq!(cli.run(acquire).code, 0);
    let hour = "acquire b --policy fixed-window --limit 1 --window 1h --timeout 1s";
    assert_eq!(cli.run(hour).code, 0);
    assert_eq!(cli.run(hour).code, 1);
}

#[test]
fn an_acquire_takes_no_turn_that_comes_after_its_time() {
    let cli = Cli::start();
    let bucket = "a --policy leaky-bucket --quantity 1 --period 1h --capacity 3";
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
        ("token-bucket --per-second 1 --capacity 9", 1),
        ("leaky-bucket --quantity 1 --period 1ms --capacity 9", 2),
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
    let completions = Ran::from(program("completions bash").output().unwrap());
    assert!(completions.out.contains("_rratelimiter"), "{completions:?}");
    let page = Ran::from(program("man").output().unwrap());
    assert!(page.out.contains(".TH rratelimiter"), "{page:?}");
}

#[test]
fn with_json_each_command_prints_an_object_also_of_a_mistake() {
    let run = |arguments: &str| Ran::from(program(arguments).output().unwrap());
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
