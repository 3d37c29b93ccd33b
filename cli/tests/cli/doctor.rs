//! Limiters that are damaged in the ways in which Redisson damages them.

use serde_json::{Value, json};

use crate::support::proxy::{Command, Fate, Proxy};
use crate::support::servers::cluster::Cluster;
use crate::support::{Cli, Ran, program};
use crate::watchdog::output;

/// A member of Redisson with this id.
pub fn member(id: &[u8], permits: u32) -> Vec<u8> {
    [&[id.len() as u8], id, &permits.to_le_bytes()].concat()
}

/// A member of Redisson before 3.17, of four permits.
pub fn old_member() -> Vec<u8> {
    [&8u64.to_le_bytes()[..], &[3; 8], &[4, 0, 0, 0]].concat()
}

/// Runs the program behind a proxy that holds each call of a script until `look` has seen it.
async fn run_held(cli: &Cli, words: &str, mut look: impl FnMut(&Command)) -> Ran {
    let mut proxy = Proxy::to(cli.server.port()).await;
    let mut command = program(words);
    command.env("REDIS_URL", proxy.url());
    let running = tokio::task::spawn_blocking(move || Ran::from(output(&mut command)));
    tokio::pin!(running);
    loop {
        proxy.next("EVALSHA", Fate::Held);
        let held = tokio::select! {
            held = proxy.held() => held,
            ran = &mut running => return ran.unwrap(),
        };
        look(&held.command);
        held.let_through().await;
    }
}

pub fn add(cli: &Cli, key: &str, score: i64, member: &[u8]) {
    let score = score.to_string();
    let words: [&[u8]; 4] = [b"ZADD", key.as_bytes(), score.as_bytes(), member];
    cli.redis(&words);
}

/// The findings of limiters, each with its limiter, client and code, and whether it is fixed.
pub fn found(ran: &Ran) -> Vec<(String, String, bool)> {
    let mut found = Vec::new();
    for line in ran.out.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        if object["kind"] != "limiter" {
            continue;
        }
        for finding in object["findings"].as_array().unwrap() {
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            let of = text(&object["name"]) + &text(&object["client"]);
            let is_by_fix = text(&finding["remedy"]).starts_with("--fix ");
            assert_eq!(finding["is_fixable"], json!(is_by_fix), "{finding}");
            found.push((
                of,
                text(&finding["code"]),
                finding["is_fixed"] == json!(true),
            ));
        }
    }
    found
}

/// A command of a plan, as `redis-cli` reads it.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), Vec::new(), false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            '\\' => match characters.next().unwrap() {
                'x' => {
                    let digits: String = characters.by_ref().take(2).collect();
                    word.push(u8::from_str_radix(&digits, 16).unwrap());
                }
                other => word.push(other as u8),
            },
            plain => word.push(plain as u8),
        }
    }
    words.push(word);
    words
}

/// All keys, what they hold, and whether they expire.
fn state(cli: &Cli) -> Vec<redis::Value> {
    let script = "local all = redis.call('keys', '*') table.sort(all) local state = {} \
        for place, key in ipairs(all) do \
          local type = redis.call('type', key).ok \
          local read = {string = {'get', key}, hash = {'hgetall', key}, zset = {'zrange', key, 0, -1, 'withscores'}} \
          state[place] = {key, redis.call(unpack(read[type] or {'type', key})), redis.call('pttl', key) >= 0 and 1 or 0} \
        end return state";
    match cli.redis(&["EVAL", script, "0"]) {
        redis::Value::Array(state) => state,
        other => panic!("{other:?}"),
    }
}

/// Asserts that `doctor` finds this, that `--fix` fixes it, and that nothing is found afterwards.
fn assert_found_and_fixed(cli: &Cli, arguments: &str, code: &str) {
    let before = cli.redis(&["DBSIZE"]);
    let dry = cli.run(&format!("doctor --json {arguments}"));
    let codes: Vec<_> = found(&dry).into_iter().map(|(_, code, _)| code).collect();
    assert!(codes.iter().any(|it| it == code), "{code}: {dry:?}");
    assert!([1, 4].contains(&dry.code), "{code}: {dry:?}");
    assert_eq!(cli.redis(&["DBSIZE"]), before, "a dry run writes nothing");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan");
    let plan = plan.to_str().unwrap();
    cli.run(&format!("doctor {arguments} --plan {plan}"));
    let is_spoilt = state(cli);
    let fixed = cli.run(&format!("doctor --json --fix --yes {arguments}"));
    assert!(found(&fixed).iter().all(|it| it.2), "{code}: {fixed:?}");
    let plan = std::fs::read_to_string(plan).unwrap();
    assert!(plan.contains(&format!("  {code}: ")), "{code}: {plan}");
    plan.lines()
        .filter_map(|it| it.strip_prefix("undo: "))
        .for_each(|it| {
            cli.redis(&words(it));
        });
    assert_eq!(state(cli), is_spoilt, "{plan}");
    let fixed = cli.run(&format!("doctor --json --fix --yes {arguments}"));
    assert!(found(&fixed).iter().all(|it| it.2), "{code}: {fixed:?}");
    let after = cli.run(&format!("doctor --json {arguments}"));
    assert_eq!(found(&after), [], "{code}: {after:?}");
    // A finding that is fixed does not change the exit code.
    assert_eq!(fixed.code, after.code, "{code}: {fixed:?}");
}

