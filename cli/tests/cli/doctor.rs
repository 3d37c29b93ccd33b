//! Limiters that are spoilt as Redisson was measured to spoil them.

use serde_json::{Value, json};

use crate::support::proxy::{Fate, Proxy};
use crate::support::servers::cluster::Cluster;
use crate::support::{Cli, Ran, program};

/// A member of Redisson with an id of so many bytes.
fn member(id: &[u8], permits: u32) -> Vec<u8> {
    [&[id.len() as u8], id, &permits.to_le_bytes()].concat()
}

fn add(cli: &Cli, key: &str, score: i64, member: &[u8]) {
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
            found.push((
                of,
                text(&finding["code"]),
                finding["is_fixed"] == json!(true),
            ));
        }
    }
    found
}

/// What `doctor` finds, what it has fixed with `--fix`, and that nothing is found then.
fn assert_found_and_fixed(cli: &Cli, arguments: &str, code: &str) {
    let before = cli.redis(&["DBSIZE"]);
    let dry = cli.run(&format!("doctor --json {arguments}"));
    let codes: Vec<_> = found(&dry).into_iter().map(|(_, code, _)| code).collect();
    assert!(codes.iter().any(|it| it == code), "{code}: {dry:?}");
    assert_eq!(dry.code, 1, "{code}: {dry:?}");
    assert_eq!(cli.redis(&["DBSIZE"]), before, "a dry run writes nothing");
    let fixed = cli.run(&format!("doctor --json --fix --yes {arguments}"));
    assert!(found(&fixed).iter().all(|it| it.2), "{code}: {fixed:?}");
    let after = cli.run(&format!("doctor --json {arguments}"));
    assert_eq!(found(&after), [], "{code}: {after:?}");
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

/// The member of a lease of so many permits, which may be used for a minute.
fn lease(permits: u32) -> Vec<u8> {
    member(&[&[1; 16][..], &60_000u64.to_le_bytes()].concat(), permits)
}

/// What marks that lease.
fn fence() -> Vec<u8> {
    member(&[&[1; 16][..], &(1u64 << 53).to_le_bytes()].concat(), 0)
}

/// Its score is that of its last use, which is no mistake of a clock.
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

/// Else settling the lease would put what was taken out of a later grant back to before it.
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

/// A grant is refunded and another one made while the second page is on its way: number and value are as before, and one grant was
/// read for nothing, in the place of another that was passed over.
#[tokio::test]
async fn a_large_limiter_that_changes_while_it_is_read_is_not_mended_wrongly() {
    const SPARE: usize = 200;
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

    let mut proxy = Proxy::to(cli.server.port()).await;
    let mut command = program("doctor orders --json --fix --yes");
    command.env("REDIS_URL", proxy.url());
    let running = tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap()));
    tokio::pin!(running);
    let mut swapped = 1; // the first is looked at again
    let ran = loop {
        proxy.next("EVALSHA", Fate::Held);
        let held = tokio::select! {
            held = proxy.held() => held,
            ran = &mut running => break ran.unwrap(),
        };
        if held.command.script_argument(1) == b"500" && swapped < SPARE {
            let words = ["ZREM".as_bytes(), b"{orders}:permits", &spare(swapped, 1)];
            cli.redis(&words);
            add(&cli, "{orders}:permits", now, &spare(swapped, 2));
            swapped += 1;
        }
        held.let_through().await;
    };
    assert!(swapped > 1);
    let expected = ("orders".to_owned(), "not-checked".to_owned(), false);
    assert_eq!(found(&ran), [expected], "{ran:?}");
    assert_eq!(drift(&cli), json!(-3));
    assert_found_and_fixed(&cli, "orders", "permits-lost");
    assert_eq!(drift(&cli), json!(0));
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
}

