//! Each script documents itself, `lua/README.md` covers every one, and the cases of what a client
//! concludes every policy.

use crate::every_policy::{every_policy, goes_alone};
use crate::include::{assemble, names, read};

const README: &str = include_str!("../../lua/README.md");

/// The names of the policies.
fn policies() -> impl Iterator<Item = String> {
    every_policy(2).map(|(policy, _)| policy.algorithm().to_owned())
}

#[test]
fn each_script_has_a_header_with_purpose_keys_arguments_reply_and_writes() {
    for name in names() {
        let text = read(name).unwrap_or_else(|| panic!("{name}"));
        let header: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .collect();
        let has = |label: &str| header.iter().any(|line| line.starts_with(label));
        let is_sentence = header.iter().take(2).any(|line| line.ends_with('.'));
        assert!(is_sentence, "{name}: no sentence in two lines");
        let takes = has("-- ARGV    ") || has("-- numbers ");
        assert!(takes, "{name}: neither `-- ARGV` nor `-- numbers`");
        for label in ["-- KEYS    ", "-- Returns ", "-- Writes  "] {
            assert!(has(label), "{name}: no `{label}`");
        }
    }
}

#[test]
fn a_script_that_can_refuse_a_limiter_says_so_in_its_header() {
    for name in names().filter(|name| !name.starts_with("policies/")) {
        let script = assemble(name, read).unwrap_or_else(|error| panic!("{error}"));
        let header = script.split("\n\n").next().unwrap();
        let can_refuse = script.contains("window.open(");
        assert_eq!(can_refuse, header.contains("-- Errors  "), "{name}");
    }
}

#[test]
fn the_readme_covers_every_script() {
    for name in names() {
        let short = name.trim_start_matches("policies/");
        let short = short.strip_suffix(".lua").unwrap_or(short);
        let is_named = README.contains(&format!("`{short}.lua`"))
            || README.contains(&format!("| `{short}` |"));
        assert!(is_named, "{name}");
    }
}

#[test]
fn the_readme_has_the_state_of_each_policy_and_when_a_denied_request_fits() {
    let (before, behind) = README
        .split_once("\nWhen a denied request of cost")
        .unwrap();
    let (fits, _) = behind.split_once("\n`multi_check.lua`").unwrap();
    for name in policies() {
        let row = format!("\n| `{name}` | ");
        assert!(before.contains(&row), "{name}: KEYS, numbers, state");
        assert!(fits.contains(&row), "{name}: when a denied request fits");
    }
}

#[test]
fn each_policy_has_a_case_of_what_a_client_concludes() {
    let cases = include_str!("../../lua/vectors/client/policies.json");
    let cases: serde_json::Value = serde_json::from_str(cases).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    for name in policies() {
        let has_case = cases.iter().any(|case| case["given"]["policy"] == *name);
        assert!(has_case, "{name}: no case in client/policies.json");
    }
}

#[test]
fn multi_check_refuses_each_policy_whose_calls_go_alone_and_says_so() {
    let script = read("multi_check.lua").unwrap();
    let (header, code) = script.split_once("\n\n").unwrap();
    for (policy, _) in every_policy(2) {
        let name = policy.algorithm();
        let is_refused = code.contains(&format!("decide.{name}"));
        let is_named = header.split_whitespace().any(|word| word == name);
        assert_eq!([is_refused, is_named], [goes_alone(&policy); 2], "{name}");
    }
}
