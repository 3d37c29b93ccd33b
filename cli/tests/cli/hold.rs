//! `hold`, and how a limiter looks while it is held.

use serde_json::json;

use crate::support::Cli;

#[test]
fn a_limiter_that_is_held_grants_nothing_and_looks_well() {
    let cli = Cli::start();
    cli.run("set orders 5/1h");
    cli.run("try orders");
    assert_eq!(cli.run("hold orders 2h --yes").out, "held for 2h");
    assert_eq!(cli.run("try orders").code, 1);

    let list = cli.run("list").out;
    assert!(list.contains("1 limiter, 1 held"), "{list}");
    let listed = cli.json("list orders");
    assert_eq!(listed["health"], json!("held"));
    assert_eq!(listed["in_use"], json!(5));
    let text = listed["health_text"].as_str().unwrap();
    assert!(
        text.starts_with("held: nobody gets a permit for 1h 59m"),
        "{text}"
    );
    let watched = cli.run("watch --once").out;
    assert!(watched.contains("held"), "{watched}");
    assert!(!watched.contains("4294967"), "{watched}");

    let show = cli.run("show orders").out;
    for part in [
        "available   0 of 5",
        "1 in use",
        "held        nobody gets a permit for 1h 59m",
        "grants      1, of 1 permit in use",
        "invariant   holds",
    ] {
        assert!(show.contains(part), "{part}: {show}");
    }
    let shown = cli.json("show orders");
    assert_eq!(shown["permits"][0]["permits_in_use"], json!(1));
    assert_eq!(shown["permits"][0]["drift"], json!(0));
    assert!(shown["permits"][0]["held_for_ms"].as_i64().unwrap() > 7_100_000);
    let explained = cli.run("explain orders").out;
    assert!(
        explained.contains("A request of 1 permit would be denied."),
        "{explained}"
    );
    assert!(
        explained.contains("It is held: nobody gets a permit for 1h 59m"),
        "{explained}"
    );
    assert!(!explained.contains("not well"), "{explained}");
}

#[test]
fn doctor_leaves_a_hold_alone() {
    let cli = Cli::start();
    cli.run("set orders 5/1h");
    cli.run("try orders");
    cli.run("hold orders 2h --yes");
    let before = cli.redis(&["GET", "{orders}:value"]);
    let fixed = cli.run("doctor orders --fix --yes");
    assert_eq!(fixed.code, 0, "{fixed:?}");
    assert_eq!(cli.redis(&["GET", "{orders}:value"]), before);
    assert_eq!(cli.run("try orders").code, 1);
    // Beside a hold, what is wrong is found as well.
    cli.redis(&["SET", "{orders}:value", "3"]);
    assert_ne!(cli.run("doctor orders").code, 0);
}

#[test]
fn a_hold_asks_and_is_refused_if_it_would_hold_nothing() {
    let cli = Cli::start();
    assert_eq!(cli.run("hold orders 1h --yes").code, 2);
    cli.run("set orders 5/1h");
    let unasked = cli.run("hold orders 1h");
    assert!(unasked.err.contains("`hold` needs --yes"), "{unasked:?}");
    assert_eq!(cli.run("try orders").code, 0);
    for time in ["0s", "1parsec"] {
        assert_eq!(
            cli.run(&format!("hold orders {time} --yes")).code,
            2,
            "{time}"
        );
    }
    cli.run("set mails 1/1h --per-client");
    let refused = cli.run("hold mails 1h --yes");
    assert!(
        refused.err.contains("has a rate for each client"),
        "{refused:?}"
    );
    cli.redis(&["SET", "other", "x"]);
    assert_ne!(cli.run("hold other 1h --yes").code, 0);
    assert_eq!(
        cli.redis(&["GET", "other"]),
        redis::Value::BulkString(b"x".to_vec())
    );
}