#[test]
fn a_limiter_without_faults_has_no_finding() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run("try orders 3");
    let ran = cli.run("doctor orders --json");
    assert_eq!(found(&ran), []);
    let text = cli.run("doctor orders");
    assert!(
        text.out.contains("1 limiter looked at, 3 findings"),
        "{text:?}"
    );
    assert!(!text.out.contains("found "), "{text:?}");
}

/// The member of a lease of this many permits, which may be used for a minute.
fn lease(permits: u32) -> Vec<u8> {
    member(&[&[1; 16][..], &60_000u64.to_le_bytes()].concat(), permits)
}

/// The fence of that lease.
fn fence() -> Vec<u8> {
    member(&[&[1; 16][..], &(1u64 << 53).to_le_bytes()].concat(), 0)
}

/// The score of a lease is the time of its last possible use: it is not the mistake of a clock.
#[test]
fn a_lease_that_may_be_used_later_has_no_finding() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let now = cli.now();
    add(&cli, "{orders}:permits", now, &fence());
    add(&cli, "{orders}:permits", now + 60_000, &lease(3));
    cli.redis(&["SET", "{orders}:value", "7"]);
    let ran = cli.run("doctor orders --json");
    assert_eq!((found(&ran), ran.code), (Vec::new(), 0));
    let shown = &cli.json("show orders")["permits"][0];
    assert_eq!(shown["clock_ahead_ms"], json!(0));
    assert_eq!(shown["generations"], json!({ "lease": 1 }));
    assert_eq!(shown["grants"], json!(1));
    let text = cli.run("show orders").out;
    assert!(text.contains("a lease of the Rust crate: 1"), "{text}");
    assert!(text.contains("  later       3 after 1h\n"), "{text}");
}

/// Otherwise settling the lease would give back permits that were taken out of later grants.
#[test]
fn a_mend_that_takes_permits_of_later_grants_removes_fences_before_them() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let now = cli.now();
    add(&cli, "{orders}:permits", now - 2, &member(&[2; 16], 2));
    add(&cli, "{orders}:permits", now - 1, &fence());
    add(&cli, "{orders}:permits", now, &member(&[3; 16], 4));
    add(&cli, "{orders}:permits", now + 60_000, &lease(2));
    cli.redis(&["SET", "{orders}:value", "3"]); // 1 of 8 was released
    assert_found_and_fixed(&cli, "orders", "permits-too-many");
    let score = |member: &[u8]| {
        let words: [&[u8]; 3] = [b"ZSCORE", b"{orders}:permits", member];
        cli.redis(&words)
    };
    assert_ne!(
        score(&fence()),
        redis::Value::Nil,
        "no later grant was touched"
    );
    cli.redis(&["SET", "{orders}:value", "5"]); // and 2 more
    assert_found_and_fixed(&cli, "orders", "permits-too-many");
    assert_eq!(score(&fence()), redis::Value::Nil);
    assert_ne!(score(&lease(2)), redis::Value::Nil);
}

#[test]
fn permits_that_a_repeated_call_has_lost_come_back() {
    let cli = Cli::start();
    cli.run("set orders 100/1h");
    add(&cli, "{orders}:permits", cli.now(), &member(&[1; 16], 1));
    cli.redis(&["SET", "{orders}:value", "97"]);
    assert_found_and_fixed(&cli, "orders", "permits-lost");
    assert_eq!(cli.run("available orders").out, "99");
    cli.redis(&["DEL", "{orders}:permits"]);
    assert_found_and_fixed(&cli, "orders", "permits-lost");
    assert_eq!(
        cli.redis(&["GET", "{orders}:value"]),
        redis::Value::BulkString(b"100".to_vec())
    );
}

#[test]
fn permits_that_a_release_of_redisson_leaves_are_taken_out_of_the_grants() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let now = cli.now();
    add(&cli, "{orders}:permits", now - 2, &member(&[1; 16], 2));
    add(&cli, "{orders}:permits", now - 1, &member(&[2; 16], 4));
    cli.redis(&["SET", "{orders}:value", "7"]); // 3 of 6 were released
    assert_found_and_fixed(&cli, "orders", "permits-too-many");
    let permits = &cli.json("show orders")["permits"][0];
    assert_eq!(
        (&permits["value"], &permits["permits_in_use"]),
        (&json!(7), &json!(3))
    );
    cli.redis(&["SET", "{orders}:value", "13"]);
    cli.redis(&["DEL", "{orders}:permits"]);
    assert_found_and_fixed(&cli, "orders", "permits-too-many");
    assert_eq!(cli.run("available orders").out, "10");
    // Nothing is taken out of a grant that has expired: its permits come back anyway.
    let expired = now - 2 * 3_600_000;
    add(&cli, "{orders}:permits", expired, &member(&[1; 16], 2));
    add(&cli, "{orders}:permits", now, &member(&[2; 16], 3));
    cli.redis(&["SET", "{orders}:value", "10"]);
    assert_found_and_fixed(&cli, "orders", "permits-too-many");
    let value = &cli.json("show orders")["permits"][0]["value"];
    assert_eq!(*value, json!(8));
    assert_eq!(cli.run("available orders").out, "10");
}

