use serde_json::json;

use crate::doctor::{member, old_member};
use crate::support::{Cli, Ran};
use crate::watchdog::output;

#[test]
fn a_limiter_is_shown_with_its_window_and_its_times_to_live() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run("try orders 3");
    cli.run("try orders 1");
    let shown = cli.json("show orders");
    let permits = &shown["permits"][0];
    assert_eq!(
        (&shown["rate"], &shown["interval_ms"]),
        (&json!(10), &json!(3_600_000))
    );
    for (field, value) in [
        ("available", json!(6)),
        ("value", json!(6)),
        ("drift", json!(0)),
        ("grants", json!(2)),
        ("permits_in_use", json!(4)),
        ("generations", json!({ "current": 2 })),
        ("is_exact", json!(true)),
        (
            "time_to_live_ms",
            json!({ "settings": null, "value": null, "permits": null }),
        ),
    ] {
        assert_eq!(permits[field], value, "{field}: {shown}");
    }
    let text = cli.run("show orders").out;
    for part in [
        "10 per 1h",
        "available   6 of 10",
        "holds",
        "comes back",
        "3 in ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn the_timeline_marks_who_has_taken_what_comes_back() {
    let cli = Cli::start();
    cli.run("set orders 100/1h");
    let now = cli.now();
    let id = |process: u64, call: u64| {
        let mut id = [7; 16];
        id[..8].copy_from_slice(&((process << 40) + call).to_be_bytes());
        id
    };
    for (minutes, id, permits) in [
        (59, id(1, 1), 2),
        (30, id(1, 2), 2),
        (29, id(2, 1), 9),
        (1, id(2, 2), 9),
        (1, id(3, 1), 8),
    ] {
        let (score, bytes) = ((now - minutes * 60_000).to_string(), member(&id, permits));
        let words: [&[u8]; 4] = [b"ZADD", b"{orders}:permits", score.as_bytes(), &bytes];
        cli.redis(&words);
    }
    cli.redis(&["SET", "{orders}:value", "70"]);
    let text = cli.run("show orders").out;
    let taken: Vec<_> = text.lines().filter(|it| it.contains("taken by")).collect();
    assert!(
        taken[0].contains(" a process") && taken[0].ends_with("18 permits in 2 grants"),
        "{text}"
    );
    assert!(
        taken[1].contains(" b process") && taken[1].ends_with("4 permits in 2 grants"),
        "{text}"
    );
    assert!(
        taken[2].contains(" - clients that cannot be told apart: 8 permits"),
        "{text}"
    );
    let lines: Vec<_> = text.lines().collect();
    let timeline = lines.iter().position(|it| it.starts_with("  |")).unwrap();
    let marks: String = lines[timeline + 1].split_whitespace().collect();
    assert_eq!(marks, "bbaa", "{text}");
    fits_in_80_columns(&text);
}

#[test]
fn processes_of_the_program_have_marks_where_they_took_permits() {
    let cli = Cli::start();
    cli.run("set orders 100/100h");
    // What each process takes is a third of the window older when the next one comes.
    let age = "for _, it in ipairs(redis.call('zrange', KEYS[1], 0, -1)) do redis.call('zincrby', KEYS[1], -120000000, it) end";
    for permits in [5, 4, 3] {
        cli.redis(&["EVAL", age, "1", "{orders}:permits"]);
        let run = format!("run orders --permits {permits} --each -- true");
        cli.run_with(&run, "a\nb\n");
    }
    let text = cli.run("show orders").out;
    let lines: Vec<_> = text.lines().collect();
    let timeline = lines.iter().position(|it| it.starts_with("  |")).unwrap();
    let marks = lines[timeline + 1].char_indices();
    let marks: Vec<_> = marks.filter(|(_, mark)| *mark != ' ').collect();
    assert_eq!(marks, [(28, 'a'), (53, 'b'), (78, 'c')], "{text}");
    assert!(!text.contains("cannot be told apart"), "{text}");
    fits_in_80_columns(&text);
}

#[test]
fn of_many_takers_eight_have_marks_and_the_others_one() {
    let cli = Cli::start();
    cli.run("set orders 500/1h");
    let now = cli.now().to_string();
    let mut add = vec![b"ZADD".to_vec(), b"{orders}:permits".to_vec()];
    for process in 1..=20_u64 {
        for call in 0..2 {
            let counter = ((process << 40) + call).to_be_bytes();
            let id = [counter, [9; 8]].concat();
            add.extend([now.clone().into_bytes(), member(&id, process as u32)]);
        }
    }
    cli.redis(&add);
    cli.redis(&["SET", "{orders}:value", "80"]);
    let text = cli.run("show orders").out;
    let takers: Vec<_> = text.lines().filter(|it| it.contains("taken by")).collect();
    assert_eq!(takers.len(), 9, "{text}");
    assert!(takers[7].contains(" h process"), "{text}");
    assert!(
        takers[8].ends_with(" - all other clients: 156 permits"),
        "{text}"
    );
    fits_in_80_columns(&text);
}

