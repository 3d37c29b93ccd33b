//! Rules from a configuration file: what they do, and how a file with a mistake is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::{fs, thread};

use redisson_rate_limiter::{DecisionSource, Error, RedissonClient, Rules, RulesFile, Verdict};
use tempfile::TempDir;
use tokio::runtime::Builder;

const TOML: &str = r#"
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

/// The same, line by line.
const YAML: &str = r#"rules:
- name: "per-user"

  key: "user"
  policy: { algorithm: "token_bucket", per_second: 1, capacity: 2 }
  plans:
    paid: { algorithm: "fixed_window", limit: 3, window_ms: 60000 }
  keys:
    acme: "paid"
    monitoring: "allow"
    mallory: "block"

- name: "everything"

  key: "all"
  prefix: "shared:"
  policy: { algorithm: "shared_rate", permits: 8, interval_ms: 60000 }
  shadow: true
"#;

type Request = &'static str;

/// A file in a folder of its own.
struct File {
    rules: RulesFile<Request, ()>,
    path: std::path::PathBuf,
    _folder: TempDir,
}

impl File {
    fn new(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let all = |_: &Request| Some("all".to_owned());
        let file = Self {
            rules: RulesFile::new(&path)
                .key("user", |user: &Request| Some((*user).to_owned()))
                .key("all", all)
                .key("partner", all),
            path,
            _folder: folder,
        };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }
}