/// Below zero, as after a reservation, what was given back is in the value too.
#[test]
fn a_limiter_is_mended_as_a_request_would_mend_it() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    for value in [-20, -8, -6, -1, 0, 3, 10, 13] {
        let mended = ["try orders 10", "doctor orders --fix --yes"].map(|by| {
            let now = cli.now();
            cli.redis(&["DEL", "{orders}:permits"]);
            add(&cli, "{orders}:permits", now - 2, &member(&[1; 16], 8));
            add(&cli, "{orders}:permits", now - 1, &member(&[2; 16], 10));
            cli.redis(&["SET", "{orders}:value", &value.to_string()]);
            cli.run(by);
            let permits = &cli.json("show orders")["permits"][0];
            ["value", "permits_in_use"].map(|it| permits[it].clone())
        });
        assert_eq!(mended[0], mended[1], "{value}");
    }
}

#[test]
fn what_is_taken_back_is_taken_from_thousands_of_grants_in_bounded_calls() {
    let cli = Cli::start();
    cli.run("set orders 12000/1h");
    cli.fill_orders(11_000, 12_000);
    assert_found_and_fixed(&cli, "orders", "permits-too-many");
    assert_eq!(cli.run("available orders").out, "12000");
}

/// The grant is given back while the step that rewrites it is on its way.
#[tokio::test]
async fn a_grant_of_an_old_version_that_is_gone_meanwhile_stays_gone() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let old = old_member();
    add(&cli, "{orders}:permits", cli.now(), &old);
    cli.redis(&["SET", "{orders}:value", "6"]);
    let mut is_gone = false;
    let ran = run_held(
        &cli,
        "doctor orders --fix --yes --legacy migrate",
        |command| {
            // The step that rewrites members has the permits as its only key.
            if command.0[2] == b"1" {
                is_gone = true;
                let words: [&[u8]; 3] = [b"ZREM", b"{orders}:permits", &old];
                cli.redis(&words);
            }
        },
    )
    .await;
    assert!(is_gone, "{ran:?}");
    let grants = cli.redis(&["ZCARD", "{orders}:permits"]);
    assert_eq!(grants, redis::Value::Int(0), "{ran:?}");
}

/// What Redisson before 3.17 writes, other programs may write too.
#[test]
fn keys_with_a_grant_of_old_versions_are_not_proven_to_be_a_limiters() {
    let cli = Cli::start();
    left_behind(&cli, "{gone}:value", "{gone}:permits");
    let old = old_member();
    add(&cli, "{gone}:permits", cli.now(), &old);
    let ran = cli.run("doctor gone --json --fix --yes");
    let expected = ("gone".to_owned(), "not-proven".to_owned(), false);
    assert_eq!(found(&ran), [expected], "{ran:?}");
    let keys = cli.redis(&["EXISTS", "{gone}:value", "{gone}:permits"]);
    assert_eq!(keys, redis::Value::Int(2));
}

/// While the second page is on its way, a grant is refunded and another one is made. The number of
/// grants and the value are as before, but a grant was counted that is gone, and another one was
/// missed. This happens at each reading, or only once the limiter was read twice and is to be
/// mended.
#[tokio::test]
async fn a_large_limiter_that_changes_while_it_is_read_is_not_mended_wrongly() {
    const SPARE: usize = 200;
    for (undisturbed, expected) in [(0, "not-checked"), (2, "permits-lost")] {
        let cli = Cli::start();
        cli.run("set orders 10000/1h");
        let spare = |number: usize, id: u8| member(&[&[id], &number.to_be_bytes()[..]].concat(), 5);
        let now = cli.now();
        for number in 0..SPARE {
            add(&cli, "{orders}:permits", now - 10_000, &spare(number, 1));
        }
        cli.fill_orders(600, 10_000 - 600 - 5 * SPARE as u32 - 3); // 3 were lost
        let drift = |cli: &Cli| cli.json("show orders")["permits"][0]["drift"].clone();
        assert_eq!(drift(&cli), json!(-3));

        let (mut readings, mut swapped) = (0, 1); // the first is looked at again
        let ran = run_held(&cli, "doctor orders --json --fix --yes", |command| {
            let is_second_page = command.script_argument(1) == b"500";
            readings += usize::from(is_second_page);
            if is_second_page && readings > undisturbed && swapped < SPARE {
                let words = ["ZREM".as_bytes(), b"{orders}:permits", &spare(swapped, 1)];
                cli.redis(&words);
                add(&cli, "{orders}:permits", now, &spare(swapped, 2));
                swapped += 1;
            }
        })
        .await;
        assert!((2..SPARE).contains(&swapped), "{swapped}");
        let expected = ("orders".to_owned(), expected.to_owned(), false);
        assert_eq!(found(&ran), [expected], "{ran:?}");
        assert_eq!(drift(&cli), json!(-3));
        assert_found_and_fixed(&cli, "orders", "permits-lost");
        assert_eq!(drift(&cli), json!(0));
    }
}

#[tokio::test]
async fn keys_that_change_while_they_are_read_are_not_removed() {
    let cli = Cli::start();
    let now = cli.now();
    cli.fill_orders(600, 1);
    let grant = |id: u8| member(&[id; 16], 5);
    // The oldest stays, as do the newest, their number and the value.
    add(&cli, "{orders}:permits", now - 10_000, &grant(0));
    add(&cli, "{orders}:permits", now - 9_000, &grant(1));
    let mut id = 1;
    let ran = run_held(&cli, "doctor ord* --json --fix --yes", |command| {
        let is_second_page = command.script_argument(1) == b"500";
        if is_second_page {
            let words = ["ZREM".as_bytes(), b"{orders}:permits", &grant(id)];
            cli.redis(&words);
            id += 1;
            add(&cli, "{orders}:permits", now - 9_000, &grant(id));
        }
    })
    .await;
    assert!(id > 1, "{ran:?}");
    let expected = ("orders".to_owned(), "keys-left-behind".to_owned(), false);
    assert_eq!(found(&ran), [expected], "{ran:?}");
    assert!(
        ran.out.contains("by hand: try again, as the keys changed"),
        "{ran:?}"
    );
    let keys = cli.redis(&["EXISTS", "{orders}:value", "{orders}:permits"]);
    assert_eq!(keys, redis::Value::Int(2), "{ran:?}");
    assert_found_and_fixed(&cli, "ord*", "keys-left-behind");
}