fn fits_in_80_columns(text: &str) {
    let mut lines = text.lines();
    assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn members_of_each_generation_and_what_does_not_add_up_are_shown() {
    let cli = Cli::start();
    cli.run("set orders 100/1h");
    let now = cli.now();
    for (score, bytes) in [
        (now, member(&[1; 16], 2)),
        (now, member(&[2; 8], 3)),
        (now + 60_000, old_member()),
        (now, b"junk".to_vec()),
    ] {
        let score = score.to_string();
        let words: [&[u8]; 4] = [b"ZADD", b"{orders}:permits", score.as_bytes(), &bytes];
        cli.redis(&words);
    }
    cli.redis(&["SET", "{orders}:value", "90"]);
    let permits = &cli.json("show orders")["permits"][0];
    assert_eq!(permits["drift"], json!(-5));
    let generations =
        json!({ "current": 1, "redisson_3_17": 1, "redisson_3_16_4": 1, "malformed": 1 });
    assert_eq!(permits["generations"], generations);
    let ahead = permits["clock_ahead_ms"].as_i64().unwrap();
    assert!((50_000..=60_000).contains(&ahead), "{ahead}");
    let text = cli.run("show orders").out;
    assert!(
        text.contains("5 permits lost") && text.contains("Redisson 3.17 to 3.20: 1"),
        "{text}"
    );
    fits_in_80_columns(&text);
    cli.redis(&["SET", "{orders}:value", "100"]);
    let text = cli.run("show orders").out;
    assert!(text.contains("5 permits too many"), "{text}");
    fits_in_80_columns(&text);
}

#[test]
fn each_client_of_a_rate_for_each_is_shown() {
    let cli = Cli::start();
    cli.run("set orders 5/1h --per-client");
    cli.run("try orders 2 --client-id a");
    cli.run("try orders 1 --client-id b");
    let shown = cli.json("show orders");
    let clients: Vec<_> = { shown["permits"].as_array().unwrap().iter() }
        .map(|it| (&it["client"], &it["available"]))
        .collect();
    assert_eq!(
        clients,
        [(&json!("a"), &json!(3)), (&json!("b"), &json!(4))]
    );
}

#[test]
fn a_limiter_of_thousands_of_grants_is_read_in_pages() {
    let cli = Cli::start();
    cli.run("set orders 5000/1h");
    cli.fill_orders(1_700, 3300);
    let permits = &cli.json("show orders")["permits"][0];
    assert_eq!(
        (&permits["grants"], &permits["drift"]),
        (&json!(1_700), &json!(0))
    );
    assert_eq!(permits["permits_in_use"], json!(1_700));
}

#[test]
fn of_many_clients_the_first_are_shown_and_the_others_counted() {
    let cli = Cli::start();
    cli.run("set orders 5/1h --per-client");
    let add =
        "for i = 1, 30 do redis.call('set', KEYS[1] .. ':' .. string.format('%02d', i), 5) end";
    cli.redis(&["EVAL", add, "1", "{orders}:value"]);
    let shown = cli.json("show orders");
    let clients = shown["permits"].as_array().unwrap().iter();
    let clients: Vec<_> = clients.map(|it| it["client"].as_str().unwrap()).collect();
    let expected: Vec<_> = (1..=20).map(|it| format!("{it:02}")).collect();
    assert_eq!(clients, expected);
    assert_eq!(shown["more_clients"], json!(10));
    let text = cli.run("show orders").out;
    assert!(text.contains("clients     30"), "{text}");
    assert!(text.ends_with("10 more than the 20 shown"), "{text}");
}

#[test]
fn colours_are_for_terminals_and_for_those_who_force_them() {
    let cli = Cli::start();
    cli.run("set orders 5/1h");
    let show = |set: &[(&str, &str)]| {
        let mut command = cli.command("show orders");
        Ran::from(output(command.envs(set.iter().copied()))).out
    };
    assert!(show(&[("CLICOLOR_FORCE", "1")]).contains("\x1b["));
    assert!(!show(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\x1b'));
    assert_eq!(cli.run("show no-such").code, 2);
    cli.redis(&[
        "HSET",
        "evil\x1b[2J",
        "rate",
        "5",
        "interval",
        "1000",
        "type",
        "0",
    ]);
    let mut command = cli.command("show");
    let evil = Ran::from(output(command.arg("evil\x1b[2J")));
    assert!(evil.code == 0 && !evil.out.contains('\x1b'), "{evil:?}");
}
