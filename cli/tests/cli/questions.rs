//! What `doctor --fix` and `delete` ask on a terminal.

use crate::doctor::{add, left_behind, member};
use crate::pseudo_terminal::PseudoTerminal;
use crate::support::Cli;

/// What ends an answer without a word: the end of the input, and an interrupt.
const END: &str = "\x04";
const INTERRUPT: &str = "\x03";

fn answered(cli: &Cli, arguments: &str, question: &str, answer: &str) -> (Option<i32>, String) {
    let mut terminal = PseudoTerminal::start(&cli.command(arguments), 100, 24);
    terminal.until(question);
    terminal.type_in(answer);
    (terminal.ended(), terminal.output)
}

/// Limiters of 10 permits, of which 3 are lost.
fn with_lost_permits(names: &[&str]) -> Cli {
    let cli = Cli::start();
    for name in names {
        cli.run(&format!("set {name} 10/1h"));
        cli.redis(&["SET", &format!("{{{name}}}:value"), "7"]);
    }
    cli
}

/// The value as it is stored.
fn stored(cli: &Cli, name: &str) -> String {
    redis::from_redis_value(cli.redis(&["GET", &format!("{{{name}}}:value")])).unwrap()
}

#[test]
fn doctor_mends_a_limiter_only_if_the_answer_is_yes() {
    for (answer, exit_code, available) in [
        ("y\n", Some(0), "10"),
        ("yes\n", Some(0), "10"),
        ("n\n", Some(1), "7"),
        ("\n", Some(1), "7"),
        ("yep\n", Some(1), "7"),
        (END, Some(1), "7"),
        (INTERRUPT, None, "7"),
    ] {
        let cli = with_lost_permits(&["orders"]);
        let (ended, output) = answered(
            &cli,
            "doctor orders --fix",
            "Fix orders? [y/N/a for all]",
            answer,
        );
        assert_eq!(ended, exit_code, "{answer:?}: {output}");
        assert_eq!(stored(&cli, "orders"), available, "{answer:?}: {output}");
        assert!(
            output.contains("permits-lost: 3 permits never come back"),
            "{output}"
        );
    }
}

#[test]
fn doctor_asks_for_each_limiter_until_all_may_be_mended() {
    let names = ["a", "b", "c"];
    for (answers, mended) in [(["n\n", "y\n", "n\n"], 1), (["n\n", "a\n", ""], 2)] {
        let cli = with_lost_permits(&names);
        let mut terminal = PseudoTerminal::start(&cli.command("doctor --fix"), 100, 24);
        for answer in answers.iter().filter(|it| !it.is_empty()) {
            terminal.until("[y/N/a for all]");
            terminal.type_in(answer);
        }
        assert_eq!(terminal.ended(), Some(1), "one at least is left");
        let are_mended = names.map(|name| stored(&cli, name) == "10");
        assert_eq!(are_mended.iter().filter(|it| **it).count(), mended);
    }
}

#[test]
fn delete_removes_a_limiter_only_if_the_answer_is_yes() {
    for (answer, exit_code) in [
        ("y\n", Some(0)),
        ("n\n", Some(1)),
        ("\n", Some(1)),
        (END, Some(1)),
        (INTERRUPT, None),
    ] {
        let cli = Cli::start();
        cli.run("set orders 10/1h");
        let (ended, output) = answered(&cli, "delete orders", "Delete orders? [y/N]", answer);
        assert_eq!(ended, exit_code, "{answer:?}: {output}");
        let is_there = cli.redis(&["EXISTS", "orders"]) == redis::Value::Int(1);
        assert_eq!(is_there, exit_code != Some(0), "{answer:?}: {output}");
    }
}