#[test]
fn a_value_that_is_lost_or_no_number_is_set_anew() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    add(&cli, "{orders}:permits", cli.now(), &member(&[1; 8], 4));
    assert_found_and_fixed(&cli, "orders", "value-missing");
    assert_eq!(cli.run("available orders").out, "6");
    cli.redis(&["SET", "{orders}:value", "1e+17", "EX", "1000"]);
    assert_found_and_fixed(&cli, "orders", "value-unreadable");
    assert_eq!(cli.run("available orders").out, "6");
    let redis::Value::Int(lives) = cli.redis(&["TTL", "{orders}:value"]) else {
        panic!("a time to live")
    };
    assert!((900..=1_000).contains(&lives), "{lives}");
    // It lives as long as the permits.
    let cli = Cli::start();
    cli.run("set orders 10/1h --keep-alive 2h");
    cli.run("try orders 4");
    cli.redis(&["DEL", "{orders}:value"]);
    assert_found_and_fixed(&cli, "orders", "value-missing");
    assert_eq!(cli.run("available orders").out, "6");
}

/// The scripts read numbers in Redis's own form only.
#[test]
fn numbers_that_no_script_reads_are_found() {
    let cli = Cli::start();
    for value in ["05", "+5", "-0", "9007199254740993"] {
        cli.run("delete orders --yes");
        cli.run("set orders 10/1h");
        add(&cli, "{orders}:permits", cli.now(), &member(&[1; 16], 5));
        cli.redis(&["SET", "{orders}:value", value]);
        assert_eq!(cli.run("try orders").code, 3, "{value}");
        assert_found_and_fixed(&cli, "orders", "value-unreadable");
        assert_eq!(cli.run("available orders").out, "5");
    }
    for (field, text) in [
        ("rate", "010"),
        ("interval", "+60000"),
        ("keepAliveTime", "1.5"),
    ] {
        cli.run("delete orders --yes");
        cli.run("set orders 10/1h");
        cli.redis(&["HSET", "orders", field, text]);
        assert_eq!(cli.run("try orders").code, 3, "{field}");
        let ran = cli.run("doctor --json orders");
        let expected = ("orders".to_owned(), "settings-unreadable".to_owned(), false);
        assert_eq!((found(&ran), ran.code), (vec![expected], 1), "{field}");
    }
}

#[test]
fn members_that_are_no_grants_are_removed() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run("try orders 2");
    for number in 0..600 {
        add(
            &cli,
            "{orders}:permits",
            cli.now(),
            format!("junk {number}").as_bytes(),
        );
    }
    assert_found_and_fixed(&cli, "orders", "malformed-members");
    add(&cli, "{orders}:permits", cli.now(), &member(&[1; 16], 0));
    assert_found_and_fixed(&cli, "orders", "members-without-permits");
    assert_eq!(cli.run("available orders").out, "8");
}

#[test]
fn more_malformed_members_than_a_pass_takes_are_removed() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run("try orders 2");
    let (score, members) = (cli.now().to_string(), 0..10_001);
    let members: Vec<_> = members.map(|it| format!("junk {it}")).collect();
    let pairs = members.iter().flat_map(|it| [&*score, &**it]);
    let words: Vec<_> = ["ZADD", "{orders}:permits"]
        .into_iter()
        .chain(pairs)
        .collect();
    cli.redis(&words);
    let ran = cli.run("doctor orders --json --fix --yes");
    let expected = ("orders".to_owned(), "malformed-members".to_owned(), true);
    assert_eq!(found(&ran), [expected], "{ran:?}");
    let left = cli.redis(&["ZCARD", "{orders}:permits"]);
    assert_eq!(left, redis::Value::Int(1), "{ran:?}");
}

#[tokio::test]
async fn what_is_found_again_after_a_mend_is_not_reported_as_fixed() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run("try orders 2");
    let ran = run_held(&cli, "doctor orders --json --fix --yes", |_| {
        if cli.redis(&["ZSCORE", "{orders}:permits", "junk"]) == redis::Value::Nil {
            add(&cli, "{orders}:permits", cli.now(), b"junk");
        }
    })
    .await;
    let expected = ("orders".to_owned(), "malformed-members".to_owned(), false);
    assert_eq!(found(&ran), [expected], "{ran:?}");
}

#[test]
fn grants_of_old_versions_are_counted_migrated_or_removed_as_asked() {
    for (legacy, available, grants) in [("migrate", "3", 2), ("remove", "10", 0)] {
        let cli = Cli::start();
        cli.run("set orders 10/1h");
        let old = old_member();
        add(&cli, "{orders}:permits", cli.now(), &old);
        let older = [&0.7f32.to_le_bytes()[..], &[3, 0, 0, 0]].concat();
        add(&cli, "{orders}:permits", cli.now(), &older);
        cli.redis(&["SET", "{orders}:value", "3"]);
        let counted = cli.run("doctor --json --fix --yes orders");
        assert!(found(&counted).iter().all(|it| !it.2), "{counted:?}");
        assert!(counted.out.contains("1 grant of 4 permits"), "{counted:?}");
        assert_found_and_fixed(&cli, &format!("orders --legacy {legacy}"), "legacy-members");
        assert_eq!(cli.run("available orders").out, available);
        assert_eq!(
            cli.json("show orders")["permits"][0]["grants"],
            json!(grants)
        );
    }
}

