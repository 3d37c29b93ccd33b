//! `serve --check` and `serve --try`: the rules without a server.

use std::fs;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::RULES;
use crate::support::command;

/// What `serve` with these arguments says of the rules.
fn of(rules: &str, arguments: &[&str]) -> Output {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, rules).unwrap();
    // There is no Redis: a store would be an error.
    let mut command = command(&file);
    command.env("REDIS_URL", "redis://127.0.0.1:1");
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn tried(rules: &str, request: &Value) -> (Option<i32>, String) {
    let output = of(rules, &["--try", &request.to_string()]);
    (output.status.code(), text(&output))
}

#[test]
fn good_rules_are_listed() {
    let output = of(RULES, &["--check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output);
    let (head, rules) = said.split_once('\n').unwrap();
    assert!(head.ends_with("rules.toml: 2 rules"), "{said}");
    assert_eq!(
        rules,
        "  per-user: each user: fixed window: 2 per 3600s\n  \
         orders: all requests where domain = shop: shared rate: 3 per 3600s\n"
    );
}

#[test]
fn rules_that_are_refused_are_reported_with_their_line_and_exit_code_2() {
    let output = of(&RULES.replace("rate = \"2/1h\"", "rat = 2"), &["--check"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("line 5: `limit` of `per-user`: unknown field `rat`"),
        "{said}"
    );
}

#[test]
fn a_count_is_refused_because_nobody_reports_how_requests_end() {
    let counted = RULES.replace("by = [\"user\"]", "by = [\"user\"]\ncount = \"failures\"");
    assert_ne!(counted, RULES);
    let output = of(&counted, &["--check"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(": `count` of `per-user`: is for programs that"),
        "{said}"
    );
    assert!(said.contains("line "), "{said}");
}

#[test]
fn rules_that_may_be_unintended_are_warned_of() {
    let warned = |rules: &str| text(&of(rules, &["--check"]));
    let of_none = warned("rules = []");
    assert!(
        of_none.contains("warning: there are no rules: every request is granted"),
        "{of_none}"
    );
    let of_shadow = warned(&format!("shadow = true\n{RULES}"));
    assert!(
        of_shadow.contains("warning: `shadow` is true for the file"),
        "{of_shadow}"
    );
    assert!(!warned(RULES).contains("warning"));
}

#[test]
fn a_request_is_tried_against_the_rules() {
    let alice = json!({ "domain": "shop", "entries": { "user": "alice" }, "cost": 2 });
    let granted = "2 rules, of which 2 apply\n  \
                   per-user: user=alice: fixed window: 2 per 3600s\n  \
                   orders: all requests: shared rate: 3 per 3600s\n\
                   granted, 2 charged\n";
    assert_eq!(tried(RULES, &alice), (Some(0), granted.to_owned()));
    let in_shadow = granted
        .replace("per-user", "per-user (shadow)")
        .replace("orders", "orders (shadow)");
    let shadow = format!("shadow = true\n{RULES}");
    assert_eq!(tried(&shadow, &alice), (Some(0), in_shadow));
    let mallory = json!({ "entries": { "user": "mallory" } });
    let (code, said) = tried(RULES, &mallory);
    assert_eq!(code, Some(1));
    assert!(said.ends_with("\ndenied by per-user\n"), "{said}");
    let nobody = tried(RULES, &json!({ "domain": "elsewhere", "entries": {} }));
    let none = "2 rules, of which 0 apply\ngranted: no rule applies\n";
    assert_eq!(nobody, (Some(0), none.to_owned()));
}

#[test]
fn a_request_that_cannot_be_read_is_refused() {
    for request in [
        "{",
        "{}",
        "{\"entries\": {\"a\": 1}}",
        "{\"entries\": {}, \"cost\": 0}",
    ] {
        let output = of(RULES, &["--try", request]);
        assert_eq!(output.status.code(), Some(2), "{request}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("the request of --try: "), "{said}");
    }
}

#[test]
fn what_is_tried_says_in_json_which_rules_are_in_shadow_mode() {
    let alice = json!({ "domain": "shop", "entries": { "user": "alice" } }).to_string();
    let in_shadow = |rules: &str| {
        let output = of(rules, &["--json", "--try", &alice]);
        let said: Value = serde_json::from_str(&text(&output)).unwrap();
        let rules = said["rules"].as_array().unwrap().iter();
        let in_shadow = rules.map(|it| it["shadow"].as_bool().unwrap());
        in_shadow.collect::<Vec<_>>()
    };
    assert_eq!(in_shadow(RULES), [false; 2]);
    assert_eq!(in_shadow(&format!("shadow = true\n{RULES}")), [true; 2]);
}