#[test]
fn expire_removes_a_limiter_only_if_the_answer_is_yes() {
    for (answer, exit_code) in [("y\n", 0), ("n\n", 1), (END, 1)] {
        let cli = Cli::start();
        cli.run("set orders 10/1h");
        let question = "Delete orders? [y/N]";
        let (ended, output) = answered(&cli, "expire orders 0s", question, answer);
        assert_eq!(ended, Some(exit_code), "{answer:?}: {output}");
        let is_there = redis::Value::Int(exit_code.into());
        assert_eq!(cli.redis(&["EXISTS", "orders"]), is_there);
    }
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let refused = cli.run("expire orders 0s");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("`expire` needs --yes"), "{refused:?}");
    assert_eq!(cli.run("expire orders 1h").code, 0);
    assert_eq!(cli.run("expire orders 0s --yes").out, "deleted");
    assert_eq!(cli.redis(&["EXISTS", "orders"]), redis::Value::Int(0));
}

/// The question to fix `orders`, and the answer after these commands of others.
fn fixed_after(cli: &Cli, commands: &[&str]) -> String {
    let doctor = cli.command("doctor orders --fix --idle 1s --notes");
    let mut terminal = PseudoTerminal::start(&doctor, 100, 24);
    terminal.until("Fix orders? [y/N/a for all]");
    for command in commands {
        assert_eq!(cli.run(command).code, 0, "{command}");
    }
    terminal.type_in("y\n");
    terminal.ended();
    terminal.output
}

#[test]
fn permits_of_a_limiter_that_was_made_meanwhile_are_not_removed() {
    for type_before in ["", "--per-client"] {
        let cli = Cli::start();
        if type_before.is_empty() {
            left_behind(&cli, "{orders}:value", "{orders}:permits");
        } else {
            cli.run("set orders 10/1h --per-client");
            left_behind(&cli, "{orders}:value", "{orders}:permits");
        }
        let output = fixed_after(
            &cli,
            &["set orders 10/1h --yes --overall --reset", "try orders 10"],
        );
        assert!(!output.contains(&fixed("keys")), "{output}");
        assert_eq!(cli.run("available orders").out, "0", "{type_before}");
        let keys = cli.redis(&["EXISTS", "{orders}:value", "{orders}:permits"]);
        assert_eq!(keys, redis::Value::Int(2), "{type_before}");
    }
}

#[test]
fn a_time_to_live_that_was_renewed_meanwhile_is_not_shortened() {
    let cli = Cli::start();
    cli.run("set orders 10/1h --keep-alive 9h");
    cli.redis(&["SET", "{orders}:value", "10"]);
    cli.redis(&["PEXPIRE", "orders", "3600000"]);
    // A grant renews all of them.
    let output = fixed_after(&cli, &["try orders"]);
    for key in ["orders", "{orders}:value", "{orders}:permits"] {
        let redis::Value::Int(lives) = cli.redis(&["PTTL", key]) else {
            panic!("a time to live of {key}: {output}")
        };
        assert!(lives > 8 * 3_600_000, "{key}: {lives}: {output}");
    }
}

/// Between the reading and the answer a client is back, or another program has the key.
#[test]
fn the_keys_of_a_client_that_took_permits_meanwhile_are_not_removed() {
    let cli = Cli::start();
    cli.run("set orders 10/1s --per-client");
    left_behind(&cli, "{orders}:value:a", "{orders}:permits:a");
    let output = fixed_after(&cli, &["try orders 4 --client-id a"]);
    assert!(output.contains("idle-client"), "{output}");
    assert!(!output.contains(&fixed("idle-client")), "{output}");
    let keys = cli.redis(&["EXISTS", "{orders}:value:a", "{orders}:permits:a"]);
    assert_eq!(keys, redis::Value::Int(2));
}