/// Value and permits with a grant as Redisson writes it.
pub fn left_behind(cli: &Cli, value: &str, permits: &str) {
    cli.redis(&["SET", value, "5"]);
    add(cli, permits, cli.now() - 10_000_000, &member(&[1; 16], 5));
}

#[test]
fn keys_that_only_a_limiter_can_have_written_are_removed_if_unused() {
    let cli = Cli::start();
    left_behind(&cli, "{gone}:value", "{gone}:permits");
    left_behind(&cli, "{gone}:value:a", "{gone}:permits:a");
    assert_found_and_fixed(&cli, "gon*", "keys-left-behind");
    cli.run("set orders 10/1h");
    left_behind(&cli, "{orders}:value:a", "{orders}:permits:a");
    assert_found_and_fixed(&cli, "ord*", "keys-of-other-type");
    cli.run("set mails 10/1h --per-client");
    left_behind(&cli, "{mails}:value", "{mails}:permits");
    assert_found_and_fixed(&cli, "mails", "keys-of-other-type");
    cli.run("set a{t}b 10/1h --per-client");
    cli.run("try a{t}b --client-id one");
    left_behind(&cli, "a{t}b:value", "a{t}b:permits");
    assert_found_and_fixed(&cli, "*", "keys-of-other-type");
    assert_eq!(cli.run("available a{t}b --client-id one").out, "9");
}

/// Each may be another program's: a number, a sorted set, a hash with a rate.
#[test]
fn what_cannot_be_proven_to_be_a_limiters_is_listed_and_kept() {
    let cli = Cli::start();
    cli.run("set clients 10/1h --per-client");
    cli.run("set shop 10/1h");
    for (key, value) in [
        ("{cart}:value", "300"),
        ("x{y}:value", "7"),
        ("{cart}:value:eu", "7"),
        ("{clients}:value", "3"),
        ("{clients}:value:eu", "300"),
        ("{shop}:value:eu", "300"),
        ("{price}:value", "300"),
    ] {
        cli.redis(&["SET", key, value]);
    }
    cli.redis(&["ZADD", "{game}:permits", "7", "2024team"]); // eight bytes, as of Redisson 3.16
    cli.redis(&["ZADD", "{board}:permits", "7", "alice"]);
    let board = [
        "HSET", "price", "rate", "5", "interval", "1000", "type", "0", "name", "x",
    ];
    cli.redis(&board);
    cli.redis(&["HSET", "config", "rate", "5", "interval", "10"]);
    cli.redis(&["SET", "{config}:value", "99"]);
    let kept = || {
        let keys: Vec<String> = redis::from_redis_value(cli.redis(&["KEYS", "*"])).unwrap();
        let mut kept: Vec<_> = keys
            .into_iter()
            .map(|key| (cli.redis(&["DUMP", &key]), cli.redis(&["PTTL", &key]), key))
            .map(|(dump, lives, key)| (key, format!("{dump:?} {lives:?}")))
            .collect();
        kept.sort();
        kept
    };
    let before = kept();
    for legacy in ["count", "migrate", "remove"] {
        let ran = cli.run(&format!("doctor --json --fix --yes --legacy {legacy}"));
        assert_eq!(kept(), before, "{ran:?}");
        let mut findings = found(&ran);
        findings.sort();
        let expected = [
            ("cart", "not-proven"),
            ("carteu", "not-proven"),
            ("clients", "not-proven"),
            ("clientseu", "not-proven"),
            ("config", "settings-unreadable"),
            ("game", "not-proven"),
            ("price", "not-proven"),
            ("shopeu", "not-proven"),
            ("x{y}", "not-proven"),
        ];
        let expected = expected.map(|(of, code)| (of.to_owned(), code.to_owned(), false));
        assert_eq!(findings, expected, "{ran:?}");
    }
    let listed = cli.run("doctor").out;
    for key in [
        "{cart}:value ",
        "x{y}:value ",
        "{shop}:value:eu ",
        "{game}:permits ",
    ] {
        assert!(
            listed.contains(&format!("{key}may be another program's")),
            "{key}: {listed}"
        );
    }
    let refused = cli.run("doctor --remove-unproven");
    assert_eq!(refused.code, 2, "nobody can be asked: {refused:?}");
    assert_eq!(kept(), before);
}

/// `orders` would have the keys of `{orders}`, whose name has braces already.
#[test]
fn the_keys_of_a_limiter_whose_name_is_in_braces_are_its_own() {
    let cli = Cli::start();
    cli.run("set {orders} 10/1h");
    cli.run("try {orders} 4");
    cli.run("set {mails} 10/1h --per-client");
    cli.run("try {mails} 4 --client-id one");
    left_behind(&cli, "{orders}:value:one", "{orders}:permits:one");
    let ran = cli.run("doctor --json --fix --yes");
    let expected = [(
        "{orders}one".to_owned(),
        "keys-of-other-type".to_owned(),
        true,
    )];
    assert_eq!(found(&ran), expected, "{ran:?}");
    assert_eq!(cli.run("available {orders}").out, "6");
    assert_eq!(cli.run("available {mails} --client-id one").out, "6");
    // There is a limiter of the other name too: the keys that one does not use are the other's.
    let fields = ["rate", "10", "interval", "3600000", "type", "1"];
    cli.redis(&[&["HSET", "orders"][..], &fields].concat());
    cli.run("doctor --fix --yes");
    assert_eq!(cli.run("available {orders}").out, "6");
}

