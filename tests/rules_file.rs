//! Rules from a configuration file: what they do, and how a file with a mistake is refused.

use std::time::Duration;

use redisson_rate_limiter::{DecisionSource, RedissonClient, Rule, Rules, RulesConfig, Verdict};

const FILE: &str = r#"
[[rules]]
name = "per-user"
key = "user"
policy = { algorithm = "token_bucket", per_second = 1, capacity = 2 }
[rules.plans]
paid = { algorithm = "fixed_window", limit = 3, window_ms = 60000 }
[rules.keys]
acme = "paid"
monitoring = "allow"
mallory = "block"

[[rules]]
name = "everything"
key = "all"
prefix = "shared:"
policy = { algorithm = "shared_rate", permits = 8, interval_ms = 60000 }
shadow = true
"#;

type Request = &'static str;

fn rules_of(client: &RedissonClient, file: &str) -> Vec<Rule<Request, String>> {
    let config: RulesConfig = toml::from_str(file).unwrap();
    let rules = config.rules.iter().map(|rule| {
        let (key, name) = (rule.key.clone(), rule.name.clone());
        let target = move |user: &Request| match &*key {
            "user" => Some((*user).to_owned()),
            "all" | "partner" => Some("all".to_owned()),
            other => panic!("{other}"),
        };
        client.rule(rule, target, move |_, denied| match denied.source() {
            DecisionSource::Rule => format!("{name} blocks"),
            _ => name.clone(),
        })
    });
    rules.collect::<Result<_, _>>().unwrap()
}

/// How often a user is granted until a rule denies, and what that says.
async fn granted(rules: &Rules<Request, String>, user: Request) -> (usize, String) {
    for granted in 0..10 {
        if let Verdict::Rejected(text, _) = rules.check(&user).await.unwrap() {
            return (granted, text);
        }
    }
    (10, "none".to_owned())
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_file_have_plans_and_lists_and_shadow_mode() {
    let client = RedissonClient::in_memory();
    let rules = client.rules(rules_of(&client, FILE)).unwrap();
    let denied = |granted, text: &str| (granted, text.to_owned());
    assert_eq!(granted(&rules, "alice").await, denied(2, "per-user"));
    assert_eq!(granted(&rules, "acme").await, denied(3, "per-user"));
    assert_eq!(granted(&rules, "monitoring").await, denied(10, "none"));
    assert_eq!(
        granted(&rules, "mallory").await,
        denied(0, "per-user blocks")
    );
    let shared = client.rate_limiter("shared:all");
    assert_eq!(shared.available_permits().await.unwrap(), 0); // and none of the 15 was refused
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_keeps_what_was_used() {
    let client = RedissonClient::in_memory();
    let rules = client.rules(rules_of(&client, FILE)).unwrap();
    assert_eq!(granted(&rules, "alice").await.0, 2);
    let larger = FILE.replace("capacity = 2", "capacity = 5");
    rules.replace(rules_of(&client, &larger)).unwrap();
    assert_eq!(granted(&rules, "alice").await.0, 0);
    let fixed = "algorithm = \"fixed_window\", limit = 5, window_ms = 60000";
    let other = larger.replace(
        "algorithm = \"token_bucket\", per_second = 1, capacity = 5",
        fixed,
    );
    rules.replace(rules_of(&client, &other)).unwrap();
    assert_eq!(granted(&rules, "alice").await.0, 0);
    tokio::time::advance(Duration::from_secs(5)).await; // the bucket is full and counts no more
    assert_eq!(granted(&rules, "alice").await.0, 5);

    let moved = FILE.replace("shared_rate\", permits", "fixed_window\", limit");
    let moved = moved.replace("interval_ms", "window_ms");
    let refused = rules.replace(rules_of(&client, &moved)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid rule `everything`: it has another algorithm than before: give its limiter another prefix"
    );
}

/// The files in the guide and in the documentation of `RulesConfig`.
#[test]
fn the_documented_files_are_read() {
    let pages = [
        include_str!("../docs/which-limiter.md"),
        include_str!("../src/limiters/rules/config.rs"),
    ];
    for page in pages {
        let files = page.split("```toml\n").skip(1);
        let files = files.map(|rest| {
            let lines = rest.lines().map(|line| line.trim_start_matches("///"));
            let lines = lines.take_while(|line| !line.trim().starts_with("```"));
            lines.collect::<Vec<_>>().join("\n")
        });
        let files = files.filter(|file| file.contains("[[rules]]"));
        let rules = files.map(|file| rules_of(&RedissonClient::in_memory(), &file).len());
        assert!(rules.sum::<usize>() > 0);
    }
}

/// What is wrong with a file, and what its parser says: the line, and the text.
#[test]
fn a_file_with_a_mistake_is_refused_with_its_line_and_field() {
    let mut others = Vec::new();
    for (right, wrong, line, text) in [
        ("key = \"user\"", "", 2, "missing field `key`"),
        (
            "key = \"user\"",
            "kye = \"user\"",
            4,
            "unknown field `kye`, expected one of `name`, `key`",
        ),
        (
            "\"everything\"",
            "\"per-user\"",
            13,
            "duplicate `name`: `per-user` is that of an earlier rule",
        ),
        (
            "key = \"user\"",
            "key = \"user\"\nprefix = \"shared:\"",
            14,
            "duplicate `prefix`: `shared:` is that of `per-user`",
        ),
        ("\"per-user\"", "\"\"", 2, "`name` must not be empty"),
        (
            "per_second = 1,",
            "per_second = 0,",
            5,
            "`per_second` must be",
        ),
        (
            "window_ms = 60000",
            "window_ms = 0",
            7,
            "`window_ms` must be at least 1 ms",
        ),
        (
            "window_ms = 60000",
            "window_s = 60",
            7,
            "unknown field `window_s`",
        ),
        (
            "window_ms = 60000",
            "window_ms = \"1 minute\"",
            7,
            "invalid type: string \"1 minute\", expected u64",
        ),
        (
            "\"token_bucket\"",
            "\"tocken_bucket\"",
            5,
            "unknown variant `tocken_bucket`",
        ),
        (
            "acme = \"paid\"",
            "acme = \"gold\"",
            2,
            "`keys` of `per-user`: `acme` has the plan `gold`",
        ),
        (
            "shadow = true",
            "shadow = \"yes\"",
            18,
            "invalid type: string \"yes\", expected a boolean",
        ),
        (
            "shadow = true",
            "penalty_ms = 0",
            13,
            "`penalty_ms` of `everything` must be at least 1",
        ),
        (
            "shadow = true",
            "penalty_ms = 5",
            13,
            "a `shared_rate` has no penalty",
        ),
        (
            "paid = {",
            "block = {",
            2,
            "`plans` of `per-user`: each rule has the plan `block`",
        ),
        (
            "permits = 8",
            "permits = -8",
            17,
            "invalid value: integer `-8`",
        ),
        (
            "\n[[rules]]",
            "shadows = true\n[[rules]]",
            1,
            "unknown field `shadows`",
        ),
        ("prefix = ", "prefix ", 16, "key with no value"),
    ] {
        let file = FILE.replacen(right, wrong, 1);
        let error = toml::from_str::<RulesConfig>(&file)
            .unwrap_err()
            .to_string();
        let place = format!("TOML parse error at line {line},");
        if !error.starts_with(&place) || !error.contains(text) {
            others.push(format!("{wrong}: {error}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}
