use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::Cli;

#[test]
fn one_look_is_a_table_or_an_object() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    cli.run("set mails 4/1h");
    cli.run("try orders 3");
    let looked = cli.json("watch --once --every 1h");
    let limiters = looked["limiters"].as_array().unwrap();
    let seen: Vec<_> = limiters
        .iter()
        .map(|it| (&it["name"], &it["available"], &it["granted"]))
        .collect();
    let orders = (&json!("orders"), &json!(1), &json!(3));
    assert_eq!(seen, [orders, (&json!("mails"), &json!(4), &json!(0))]);
    assert_eq!(looked["error"], json!(null));
    let table = cli.run("watch or* --once").out;
    assert!(
        table.contains("orders") && table.contains("75%") && !table.contains("mails"),
        "{table}"
    );
    assert_eq!(cli.run("watch no-such --once").code, 1);
    assert_eq!(cli.run("watch").code, 2, "it needs a terminal");
}

#[test]
fn each_round_is_an_object_and_says_what_is_granted() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let mut command = cli.command("watch orders --json --every 50ms");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["limiters"][0]["available"], json!(4));
    cli.run("try orders 3");
    let mut granted = 0;
    while granted < 3 {
        granted += next()["limiters"][0]["granted"].as_u64().unwrap();
    }
    assert_eq!(granted, 3);
    cli.run("delete orders --yes");
    while next()["limiters"] != json!([]) {}
    // A reader that has gone ends it.
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