#[test]
fn keys_of_clients_that_took_nothing_for_a_window_are_removed() {
    let cli = Cli::start();
    cli.run("set orders 10/1s --per-client");
    add(
        &cli,
        "{orders}:permits:dead",
        cli.now() - 5_000,
        &member(&[1; 16], 4),
    );
    cli.redis(&["SET", "{orders}:value:dead", "6"]);
    cli.redis(&["SET", "{orders}:value:live", "6"]);
    add(
        &cli,
        "{orders}:permits:live",
        cli.now() + 60_000,
        &member(&[1; 16], 4),
    );
    let dry = cli.run("doctor --json orders --idle 1s");
    let codes: Vec<_> = found(&dry)
        .into_iter()
        .map(|(of, code, _)| (of, code))
        .collect();
    let expected = [("ordersdead", "idle-client"), ("orderslive", "clock-ahead")];
    let expected = expected.map(|(of, code)| (of.to_owned(), code.to_owned()));
    let mut codes = codes;
    codes.sort();
    assert_eq!(codes, expected);
    let young = cli.run("doctor orders --fix --yes");
    assert!(
        !young.out.contains("idle-client"),
        "it is a note for a day: {young:?}"
    );
    let keys = cli.redis(&["EXISTS", "{orders}:value:dead", "{orders}:permits:dead"]);
    assert_eq!(keys, redis::Value::Int(2));
    cli.run("doctor orders --fix --yes --idle 1s");
    let keys = cli.redis(&["EXISTS", "{orders}:value:dead", "{orders}:permits:dead"]);
    assert_eq!(keys, redis::Value::Int(0));
    let keys = cli.redis(&["EXISTS", "{orders}:value:live", "{orders}:permits:live"]);
    assert_eq!(keys, redis::Value::Int(2));
    // A wrong value is removed too, and not set.
    add(
        &cli,
        "{orders}:permits:dead",
        cli.now() - 5_000,
        &member(&[1; 16], 4),
    );
    cli.redis(&["SET", "{orders}:value:dead", "5"]);
    cli.run("doctor orders --fix --yes --idle 1s");
    let keys = cli.redis(&["EXISTS", "{orders}:value:dead", "{orders}:permits:dead"]);
    assert_eq!(keys, redis::Value::Int(0));
    // Keys that expire need not be removed.
    left_behind(&cli, "{orders}:value:gone", "{orders}:permits:gone");
    for key in ["{orders}:value:gone", "{orders}:permits:gone"] {
        cli.redis(&["EXPIRE", key, "1000"]);
        let ran = cli.run("doctor orders --json --idle 1s");
        let is_idle = |(_, code, _): &(String, String, bool)| code == "idle-client";
        assert!(!found(&ran).iter().any(is_idle), "{ran:?}");
        cli.redis(&["PERSIST", key]);
    }
}

#[test]
fn keys_that_would_outlive_their_limiter_get_its_time_to_live() {
    for keep_alive in [" --keep-alive 2h", ""] {
        let cli = Cli::start();
        cli.run(&format!("set orders 10/1h{keep_alive}"));
        cli.redis(&["SET", "{orders}:value", "10"]); // as availablePermits of Redisson makes it
        cli.redis(&["EXPIRE", "orders", "1000"]);
        assert_found_and_fixed(&cli, "orders", "no-time-to-live");
        let redis::Value::Int(lives) = cli.redis(&["TTL", "{orders}:value"]) else {
            panic!("a time to live")
        };
        assert!((900..=1_000).contains(&lives), "{lives}");
    }
}

#[test]
fn the_undo_of_a_time_to_live_writes_no_value() {
    let cli = Cli::start();
    cli.run("set orders 10/1h --keep-alive 2h");
    cli.redis(&["SET", "{orders}:value", "10"]);
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan");
    cli.run(&format!("doctor orders --plan {}", plan.to_str().unwrap()));
    let plan = std::fs::read_to_string(plan).unwrap();
    let undoing = plan.lines().filter_map(|it| it.strip_prefix("undo: "));
    assert_eq!(undoing.collect::<Vec<_>>(), ["PERSIST {orders}:value"]);
}

#[test]
fn an_existing_plan_is_not_overwritten() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan");
    std::fs::write(&plan, "undo: what was done before").unwrap();
    let ran = cli.run(&format!("doctor orders --plan {}", plan.to_str().unwrap()));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("cannot be written"), "{ran:?}");
    let kept = std::fs::read_to_string(&plan).unwrap();
    assert_eq!(kept, "undo: what was done before");
}

#[test]
fn what_cannot_be_mended_is_reported() {
    let cli = Cli::start();
    cli.redis(&["HSET", "a", "rate", "5", "interval", "1000"]);
    cli.redis(&["HSET", "b", "rate", "5e9", "interval", "1000", "type", "0"]);
    cli.redis(&["HSET", "c", "rate", "5", "interval", "1000", "type", "0"]);
    cli.redis(&["HSET", "{c}:value", "field", "value"]);
    cli.redis(&["HSET", "x{}y", "rate", "5", "interval", "1000", "type", "0"]);
    let ran = cli.run("doctor --json --fix --yes");
    let mut codes = found(&ran);
    codes.sort();
    let expected = [
        ("a", "settings-unreadable"),
        ("b", "settings-unreadable"),
        ("c", "wrong-type"),
        ("x{}y", "several-slots"),
    ];
    assert_eq!(
        codes,
        expected.map(|(of, code)| (of.to_owned(), code.to_owned(), false))
    );
    assert_eq!(ran.code, 1);
    assert_eq!(cli.run("doctor --fix orders").code, 2);
}