/// The scripts read numbers in Redis's own form only.
#[test]
fn numbers_that_no_script_reads_are_found() {
    let cli = Cli::start();
    for value in ["05", "+5", "-0", "9007199254740993"] {
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
fn grants_of_old_versions_are_counted_migrated_or_removed_as_asked() {
    for (legacy, available, grants) in [("migrate", "3", 2), ("remove", "10", 0)] {
        let cli = Cli::start();
        cli.run("set orders 10/1h");
        let old = [&8u64.to_le_bytes()[..], &[3; 8], &[4, 0, 0, 0]].concat();
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

#[test]
fn keys_that_no_limiter_uses_are_removed() {
    let cli = Cli::start();
    cli.redis(&["SET", "{gone}:value", "5"]);
    cli.redis(&["SET", "{gone}:value:a", "5"]);
    assert_found_and_fixed(&cli, "gon*", "keys-left-behind");
    cli.run("set orders 10/1h");
    cli.redis(&["SET", "{orders}:value:a", "5"]);
    assert_found_and_fixed(&cli, "ord*", "keys-of-other-type");
    cli.run("set mails 10/1h --per-client");
    cli.redis(&["SET", "{mails}:value", "5"]);
    assert_found_and_fixed(&cli, "mails", "keys-of-other-type");
    cli.run("set a{t}b 10/1h --per-client");
    cli.run("try a{t}b --client-id one");
    cli.redis(&["SET", "a{t}b:value", "5"]);
    assert_found_and_fixed(&cli, "*", "keys-of-other-type");
    assert_eq!(cli.run("available a{t}b --client-id one").out, "9");
}

/// `orders` would have the keys of `{orders}`, whose name has braces already.
#[test]
fn the_keys_of_a_limiter_whose_name_is_in_braces_are_its_own() {
    let cli = Cli::start();
    cli.run("set {orders} 10/1h");
    cli.run("try {orders} 4");
    cli.run("set {mails} 10/1h --per-client");
    cli.run("try {mails} 4 --client-id one");
    cli.redis(&["SET", "{orders}:value:one", "5"]);
    let ran = cli.run("doctor --json --fix --yes");
    let expected = [(
        "{orders}one".to_owned(),
        "keys-of-other-type".to_owned(),
        true,
    )];
    assert_eq!(found(&ran), expected, "{ran:?}");
    assert_eq!(cli.run("available {orders}").out, "6");
    assert_eq!(cli.run("available {mails} --client-id one").out, "6");
    // A limiter of the other name, too: what one does not use is the other's.
    cli.run("set orders 10/1h --per-client");
    cli.run("doctor --fix --yes");
    assert_eq!(cli.run("available {orders}").out, "6");
}

#[test]
fn what_no_limiter_writes_is_kept_whatever_its_key_is_called() {
    let cli = Cli::start();
    cli.redis(&["SET", "{cart}:value", "three apples"]);
    cli.redis(&["ZADD", "{board}:permits", "7", "alice"]);
    cli.redis(&["ZADD", "{game}:permits", "7", "2024team"]); // eight bytes, as of Redisson 3.16
    cli.redis(&["SET", "{game}:value:eu", "7"]);
    let ran = cli.run("doctor --json --fix --yes");
    let mut findings = found(&ran);
    findings.sort();
    let expected = [
        ("board", "wrong-type", false),
        ("cart", "wrong-type", false),
        ("game", "wrong-type", false),
        ("gameeu", "keys-left-behind", true),
    ];
    let expected = expected.map(|(of, code, is_fixed)| (of.to_owned(), code.to_owned(), is_fixed));
    assert_eq!(findings, expected, "{ran:?}");
    let kept = cli.redis(&[
        "EXISTS",
        "{cart}:value",
        "{board}:permits",
        "{game}:permits",
    ]);
    assert_eq!(kept, redis::Value::Int(3));
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
    let dry = cli.run("doctor --json orders");
    let codes: Vec<_> = found(&dry)
        .into_iter()
        .map(|(of, code, _)| (of, code))
        .collect();
    let expected = [("ordersdead", "idle-client"), ("orderslive", "clock-ahead")];
    let expected = expected.map(|(of, code)| (of.to_owned(), code.to_owned()));
    let mut codes = codes;
    codes.sort();
    assert_eq!(codes, expected);
    cli.run("doctor orders --fix --yes");
    let keys = cli.redis(&["EXISTS", "{orders}:value:dead", "{orders}:permits:dead"]);
    assert_eq!(keys, redis::Value::Int(0));
    let keys = cli.redis(&["EXISTS", "{orders}:value:live", "{orders}:permits:live"]);
    assert_eq!(keys, redis::Value::Int(2));
    // A value that is wrong goes too, and is not set.
    cli.redis(&["SET", "{orders}:value:dead", "5"]);
    cli.run("doctor orders --fix --yes");
    let keys = cli.redis(&["EXISTS", "{orders}:value:dead"]);
    assert_eq!(keys, redis::Value::Int(0));
}

#[test]
fn keys_that_would_outlive_their_limiter_get_its_time_to_live() {
    let cli = Cli::start();
    cli.run("set orders 10/1h --keep-alive 2h");
    cli.redis(&["SET", "{orders}:value", "10"]); // as availablePermits of Redisson makes it
    cli.redis(&["EXPIRE", "orders", "1000"]);
    assert_found_and_fixed(&cli, "orders", "no-time-to-live");
    let redis::Value::Int(lives) = cli.redis(&["TTL", "{orders}:value"]) else {
        panic!("a time to live")
    };
    assert!((900..=1_000).contains(&lives), "{lives}");
}

#[test]
fn what_cannot_be_mended_is_told() {
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
fn one_name_that_is_no_limiter_is_told() {
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
    let run =
        |arguments: &str| Ran::from(program(arguments).env("REDIS_URL", &url).output().unwrap());
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