/// Each case changes one of the parts that are compared.
#[test]
fn keys_of_which_any_part_has_changed_meanwhile_are_not_removed() {
    const PERMITS: &str = "{orders}:permits";
    for change in ["value", "number", "oldest", "newest", "settings", "type"] {
        let cli = Cli::start();
        if change == "type" {
            cli.run("set orders 10/1h --per-client");
        }
        left_behind(&cli, "{orders}:value", PERMITS);
        let now = cli.now();
        add(&cli, PERMITS, now - 9_000_000, &member(&[2; 16], 5));
        add(&cli, PERMITS, now - 8_000_000, &member(&[3; 16], 5));
        let doctor = cli.command("doctor orders --fix");
        let mut terminal = PseudoTerminal::start(&doctor, 100, 24);
        terminal.until("Fix orders? [y/N/a for all]");
        if ["number", "oldest", "newest"].contains(&change) {
            let words: [&[u8]; 3] = [b"ZREM", PERMITS.as_bytes(), &member(&[2; 16], 5)];
            cli.redis(&words);
        }
        match change {
            "value" => drop(cli.redis(&["SET", "{orders}:value", "6"])),
            "oldest" => add(&cli, PERMITS, now - 11_000_000, &member(&[4; 16], 5)),
            "newest" => add(&cli, PERMITS, now, &member(&[4; 16], 5)),
            "settings" => {
                let settings = "HSET orders rate 10 interval 3600000 type 0 keepAliveTime 0";
                cli.redis(&settings.split(' ').collect::<Vec<_>>());
            }
            "type" => drop(cli.redis(&["HSET", "orders", "type", "0"])),
            _ => {}
        }
        terminal.type_in("y\n");
        terminal.ended();
        let keys = cli.redis(&["EXISTS", "{orders}:value", PERMITS]);
        assert_eq!(keys, redis::Value::Int(2), "{change}: {}", terminal.output);
    }
}

#[test]
fn keys_that_may_be_another_programs_are_removed_one_by_one() {
    for (answer, value, code) in [("y\n", 0, 0), ("n\n", 1, 0), ("\n", 1, 0), (END, 1, 0)] {
        let cli = Cli::start();
        cli.redis(&["SET", "{a}:value", "300"]);
        cli.redis(&["SET", "{b}:value", "7"]);
        // --yes is not an answer to these questions.
        let doctor = "doctor --fix --yes --remove-unproven";
        let mut terminal = PseudoTerminal::start(&cli.command(doctor), 100, 24);
        for _ in 0..2 {
            terminal.until("? [y/N]");
            terminal.type_in(answer);
        }
        assert_eq!(
            terminal.ended(),
            Some(code),
            "{answer:?}: {}",
            terminal.output
        );
        let output = &terminal.output;
        assert!(
            output.contains("Remove {a}:value, which holds 300? [y/N]"),
            "{output}"
        );
        for key in ["{a}:value", "{b}:value"] {
            assert_eq!(
                cli.redis(&["EXISTS", key]),
                redis::Value::Int(value),
                "{answer:?}"
            );
        }
    }
}

/// How a terminal shows that a finding of this code is fixed.
fn fixed(code: &str) -> String {
    format!("fixed\x1b[0m {code}")
}

#[test]
fn what_may_be_another_programs_is_fixed_once_all_its_keys_are_gone() {
    for (answers, is_fixed) in [
        (&["y\n", "y\n"][..], true),
        (&["y\n", "n\n"], false),
        (&["n\n"], false),
    ] {
        let cli = Cli::start();
        cli.redis(&["SET", "{a}:value", "300"]);
        // A grant of Redisson 3.13, which proves nothing.
        let member: [u8; 8] = [64, 0, 0, 1, 5, 0, 0, 0];
        let words: [&[u8]; 4] = [b"ZADD", b"{a}:permits", b"1", &member];
        cli.redis(&words);
        let doctor = cli.command("doctor --remove-unproven");
        let mut terminal = PseudoTerminal::start(&doctor, 100, 24);
        for answer in answers {
            terminal.until("? [y/N]");
            terminal.type_in(answer);
        }
        assert_eq!(
            terminal.ended(),
            Some(0),
            "{answers:?}: {}",
            terminal.output
        );
        let output = &terminal.output;
        assert_eq!(
            output.contains(&fixed("not-proven")),
            is_fixed,
            "{answers:?}: {output}"
        );
    }
}