/// The files of both formats.
fn files() -> [(File, &'static str); 2] {
    [
        (File::new("rules.toml", TOML), TOML),
        (File::new("rules.yaml", YAML), YAML),
    ]
}

/// A line of the file in TOML, as the one in YAML has it.
fn in_yaml(line: &str) -> String {
    let line = line.replace(" = ", ": ");
    match line.strip_suffix("\n[[rules]]") {
        Some("") => "rules:".to_owned(),
        Some(before) => format!("{before}\nrules:"),
        None => line.replace('\n', "\n  "),
    }
}

/// How often a user is granted until a rule denies, and which.
async fn granted(rules: &Rules<Request, ()>, user: Request) -> (usize, String) {
    for granted in 0..10 {
        if let Verdict::Rejected((), joint) = rules.check(&user).await.unwrap() {
            let (name, decision) = joint.deciding();
            let how = match decision.source() {
                DecisionSource::Rule => " blocks",
                _ => "",
            };
            return (granted, format!("{name}{how}"));
        }
    }
    (10, "none".to_owned())
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_file_have_plans_and_lists_and_shadow_mode() {
    for (file, _) in files() {
        let client = RedissonClient::in_memory();
        let rules = client.rules_from(&file.rules).unwrap();
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
}

/// A line of the file instead of another one.
fn replaced(text: &str, right: &str, wrong: &str) -> String {
    let of = |line: &str| match text.starts_with("rules:") {
        true => in_yaml(line),
        false => line.to_owned(),
    };
    let (right, wrong) = (of(right), of(wrong));
    assert!(text.contains(&right), "{right}");
    text.replacen(&right, &wrong, 1)
}

const BUCKET: &str = "algorithm = \"token_bucket\", per_second = 1, capacity = 2";
const FIXED: &str = "algorithm = \"fixed_window\", limit = 2, window_ms = 60000";

#[tokio::test(start_paused = true)]
async fn a_changed_file_keeps_what_was_used() {
    for (file, text) in files() {
        let client = RedissonClient::in_memory();
        let rules = client.rules_from(&file.rules).unwrap();
        assert!(rules.replace_from(&file.rules).unwrap().is_empty());
        assert_eq!(granted(&rules, "alice").await.0, 2);
        let larger = replaced(text, "capacity = 2", "capacity = 5");
        file.write(&larger);
        let change = rules.replace_from(&file.rules).unwrap();
        assert_eq!(change.to_string(), "changed: `per-user`");
        assert_eq!(granted(&rules, "alice").await.0, 0);
        file.write(&replaced(&larger, "shadow = true", "shadow = false"));
        let change = rules.replace_from(&file.rules).unwrap();
        assert_eq!(change.to_string(), "changed: `everything`");
        assert_eq!(granted(&rules, "monitoring").await.1, "everything");
        let of_plan = replaced(&larger, "monitoring = \"allow\"", "monitoring = \"block\"");
        file.write(&replaced(&of_plan, "limit = 3", "limit = 4"));
        let change = rules.replace_from(&file.rules).unwrap();
        assert_eq!(change.changed, ["per-user", "everything"]);
        assert!(change.started_anew.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_with_other_keys_starts_anew_and_the_reload_says_so() {
    for (file, text) in files() {
        for (change, expected) in [
            (
                (BUCKET, FIXED),
                "changed: `per-user`; started anew: `per-user`",
            ),
            (
                ("\"per-user\"", "\"users\""),
                "added: `users`; removed: `per-user`",
            ),
            (
                ("key = \"user\"", "key = \"user\"\nprefix = \"own:\""),
                "changed: `per-user`; started anew: `per-user`",
            ),
        ] {
            let rules = RedissonClient::in_memory().rules_from(&file.rules).unwrap();
            assert_eq!(granted(&rules, "alice").await.0, 2);
            let (right, wrong) = change;
            file.write(&replaced(text, right, wrong));
            let change = rules.replace_from(&file.rules).unwrap();
            assert_eq!(change.to_string(), expected);
            assert_eq!(granted(&rules, "alice").await.0, 2);
            file.write(text); // back: what is stored there is found again
            rules.replace_from(&file.rules).unwrap();
            assert_eq!(granted(&rules, "alice").await.0, 0);
        }
        let rules = RedissonClient::in_memory().rules_from(&file.rules).unwrap();
        file.write(&replaced(text, "key = \"user\"", "key = \"all\""));
        let change = rules.replace_from(&file.rules).unwrap();
        assert_eq!(change.started_anew, ["per-user"]);
        let fixed = "algorithm = \"fixed_window\", limit = 3, window_ms = 60000";
        let window = "algorithm = \"sliding_window_log\", limit = 3, window_ms = 60000";
        file.write(&replaced(text, fixed, window)); // of a plan, and the key as before
        let change = rules.replace_from(&file.rules).unwrap();
        assert_eq!(change.started_anew, ["per-user"]);
    }
}

/// Whatever a file had before, also under the same prefix: another process may read a key as long
/// as it is there.
#[tokio::test(start_paused = true)]
async fn two_algorithms_never_have_the_same_keys() {
    let policies = [
        BUCKET,
        FIXED,
        "algorithm = \"sliding_window_log\", limit = 2, window_ms = 60000",
        "algorithm = \"sliding_window_counter\", limit = 2, window_ms = 60000, period_ms = 10000",
        "algorithm = \"quota_bucket\", quota = 2, period_ms = 60000",
        "algorithm = \"leaky_bucket\", quantity = 2, period_ms = 60000",
        "algorithm = \"penalty_token_bucket\", quantity = 2, period_ms = 60000, capacity = 2",
        "algorithm = \"shared_rate\", permits = 2, interval_ms = 60000",
    ];
    let text = |name: &str, prefix: &str, policy| {
        let prefix = match prefix {
            "" => String::new(),
            prefix => format!("prefix = \"{prefix}\"\n"),
        };
        format!("[[rules]]\nname = \"{name}\"\nkey = \"user\"\n{prefix}policy = {{ {policy} }}\n")
    };
    let client = RedissonClient::in_memory();
    let file = File::new("rules.toml", "rules = []");
    let rules = client.rules_from(&file.rules).unwrap();
    for name in ["a", "b"] {
        for policy in policies {
            for prefix in ["", "p:"] {
                for process in [None, Some(client.rules([]).unwrap())] {
                    file.write(&text(name, prefix, policy));
                    let rules = process.as_ref().unwrap_or(&rules);
                    rules.replace_from(&file.rules).unwrap();
                    let user = "b:fixed_window:p:alice";
                    assert!(rules.check(&user).await.is_ok(), "{name} {prefix} {policy}");
                }
            }
        }
    }
    file.write(&(text("a:b", "", FIXED) + &text("a", "", FIXED)));
    rules.replace_from(&file.rules).unwrap();
    for (user, expected) in [("c", 2), ("b:c", 2)] {
        assert_eq!(granted(&rules, user).await.0, expected);
    }
    for prefixes in [("p:", "p:"), ("p:", "p:q:"), ("p:q:", "p:"), ("", "a:")] {
        let (one, other) = prefixes;
        file.write(&(text("a", one, FIXED) + &text("b", other, FIXED)));
        let refused = rules.replace_from(&file.rules).unwrap_err().to_string();
        assert!(
            refused.ends_with("`prefix` of `b`: its keys may be those of `a`"),
            "{refused}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_application_says_what_a_rule_costs_and_which_plan_a_key_has() {
    for (file, _) in files() {
        let all = |_: &Request| Some("all".to_owned());
        let rules = RulesFile::new(&file.path)
            .key("user", |user: &Request| Some((*user).to_owned()))
            .key("all", all)
            .cost("per-user", |user| if *user == "bob" { 2 } else { 1 })
            .cost("no such rule", |_| 9)
            .plan_of("per-user", |_, key| match key {
                "carol" => Some("paid".to_owned()),
                "acme" => Some("block".to_owned()), // the file says something else
                _ => Some("no such plan".to_owned()),
            })
            .plan_of("no such rule", |_, _| Some("block".to_owned()))
            .rejection(|_, _| ());
        let rules = RedissonClient::in_memory().rules_from(&rules).unwrap();
        for (user, expected) in [("alice", 2), ("bob", 1), ("carol", 3), ("acme", 3)] {
            assert_eq!(granted(&rules, user).await.0, expected, "{user}");
        }
    }
}

/// A thread asks all the time, while the rules change between ones that grant and strict ones in
/// shadow mode.
#[test]
fn a_file_sets_rules_and_shadow_mode_in_one_step() {
    let limit = |limit, shadow| {
        let policy = format!("algorithm = \"fixed_window\", limit = {limit}, window_ms = 3600000");
        format!(
            "shadow = {shadow}\n[[rules]]\nname = \"all\"\nkey = \"all\"\npolicy = {{ {policy} }}\n"
        )
    };
    let mild = File::new("rules.toml", &limit(1_000_000_000, false));
    let strict = File::new("rules.toml", &limit(1, true));
    let rules = RedissonClient::in_memory().rules_from(&mild.rules).unwrap();
    let is_done = AtomicBool::new(false);
    let (asked, asking) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                while !is_done.load(Ordering::Relaxed) {
                    let verdict = rules.check(&"alice").await.unwrap();
                    asked.send(matches!(verdict, Verdict::Granted(_))).unwrap();
                }
            });
        });
        assert!(asking.recv().unwrap());
        for _ in 0..1_000 {
            rules.replace_from(&strict.rules).unwrap();
            rules.replace_from(&mild.rules).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(asking.try_iter().all(|is_granted| is_granted));
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
        let files: Vec<_> = files.filter(|file| file.contains("[[rules]]")).collect();
        assert!(!files.is_empty());
        for text in files {
            let file = File::new("rules.toml", &text);
            RedissonClient::in_memory().rules_from(&file.rules).unwrap();
        }
    }
}

#[test]
fn a_missing_file_and_a_missing_or_unknown_key_are_named() {
    let client = RedissonClient::in_memory();
    let missing = RulesFile::<Request>::new("/nowhere/rules.toml");
    let error = client.rules_from(&missing).unwrap_err().to_string();
    assert!(
        error.starts_with("invalid rules file `/nowhere/rules.toml`: No such file"),
        "{error}"
    );
    for (file, text) in files() {
        let (without, line) = match text == YAML {
            true => (text.replacen("key: \"user\"", "", 1), 8), // where the rule's last field is
            false => (text.replacen("key = \"user\"", "", 1), 2),
        };
        file.write(&without);
        let error = client.rules_from(&file.rules).unwrap_err().to_string();
        let expected = format!(", line {line}: missing field `key`");
        assert!(error.ends_with(&expected), "{error}");

        let unknown = text.replacen("\"all\"", "\"every one\"", 1);
        file.write(&unknown);
        let error = client.rules_from(&file.rules).unwrap_err();
        let Error::InvalidRulesFile { line, reason, .. } = error else {
            panic!("{error}")
        };
        let has_it = |line: &str| line.contains("every one");
        assert_eq!(line, unknown.lines().position(has_it).map(|it| it + 1));
        assert_eq!(
            reason,
            "`key` of `everything`: unknown key `every one`, expected one of `all`, `partner`, `user`"
        );
    }
}

/// What is wrong with a file, and what the error says: the line, and the text.
#[test]
fn a_file_with_a_mistake_is_refused_with_its_line_and_field() {
    let client = RedissonClient::in_memory();
    let mut others = Vec::new();
    for (right, wrong, line, text) in [
        (
            "key = \"user\"",
            "kye = \"user\"",
            4,
            "unknown field `kye`, expected one of ",
        ),
        (
            "\"everything\"",
            "\"per-user\"",
            13,
            "duplicate `name`: `per-user` is that of an earlier rule",
        ),
        (
            "\"shared:\"",
            "\"fixed_window:per-user:\"", // that of the plan
            13,
            "`prefix` of `everything`: keys of a `fixed_window` begin with `fixed_window:`",
        ),
        (
            "\"shared:\"",
            "\"\"", // any key may follow
            13,
            "`prefix` of `everything`: its keys may be those of `per-user`",
        ),
        ("\"per-user\"", "\"\"", 2, "`name` must not be empty"),
        ("prefix = \"shared:\"", "prefix = [5]", 16, "`prefix`: "),
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
        ("limit = 3, ", "", 7, "missing field `limit`"),
        (
            "capacity = 2",
            "capacity = 2, capacity = 3",
            5,
            "duplicate ",
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
            "`window_ms`: invalid type: string \"1 minute\", expected u64",
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
            "`keys` of `per-user`: a key has the plan `gold`, which is none of its `plans`",
        ),
        ("shadow = true", "shadow = \"yes\"", 18, "`shadow`: "),
        (
            "shadow = true",
            "penalty_ms = 0",
            13,
            "`penalty_ms` of `everything` must be at least 1",
        ),
        (
            "shadow = true",
            "penalty_ms = 4503599627370497",
            13,
            "`penalty_ms` of `everything` must be at most 2^52 ms",
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
            "`permits`: invalid value: integer `-8`",
        ),
        (
            "\n[[rules]]",
            "shadows = true\n[[rules]]",
            1,
            "unknown field `shadows`",
        ),
        ("prefix = ", "prefix ", 16, "key "),
    ] {
        for (file, text_of_file) in files() {
            let (right, wrong) = match text_of_file == YAML {
                true => (in_yaml(right), in_yaml(wrong)),
                false => (right.to_owned(), wrong.to_owned()),
            };
            assert!(text_of_file.contains(&right), "{right}");
            file.write(&text_of_file.replacen(&right, &wrong, 1));
            let error = client.rules_from(&file.rules).unwrap_err();
            let Error::InvalidRulesFile {
                line: found,
                reason,
                ..
            } = &error
            else {
                panic!("{error}")
            };
            let has_key = reason.contains("acme"); // it may be somebody's name, and errors are logged
            if *found != Some(line)
                || !reason.contains(text)
                || reason.contains(" at line ")
                || has_key
            {
                others.push(format!("{wrong}: {error}"));
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// They apply to each request that has the key, and none could be decided.
#[test]
fn more_rules_of_one_key_than_decide_together_are_refused() {
    let client = RedissonClient::in_memory();
    let file = |count: usize, key: fn(usize) -> &'static str, policy: &str| {
        let rules = (0..count).map(|it| {
            let key = key(it);
            format!("[[rules]]\nname = \"{it}\"\nkey = \"{key}\"\npolicy = {{ {policy} }}\n")
        });
        File::new("rules.toml", &rules.collect::<String>())
    };
    let of_users = |_| "user";
    let counter =
        "algorithm = \"sliding_window_counter\", limit = 9, window_ms = 60000, period_ms = 120";
    for (count, policy) in [(32, FIXED), (4, counter)] {
        client
            .rules_from(&file(count, of_users, policy).rules)
            .unwrap();
        let of_two: fn(usize) -> _ = |it| if it % 2 == 0 { "user" } else { "all" };
        client
            .rules_from(&file(2 * count, of_two, policy).rules)
            .unwrap();
        let refused = client.rules_from(&file(count + 1, of_users, policy).rules);
        let Error::InvalidRulesFile { line, reason, .. } = refused.unwrap_err() else {
            panic!("another error")
        };
        assert_eq!(line, Some(4 * count + 1));
        assert_eq!(
            reason,
            format!(
                "`key` of `{count}`: all rules with the key `user` apply together, and at most 32 decide \
                 a request, which touch at most 2,000 members of logs and counters"
            )
        );
    }
}

#[test]
fn a_list_of_rules_may_be_empty_but_not_missing() {
    let client = RedissonClient::in_memory();
    for (text, line) in [
        ("rules: []\n", None),
        ("rules:\n", Some(1)),
        ("shadow: true\n", Some(1)),
    ] {
        let file = File::new("rules.yaml", text);
        let read = client.rules_from(&file.rules).map(|_| ());
        let found = read.err().map(|error| match error {
            Error::InvalidRulesFile { line, .. } => line,
            other => panic!("{other}"),
        });
        assert_eq!(found, line.map(Some), "{text}");
    }
}
