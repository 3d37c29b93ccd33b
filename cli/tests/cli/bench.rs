use serde_json::json;

use crate::support::Cli;

const SHORT: &str = "--duration 200ms --callers 8";

#[test]
fn a_limiter_is_measured_beside_a_bare_call_and_removed() {
    let cli = Cli::start();
    let measured = cli.json(&format!("bench load {SHORT} --rate 1000/1h"));
    for of in ["bare_evalsha", "limiter"] {
        let of = &measured[of];
        assert!(of["per_second"].as_f64().unwrap() > 0.0, "{measured}");
        assert!(
            of["p50_us"].as_u64().unwrap() <= of["p99_us"].as_u64().unwrap(),
            "{measured}"
        );
        assert!(
            of["p99_us"].as_u64().unwrap() <= of["max_us"].as_u64().unwrap(),
            "{measured}"
        );
        assert!(of["calls"].as_u64().unwrap() > 0, "{measured}");
        assert_eq!(of["failed"], json!(0), "{measured}");
    }
    assert!(
        measured["limiter"]["granted"].as_u64().unwrap() <= 1_000,
        "{measured}"
    );
    let left = cli.redis(&["EXISTS", "load", "{load}:value", "{load}:permits"]);
    assert_eq!(left, redis::Value::Int(0));
    let cli = Cli::start();
    let text = cli.run(&format!("bench load {SHORT}")).out;
    assert!(
        text.contains("bare EVALSHA") && text.contains("0 denied, 0 failed"),
        "{text}"
    );
}

#[test]
fn a_server_that_others_use_is_refused_without_yes() {
    let cli = Cli::start();
    let bench = format!("bench load {SHORT}");
    cli.redis(&["SET", "somebody", "1"]);
    let refused = cli.run(&bench);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
    assert!(refused.err.contains("1 keys of others"), "{refused:?}");
    assert_eq!(cli.run(&format!("{bench} --yes")).code, 0);
    cli.redis(&["DEL", "somebody"]);
    cli.run("set load 5/1h");
    let refused = cli.run(&bench);
    assert!(
        refused.code == 2 && refused.err.contains("exists"),
        "{refused:?}"
    );
    let measured = cli.json(&format!("{bench} --yes"));
    assert!(
        measured["limiter"]["denied"].as_u64().unwrap() > 0,
        "{measured}"
    );
    assert_eq!(
        cli.run("config load").code,
        0,
        "it is not the bench's to remove"
    );
    cli.run("delete load --yes");
    let client = redis::Client::open(cli.server.url()).unwrap();
    let _other = client.get_connection().unwrap();
    let refused = cli.run(&bench);
    assert!(
        refused.code == 2 && refused.err.contains("other clients"),
        "{refused:?}"
    );
}