#[test]
fn a_key_that_another_program_has_written_meanwhile_is_not_removed() {
    let cli = Cli::start();
    cli.redis(&["SET", "{a}:value", "300"]);
    let doctor = cli.command("doctor --remove-unproven");
    let mut terminal = PseudoTerminal::start(&doctor, 100, 24);
    terminal.until("? [y/N]");
    cli.redis(&["SET", "{a}:value", "301"]);
    terminal.type_in("y\n");
    terminal.ended();
    assert!(
        !terminal.output.contains(&fixed("not-proven")),
        "{}",
        terminal.output
    );
    assert_eq!(stored(&cli, "a"), "301");
}

#[test]
fn a_terminal_shows_how_far_a_large_limiter_is_read_and_no_file_does() {
    let cli = Cli::start();
    cli.run("set orders 400000/1h");
    cli.fill_orders(100_000, 300_000);
    let mut terminal = PseudoTerminal::start(&cli.command("doctor orders"), 100, 24);
    terminal.until("of 100000 grants, pass");
    terminal.ended();
    let end = terminal.output.rsplit("of at most 4").next().unwrap();
    assert!(end.starts_with("\r\x1b[K"), "{end:?}");
    let ran = cli.run("doctor orders");
    assert!(!ran.err.contains("grants, pass"), "{ran:?}");
}

#[test]
fn set_changes_a_rate_only_if_the_answer_is_yes() {
    let question = "orders: 10 per 1h, keep alive 2h -> 20 per 1h, keep alive 2h? [y/N]";
    for (answer, exit_code, permits) in
        [("y\n", 0, 20), ("n\n", 1, 10), ("\n", 1, 10), (END, 1, 10)]
    {
        let cli = Cli::start();
        cli.run("set orders 10/1h --keep-alive 2h");
        let (ended, output) = answered(&cli, "set orders 20/1h", question, answer);
        assert_eq!(ended, Some(exit_code), "{answer:?}: {output}");
        assert_eq!(
            cli.json("config orders")["rate"]["permits"],
            permits,
            "{output}"
        );
    }
}

#[test]
fn set_overwrites_no_rate_that_came_after_the_question() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let mut terminal = PseudoTerminal::start(&cli.command("set orders 20/1h"), 100, 24);
    terminal.until("? [y/N]");
    cli.run("update orders 5/1h");
    terminal.type_in("y\n");
    terminal.until("orders has another rate by now: nothing is set");
    assert_eq!(terminal.ended(), Some(1));
    assert_eq!(cli.json("config orders")["rate"]["permits"], 5);
}

#[test]
fn delete_tells_how_many_clients_lose_their_keys() {
    for (answer, exit_code) in [("n\n", 1), ("y\n", 0)] {
        let cli = Cli::start();
        cli.run("set orders 10/1h --per-client");
        for client in ["a", "b"] {
            cli.run(&format!("try orders --client-id {client}"));
        }
        let question = "Delete orders and the keys of 2 clients? [y/N]";
        let (ended, output) = answered(&cli, "delete orders", question, answer);
        assert_eq!(ended, Some(exit_code), "{output}");
        let left = if exit_code == 0 { 0 } else { 5 };
        assert_eq!(cli.redis(&["DBSIZE"]), redis::Value::Int(left));
    }
}

/// Nobody sees a question that is written to a file.
#[test]
fn nothing_is_asked_where_the_question_is_not_seen() {
    let cli = with_lost_permits(&["orders"]);
    for arguments in ["delete orders", "doctor orders --fix"] {
        let program = cli.command("").get_program().display().to_string();
        let mut command = cli.command("");
        let script = format!("{program} {arguments} 2>/dev/null; echo ended $?");
        command = {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &script]).envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            shell
        };
        let mut terminal = PseudoTerminal::start(&command, 100, 24);
        terminal.until("ended 2");
        terminal.ended();
        assert_eq!(stored(&cli, "orders"), "7");
    }
}
