use std::fs;

use crate::support::servers::Server;
use crate::support::{Cli, Ran, program};
use crate::watchdog::output;

#[test]
fn a_mistake_of_the_command_line_ends_with_2_and_names_the_argument() {
    let cli = Cli::start();
    for (arguments, named) in [
        ("set orders five/s", "five"),
        ("set orders 0/s", "permits"),
        ("try orders 0", "permits"),
        ("try orders", "orders"),
        ("try orders --capacity 5", "--policy"),
        ("delete orders --rate 5/s", "--policy"),
        ("try a --policy fixed-window", "rate"),
        ("try a --policy fixed-window --rate 0/1s", "rate"),
        ("try a --policy gcra --rate 1/month", "rate"),
        ("try a --policy gcra --rate 1/s --per-client", "--policy"),
        (
            "try a --policy fixed-window --rate 5/1s --capacity 3",
            "capacity",
        ),
        ("try a --policy no-such", "no-such"),
        ("try orders --per-client", "--rate"),
        ("expire orders", "TIME"),
        ("delete orders", "--yes"),
        ("run orders", "COMMAND"),
        (
            "--password-file /no/such/file available orders",
            "/no/such/file",
        ),
        ("--url http://127.0.0.1 available orders", "url"),
    ] {
        let ran = cli.run(arguments);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (2, ""),
            "{arguments}: {ran:?}"
        );
        assert!(ran.err.contains(named), "{arguments}: {ran:?}");
    }
    let mut connection = redis::Client::open(format!("redis://127.0.0.1:{}", cli.server.port()))
        .unwrap()
        .get_connection()
        .unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn a_store_that_is_away_or_holds_something_else_ends_with_3() {
    let nobody = Server::start().port();
    let url = format!("redis://:hunter2@127.0.0.1:{nobody}");
    let ran = Ran::from(output(program("--json try orders").env("REDIS_URL", url)));
    assert_eq!(ran.code, 3, "{ran:?}");
    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(error["error"]["kind"], "store_unavailable");
    assert!(!ran.err.contains("hunter2"), "{ran:?}");

    let cli = Cli::start();
    let mut connection = redis::Client::open(format!("redis://127.0.0.1:{}", cli.server.port()))
        .unwrap()
        .get_connection()
        .unwrap();
    let () = redis::cmd("SET")
        .arg("orders")
        .arg("junk")
        .query(&mut connection)
        .unwrap();
    assert_eq!(cli.run("try orders").code, 3);
}

