use serde_json::json;

use crate::support::Cli;

#[test]
fn a_denial_is_explained_with_who_holds_what_and_when_it_comes_back() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.run_with("run orders --permits 4 --each -- true", "a\nb\n");
    let explained = cli.json("explain orders 3");
    assert_eq!(explained["granted"], json!(false));
    assert_eq!(explained["permits_in_use"], json!(8));
    assert_eq!(explained["rate_that_is_enough"], json!(11));
    let permits: Vec<_> = { explained["returns"].as_array().unwrap().iter() }
        .map(|it| it["permits"].clone())
        .collect();
    assert_eq!(permits, [1, 1, 5]);
    assert_eq!(explained["takers"]["others"], json!(0));
    let text = cli.run("explain orders 3").out;
    for part in [
        "orders: 10 per 1h",
        "A request of 3 permits would be denied: 2 are left, and enough are back in 59m",
        "In use: 8 permits, in 2 grants.",
        "of the Rust crate holds 8 permits",
        "They come back: 1 within 1h",
        "A rate of 11 per 1h would have been enough",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(cli.run("explain orders 2").out.contains("would be granted"));
    assert!(
        cli.run("explain orders 11")
            .out
            .contains("would be refused: it is above the rate")
    );
    assert_eq!(cli.run("available orders").out, "2", "it takes nothing");
}

#[test]
fn a_limiter_that_is_not_well_is_explained_too() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    cli.redis(&["SET", "{orders}:value", "3"]);
    let text = cli.run("explain orders").out;
    assert!(text.contains("It is not well: 7 permits lost"), "{text}");
    for (rate, part) in [
        ("0", "would be refused: the rate is 0"),
        ("x", "fails: rate `x`"),
    ] {
        cli.redis(&["HSET", "orders", "rate", rate]);
        let text = cli.run("explain orders").out;
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(cli.run("explain no-such").code, 2);
    cli.run("set mails 1/1h --per-client");
    cli.run("try mails --client-id a");
    let of_one = cli.json("explain mails --client-id a");
    assert_eq!(
        (&of_one["client"], &of_one["granted"]),
        (&json!("a"), &json!(false))
    );
    assert_eq!(
        cli.json("explain mails --client-id b")["granted"],
        json!(true)
    );
}