#[test]
fn a_name_that_is_no_limiter_is_reported() {
    let cli = Cli::start();
    cli.redis(&["SET", "letter", "a"]);
    cli.redis(&["HSET", "basket", "apples", "3"]);
    for (name, code) in [
        ("letter", "wrong-type"),
        ("basket", "wrong-type"),
        ("none", "no-limiter"),
    ] {
        let ran = cli.run(&format!("doctor --json {name}"));
        let expected = (name.to_owned(), code.to_owned(), false);
        assert_eq!((found(&ran), ran.code), (vec![expected], 1), "{ran:?}");
    }
}

#[test]
fn a_name_whose_braces_a_cluster_refuses_is_mended_on_a_server() {
    let cli = Cli::start();
    cli.redis(&[
        "HSET", "a}b", "rate", "10", "interval", "3600000", "type", "0",
    ]);
    cli.redis(&["SET", "{a}b}:value", "7"]);
    let ran = cli.run("doctor --json --fix --yes");
    let mut codes = found(&ran);
    codes.sort();
    let expected = [("permits-lost", true), ("several-slots", false)];
    let expected = expected.map(|(code, is_fixed)| ("a}b".to_owned(), code.to_owned(), is_fixed));
    assert_eq!(codes, expected);
}

#[test]
fn on_a_cluster_every_primary_and_its_limiters_are_looked_at_and_mended() {
    let cluster = Cluster::start();
    let url = cluster.urls().join(",");
    let run = |arguments: &str| Ran::from(output(program(arguments).env("REDIS_URL", &url)));
    for number in 0..9 {
        run(&format!("set limiter:{number} 5/1h"));
    }
    let ran = run("doctor --json");
    let servers = ran
        .out
        .lines()
        .filter(|line| line.contains(r#""kind":"server""#))
        .count();
    assert_eq!(servers, 3, "{ran:?}");
    assert!(ran.out.contains(r#""limiters":9"#), "{ran:?}");
    assert_eq!(found(&ran), []);

    let spoil = async {
        let client = redis::cluster::ClusterClient::new(cluster.urls()).unwrap();
        let mut connection = client.get_async_connection().await.unwrap();
        let mut set = redis::cmd("SET");
        set.arg("{limiter:3}:value").arg(4); // of 5
        set.exec_async(&mut connection).await.unwrap();
    };
    tokio::runtime::Runtime::new().unwrap().block_on(spoil);
    let lost = |is_fixed| vec![("limiter:3".to_owned(), "permits-lost".to_owned(), is_fixed)];
    assert_eq!(found(&run("doctor --json")), lost(false));
    assert_eq!(found(&run("doctor --json --fix --yes")), lost(true));
    assert_eq!(found(&run("doctor --json")), []);
    assert_eq!(run("available limiter:3").out, "5");
}

/// Otherwise settling the lease would give back permits that were taken out of later grants.
#[test]
fn the_fence_of_a_lease_stays_where_malformed_members_are_removed() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let now = cli.now();
    add(&cli, "{orders}:permits", now, &fence());
    add(&cli, "{orders}:permits", now, b"junk");
    add(&cli, "{orders}:permits", now, &member(&[4; 16], 0));
    add(&cli, "{orders}:permits", now + 60_000, &lease(3));
    cli.redis(&["SET", "{orders}:value", "7"]);
    assert_found_and_fixed(&cli, "orders", "malformed-members");
    for member in [fence(), lease(3)] {
        let words: [&[u8]; 3] = [b"ZSCORE", b"{orders}:permits", &member];
        assert_ne!(cli.redis(&words), redis::Value::Nil);
    }
    assert_eq!(
        cli.redis(&["ZCARD", "{orders}:permits"]),
        redis::Value::Int(2)
    );
}

/// Whether the permits of the old grants are in the value depends on what is done with these
/// grants.
#[test]
fn a_value_beside_old_grants_that_are_only_counted_is_not_set() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let old = old_member();
    for (value, code) in [
        ("6", None),
        ("2", Some("permits-lost")),
        ("8", Some("permits-too-many")),
    ] {
        add(&cli, "{orders}:permits", cli.now(), &old);
        add(&cli, "{orders}:permits", cli.now(), b"junk");
        cli.redis(&["SET", "{orders}:value", value]);
        let ran = cli.run("doctor orders --json --fix --yes");
        let wrong = found(&ran)
            .into_iter()
            .find(|(_, code, _)| code.starts_with("permits"));
        let expected = code.map(|code| ("orders".to_owned(), code.to_owned(), false));
        assert_eq!(wrong, expected, "{ran:?}");
        let stored = redis::from_redis_value::<String>(cli.redis(&["GET", "{orders}:value"]));
        assert_eq!(stored.unwrap(), value);
        assert_eq!(
            cli.redis(&["ZCARD", "{orders}:permits"]),
            redis::Value::Int(1)
        );
    }
}

/// A peer releases permits while the correction is on its way: the value is computed from what is
/// stored then.
#[tokio::test]
async fn a_limiter_that_changes_after_it_was_read_is_read_again() {
    for (change, left) in [("value", 80), ("grant", 65), ("newest", 75), ("oldest", 75)] {
        let cli = Cli::start();
        cli.run("set orders 100/1h");
        let now = cli.now();
        for (age, id) in [(300, 1), (200, 2), (100, 3)] {
            add(&cli, "{orders}:permits", now - age, &member(&[id; 16], 10));
        }
        cli.redis(&["SET", "{orders}:value", "60"]); // 10 of 100 are lost
        let mut changes = 0;
        let ran = run_held(&cli, "doctor orders --json --fix --yes", |command| {
            // The step that settles has the value and the permits as its keys.
            if command.0[2] == b"2" && changes == 0 {
                changes += 1;
                match change {
                    // Half of it is no more than what was lost.
                    "value" => drop(cli.redis(&["INCRBY", "{orders}:value", "20"])),
                    "grant" => add(&cli, "{orders}:permits", now - 150, &member(&[4; 16], 5)),
                    "newest" | "oldest" => {
                        let (id, age) = if change == "newest" {
                            (3, 100)
                        } else {
                            (1, 300)
                        };
                        let old = member(&[id; 16], 10);
                        let words: [&[u8]; 3] = [b"ZREM", b"{orders}:permits", &old];
                        cli.redis(&words);
                        add(&cli, "{orders}:permits", now - age, &member(&[id; 16], 5));
                    }
                    _ => unreachable!(),
                }
            }
        })
        .await;
        assert_eq!(changes, 1, "{change}: {ran:?}");
        assert_eq!(
            cli.json("show orders")["permits"][0]["drift"],
            json!(0),
            "{change}: {ran:?}"
        );
        let available = cli.run("available orders").out;
        assert_eq!(available, left.to_string(), "{change}: {ran:?}");
    }
}

#[test]
fn a_keep_alive_below_the_interval_is_reported_and_removes_nothing() {
    let cli = Cli::start();
    let fields = [
        "rate",
        "10",
        "interval",
        "3600000",
        "type",
        "0",
        "keepAliveTime",
        "500",
    ];
    cli.redis(&[&["HSET", "orders"][..], &fields].concat());
    add(&cli, "{orders}:permits", cli.now(), &member(&[1; 16], 4));
    cli.redis(&["SET", "{orders}:value", "6"]);
    let ran = cli.run("doctor orders --json --fix --yes");
    let mut codes = found(&ran);
    codes.sort();
    let expected = ["keep-alive-too-short", "no-time-to-live"];
    let expected = expected.map(|code| ("orders".to_owned(), code.to_owned(), false));
    assert_eq!(codes, expected);
    assert!(!ran.out.contains("\"is_fixable\":true"), "{ran:?}");
    let remedy = "`rratelimiter update orders RATE --keep-alive TIME` gives it a longer one";
    assert_eq!(ran.out.matches(remedy).count(), 2, "{ran:?}");
    for key in ["orders", "{orders}:value", "{orders}:permits"] {
        assert_eq!(cli.redis(&["PTTL", key]), redis::Value::Int(-1), "{key}");
    }
    cli.run("update orders 10/1h --keep-alive 2h");
    cli.run("doctor orders --fix --yes");
    assert_eq!(found(&cli.run("doctor orders --json")), []);
}

#[test]
fn the_worst_comes_first_with_what_a_mend_changes_and_the_command_to_type() {
    let cli = Cli::start();
    for name in ["lost", "many"] {
        cli.run(&format!("set {name} 10/1h"));
        cli.run(&format!("try {name} 4"));
    }
    cli.redis(&["SET", "{lost}:value", "3"]);
    cli.redis(&["SET", "{many}:value", "8"]);
    let fields = ["rate", "x", "interval", "1000", "type", "0"];
    cli.redis(&[&["HSET", "it's bad"][..], &fields].concat());
    cli.redis(&["SET", "{cart}:value", "3"]);
    let ran = cli.run("doctor");
    assert_eq!(ran.code, 4, "{ran:?}");
    let at = |text: &str| {
        ran.out
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {}", ran.out))
    };
    let parts = [
        "The limit does not hold: 1",
        "found permits-too-many: many: 2 permits too many",
        "--fix sets the value: 8 -> 8, the permits in use: 4 -> 2",
        "Permits are lost, or keys are kept for nobody: 1",
        "found permits-lost: lost: 3 permits never come back",
        "--fix sets the value: 3 -> 6",
        "To be mended by hand: 1",
        "`rratelimiter set 'it'\\''s bad' RATE` gives it a rate",
        "Not touched, as it may be another program's: 1",
        "{cart}:value may be another program's",
        "--notes prints them",
    ];
    let places = parts.map(at);
    assert!(places.is_sorted(), "{}", ran.out);
    assert!(!ran.out.contains("server-"), "{}", ran.out);
    assert!(
        cli.run("doctor --notes")
            .out
            .contains("note server-not-persistent")
    );
    let ignoring = "doctor --ignore permits-too-many,settings-unreadable";
    assert_eq!(cli.run(ignoring).code, 1, "permits are lost");
    let fixed = cli.run(&format!("{ignoring} --fix --yes"));
    assert!(fixed.out.contains("set the value: 3 -> 6"), "{fixed:?}");
    assert_eq!(fixed.code, 0);
    let many = &cli.json("show many")["permits"][0];
    assert_eq!(many["drift"], json!(2), "what is ignored is not fixed");
    assert_eq!(cli.run("doctor --ignore no-such").code, 2);
}