#[test]
fn a_password_comes_from_a_file_and_is_not_printed() {
    let server = Server::start_with(&["--requirepass", "hunter2"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let run = || {
        let mut command = program("set orders 5/s");
        let command = command
            .env("REDIS_URL", &url)
            .env("REDIS_PASSWORD_FILE", &file);
        Ran::from(output(command))
    };
    fs::write(&file, "hunter2\n").unwrap();
    assert_eq!(run().code, 0);
    fs::write(&file, "hunter3\n").unwrap();
    let refused = run();
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(!refused.err.contains("hunter3"), "{refused:?}");
}

#[test]
fn a_name_with_control_characters_is_printed_escaped() {
    let cli = Cli::start();
    let mut command = cli.command("config");
    let ran = Ran::from(output(command.arg("a\x1b[2J\nb")));
    assert_eq!(ran.out, "there is no limiter a\\u{1b}[2J\\nb");
}

#[test]
fn a_key_of_another_program_is_reported_and_kept() {
    let cli = Cli::start();
    cli.redis(&["SET", "letter", "a"]);
    cli.redis(&["HSET", "basket", "apples", "3"]);
    let dumps = || ["letter", "basket"].map(|name| cli.redis(&["DUMP", name]));
    let before = dumps();
    for name in ["letter", "basket"] {
        for command in [
            "delete NAME --yes",
            "expire NAME 1ms",
            "expire NAME --never",
            "show NAME",
            "set NAME 5/s",
            "set NAME 5/s --if-missing",
            "try NAME --rate 5/s",
            "acquire NAME --rate 5/s",
            "peek NAME --rate 5/s",
            "run NAME --rate 5/s -- true",
        ] {
            let ran = cli.run(&command.replace("NAME", name));
            assert_eq!(ran.code, 3, "{command}: {ran:?}");
            assert!(ran.err.contains("no rate limiter"), "{command}: {ran:?}");
        }
        assert_eq!(cli.redis(&["TTL", name]), redis::Value::Int(-1));
    }
    assert_eq!(dumps(), before);
    // The keys that an expired limiter has left are its own.
    cli.redis(&["SET", "{orders}:value", "3"]);
    assert_eq!(cli.run("delete orders --yes").code, 0);
    assert_eq!(
        cli.redis(&["EXISTS", "{orders}:value"]),
        redis::Value::Int(0)
    );
}

#[test]
fn without_a_limiter_no_key_is_deleted_that_none_has_written() {
    for (key, written) in [
        (
            "{orders}:value",
            &["SET", "{orders}:value", "once upon a time"],
        ),
        ("{orders}:permits", &["SADD", "{orders}:permits", "a"]),
    ] {
        let cli = Cli::start();
        cli.redis(written);
        for command in ["delete orders --yes", "expire orders 0s --yes"] {
            let ran = cli.run(command);
            assert_eq!(ran.code, 3, "{command}: {ran:?}");
            let told = "the keys that it would have hold what no limiter does";
            assert!(ran.err.contains(told), "{command}: {ran:?}");
            assert_eq!(cli.redis(&["EXISTS", key]), redis::Value::Int(1));
        }
    }
}

#[test]
fn a_policy_deletes_no_key_that_it_does_not_count_in() {
    let cli = Cli::start();
    cli.redis(&["SET", "letter", "a"]);
    cli.redis(&["SET", "number", "5"]);
    cli.redis(&["HSET", "basket", "apples", "3"]);
    cli.redis(&["ZADD", "ranks", "1", "a"]);
    cli.run("set orders 5/s");
    for name in ["letter", "number", "basket", "ranks", "orders"] {
        for policy in [
            "fixed-window --rate 9/1h",
            "sliding-window-log --rate 9/1h",
            "token-bucket --rate 1/s --capacity 9",
            "leaky-bucket --rate 1/1h --capacity 9",
        ] {
            let ran = cli.run(&format!("delete {name} --yes --policy {policy}"));
            assert_eq!(ran.code, 3, "{name}: {policy}: {ran:?}");
            let told = format!("nothing that {}", policy.split(' ').next().unwrap());
            let told = told.replace('-', "_") + " counts in";
            assert!(ran.err.contains(&told), "{ran:?}");
        }
        assert_eq!(cli.redis(&["EXISTS", name]), redis::Value::Int(1));
    }
    for policy in [
        "fixed-window --rate 9/1h",
        "sliding-window-log --rate 9/1h",
        "sliding-window-counter --rate 9/1h --period 10m",
        "token-bucket --rate 1/s --capacity 9",
        "penalty-token-bucket --rate 1/1h --capacity 9",
        "quota-bucket --rate 9/1h --capacity 9",
        "leaky-bucket --rate 1/1h --capacity 9",
    ] {
        for (command, code) in [("try", 0), ("delete --yes", 0), ("delete --yes", 2)] {
            let ran = cli.run(&format!("{command} alice --policy {policy}"));
            assert_eq!(ran.code, code, "{command} {policy}: {ran:?}");
        }
    }
}

#[test]
fn an_error_says_what_to_do_next() {
    let server = Server::start_with(&["--requirepass", "hunter2"]);
    let at = |url: &str| {
        let mut command = program("available orders");
        Ran::from(output(command.env("REDIS_URL", url)))
    };
    let asks = at(&format!("redis://127.0.0.1:{}", server.port()));
    assert!(
        asks.code == 3 && asks.err.contains("--password-file"),
        "{asks:?}"
    );
    let wrong = at(&format!("redis://:wrong@127.0.0.1:{}", server.port()));
    assert!(
        wrong.code == 3 && wrong.err.contains("check the password"),
        "{wrong:?}"
    );
    let plain = at(&format!("rediss://127.0.0.1:{}", server.port()));
    assert!(
        plain.code == 3 && plain.err.contains("may speak no TLS"),
        "{plain:?}"
    );
    let missing = Cli::start().run("available orders");
    assert!(
        missing.code == 2 && missing.err.contains("`rratelimiter set"),
        "{missing:?}"
    );
}
