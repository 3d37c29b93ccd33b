//! Rules from a configuration: what they do, and how a mistake is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::{fs, thread};

use redisson_rate_limiter::{
    DecisionSource, Ending, Error, RedissonClient, Result, Rules, RulesConfig, Verdict,
};
use tokio::runtime::Builder;

const TOML: &str = r#"
[[rules]]
name = "per-user"
by = ["user"]
limit = { algorithm = "token_bucket", rate = "1/s", capacity = 2 }
[rules.plans]
paid = { algorithm = "fixed_window", rate = "3/1m" }
[rules.keys]
acme = "paid"
monitoring = "allow"
mallory = "block"

[[rules]]
name = "everything"
when = { path = ["/a*", "/b"] }
limiter = "shared"
limit = { rate = "8/1m" }
shadow = true
"#;

/// The rules of `TOML`, each field on the same line as there.
const YAML: &str = r#"rules:
- name: "per-user"

  by: ["user"]
  limit: { algorithm: "token_bucket", rate: "1/s", capacity: 2 }
  plans:
    paid: { algorithm: "fixed_window", rate: "3/1m" }
  keys:
    acme: "paid"
    monitoring: "allow"
    mallory: "block"

- name: "everything"

  when: { path: ["/a*", "/b"] }
  limiter: "shared"
  limit: { rate: "8/1m" }
  shadow: true
"#;

type Read = fn(&str) -> Result<RulesConfig>;

/// The text in both formats, and what reads it.
const FORMATS: [(&str, Read); 2] = [
    (TOML, RulesConfig::from_toml),
    (YAML, RulesConfig::from_yaml),
];

/// A line of the text in TOML, as the one in YAML has it.
fn in_yaml(line: &str) -> String {
    let line = line.replace(" = ", ": ");
    match line.strip_suffix("\n[[rules]]") {
        Some("") => "rules:".to_owned(),
        Some(before) => format!("{before}\nrules:"),
        None => line.replace('\n', "\n  "),
    }
}

/// The text with one line replaced by another.
fn replaced(text: &str, right: &str, wrong: &str) -> String {
    let of = |line: &str| match text.starts_with("rules:") {
        true => in_yaml(line),
        false => line.to_owned(),
    };
    let (right, wrong) = (of(right), of(wrong));
    assert!(text.contains(&right), "{right}");
    text.replacen(&right, &wrong, 1)
}

/// How often a user is granted until a rule denies, and which.
async fn granted(rules: &Rules, user: &str) -> (usize, String) {
    let request = [("user", user), ("path", "/a?page=2")];
    for granted in 0..10 {
        if let Verdict::Denied(joint) = rules.check(&request).await.unwrap() {
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
async fn rules_of_a_configuration_have_plans_and_lists_and_shadow_mode() {
    for (text, read) in FORMATS {
        let client = RedissonClient::in_memory();
        let rules = client.rules_from(&read(text).unwrap()).unwrap();
        let denied = |granted, text: &str| (granted, text.to_owned());
        assert_eq!(granted(&rules, "alice").await, denied(2, "per-user"));
        assert_eq!(granted(&rules, "acme").await, denied(3, "per-user"));
        assert_eq!(granted(&rules, "monitoring").await, denied(10, "none"));
        assert_eq!(
            granted(&rules, "mallory").await,
            denied(0, "per-user blocks")
        );
        let shared = client.rate_limiter("shared");
        assert_eq!(shared.available_permits().await.unwrap(), 0); // and none of the 15 was refused
    }
}

#[tokio::test(start_paused = true)]
async fn an_rratelimiter_of_each_key_has_the_key_behind_its_name() {
    let text = "[[rules]]\nname = \"partners\"\nby = [\"partner\", \"user\"]\nlimiter = \"orders\"\n\
                limit = { rate = \"2/1m\" }\nplans = { large = { rate = \"9/1m\" } }\n";
    let client = RedissonClient::in_memory();
    let rules = client.rules_from(&RulesConfig::from_toml(text).unwrap());
    let rules = rules.unwrap();
    for plan in ["", "large"] {
        let request = [("partner", plan), ("user", "a:b"), ("plan", plan)];
        let _ = rules.check(&request).await.unwrap();
    }
    let request = [("partner", "acme"), ("user", "a:b"), ("cost", "2")];
    assert!(matches!(
        rules.check(&request).await.unwrap(),
        Verdict::Granted(_)
    ));
    for (name, left) in [("orders:acme:a%3Ab", 0), ("orders:large:a%3Ab", 8)] {
        let limiter = client.rate_limiter(name);
        assert_eq!(limiter.available_permits().await.unwrap(), left, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_rratelimiter_that_exists_keeps_its_own_rate() {
    let client = RedissonClient::in_memory();
    let shared = client.rate_limiter("shared");
    let own = redisson_rate_limiter::Rate::overall(3, std::time::Duration::from_secs(9));
    shared.set_rate(own).await.unwrap();
    let rules = client.rules_from(&RulesConfig::from_toml(TOML).unwrap());
    let request = [("path", "/b")];
    let _ = rules.unwrap().check(&request).await.unwrap();
    assert_eq!(shared.available_permits().await.unwrap(), 2);
    let config = shared.config().await.unwrap();
    assert_eq!(config.unwrap().permits(), 3);
}

const BUCKET: &str = "algorithm = \"token_bucket\", rate = \"1/s\", capacity = 2";
const FIXED: &str = "algorithm = \"fixed_window\", rate = \"2/1m\"";

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_keeps_what_was_used() {
    for (text, read) in FORMATS {
        let client = RedissonClient::in_memory();
        let rules = client.rules_from(&read(text).unwrap()).unwrap();
        let replace = |text: &str| rules.replace_from(&read(text).unwrap()).unwrap();
        assert!(replace(text).is_empty());
        assert_eq!(granted(&rules, "alice").await.0, 2);
        let larger = replaced(text, "capacity = 2", "capacity = 5");
        assert_eq!(replace(&larger).to_string(), "changed: `per-user`");
        assert_eq!(granted(&rules, "alice").await.0, 0);
        let change = replace(&replaced(&larger, "shadow = true", "shadow = false"));
        assert_eq!(change.to_string(), "changed: `everything`");
        assert_eq!(granted(&rules, "monitoring").await.1, "everything");
        let of_plan = replaced(&larger, "monitoring = \"allow\"", "monitoring = \"block\"");
        let change = replace(&replaced(&of_plan, "rate = \"3/1m\"", "rate = \"4/1m\""));
        assert_eq!(change.changed, ["per-user", "everything"]);
        assert!(change.started_anew.is_empty());
        let change = replace(&replaced(text, "\"/b\"", "\"/c\""));
        assert_eq!(change.changed, ["per-user", "everything"]);
        assert!(change.started_anew.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_with_other_keys_starts_anew_and_the_reload_says_so() {
    for (text, read) in FORMATS {
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
                ("by = [\"user\"]", "by = [\"user\", \"path\"]"),
                "changed: `per-user`; started anew: `per-user`",
            ),
        ] {
            let rules = RedissonClient::in_memory().rules_from(&read(text).unwrap());
            let rules = rules.unwrap();
            assert_eq!(granted(&rules, "alice").await.0, 2);
            let (right, wrong) = change;
            // The keys of the plans have another form then.
            let without = text.split("acme").next().unwrap();
            let without = match wrong.contains("path") {
                true => without.replace("[rules.keys]", "").replace("  keys:", ""),
                false => text.to_owned(),
            };
            let config = read(&replaced(&without, right, wrong)).unwrap();
            let change = rules.replace_from(&config).unwrap().to_string();
            let told = change.replace("removed: `everything`; ", "");
            assert_eq!(told, expected);
            assert_eq!(granted(&rules, "alice").await.0, 2);
            rules.replace_from(&read(text).unwrap()).unwrap(); // what is stored there is found again
            assert_eq!(granted(&rules, "alice").await.0, 0);
        }
        let rules = RedissonClient::in_memory().rules_from(&read(text).unwrap());
        let fixed = "algorithm = \"fixed_window\", rate = \"3/1m\"";
        let log = "algorithm = \"sliding_window_log\", rate = \"3/1m\"";
        let config = read(&replaced(text, fixed, log)).unwrap(); // of a plan
        let change = rules.unwrap().replace_from(&config).unwrap();
        assert_eq!(change.started_anew, ["per-user"]);
    }
}

/// Whatever a configuration had before: another process may read a key as long as it is there.
#[tokio::test(start_paused = true)]
async fn two_algorithms_never_have_the_same_keys() {
    let limits = [
        BUCKET,
        FIXED,
        "algorithm = \"sliding_window_log\", rate = \"2/1m\"",
        "algorithm = \"sliding_window_counter\", rate = \"2/1m\", period = \"10s\"",
        "algorithm = \"quota_bucket\", rate = \"2/1m\"",
        "algorithm = \"leaky_bucket\", rate = \"2/1m\"",
        "algorithm = \"penalty_token_bucket\", rate = \"2/1m\"",
        "algorithm = \"gcra\", rate = \"2/1m\"",
        "rate = \"2/1m\"",
    ];
    let text = |name: &str, limiter: &str, limit: &str| {
        let limiter = match limiter {
            "" => String::new(),
            limiter => format!("limiter = \"{limiter}\"\n"),
        };
        format!("[[rules]]\nname = \"{name}\"\nby = [\"user\"]\n{limiter}limit = {{ {limit} }}\n")
    };
    let read = |text: &str| RulesConfig::from_toml(text);
    let client = RedissonClient::in_memory();
    let rules = client.rules([]).unwrap();
    for name in ["a", "b"] {
        for limit in limits {
            let limiter = if limit.starts_with("rate") { "p" } else { "" };
            for process in [None, Some(client.rules([]).unwrap())] {
                let rules = process.as_ref().unwrap_or(&rules);
                let config = read(&text(name, limiter, limit)).unwrap();
                rules.replace_from(&config).unwrap();
                let request = [("user", "b:fixed_window:p:alice")];
                assert!(rules.check(&request).await.is_ok(), "{name} {limit}");
            }
        }
    }
    let both = text("a:b", "", FIXED) + &text("a", "", FIXED);
    rules.replace_from(&read(&both).unwrap()).unwrap();
    for (user, expected) in [("c", 2), ("b:c", 2)] {
        assert_eq!(granted(&rules, user).await.0, expected);
    }
    for (one, other) in [("p", "p"), ("p", "p:q"), ("p:q", "p")] {
        let both = text("a", one, "rate = \"2/1m\"") + &text("b", other, "rate = \"2/1m\"");
        let refused = read(&both).unwrap_err().to_string();
        let expected = "line 9: `limiter` of `b`: its keys may be those of `a`";
        assert!(refused.ends_with(expected), "{refused}");
    }
}

/// A thread asks all the time, while the rules change between ones that grant and strict ones in
/// shadow mode.
#[test]
fn a_configuration_sets_rules_and_shadow_mode_in_one_step() {
    let config = |limit, shadow| {
        let limit = format!("{{ algorithm = \"fixed_window\", rate = \"{limit}/1h\" }}");
        let text = format!("shadow = {shadow}\n[[rules]]\nname = \"all\"\nlimit = {limit}\n");
        RulesConfig::from_toml(&text).unwrap()
    };
    let (mild, strict) = (config(1_000_000_000, false), config(1, true));
    let rules = RedissonClient::in_memory().rules_from(&mild).unwrap();
    let is_done = AtomicBool::new(false);
    let (asked, asking) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                while !is_done.load(Ordering::Relaxed) {
                    let verdict = rules.check(&()).await.unwrap();
                    asked.send(matches!(verdict, Verdict::Granted(_))).unwrap();
                }
            });
        });
        assert!(asking.recv().unwrap());
        for _ in 0..1_000 {
            rules.replace_from(&strict).unwrap();
            rules.replace_from(&mild).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(asking.try_iter().all(|is_granted| is_granted));
}

#[test]
fn the_documented_rules_are_read() {
    for page in [
        include_str!("../docs/which-limiter.md"),
        include_str!("../docs/recipes.md"),
        include_str!("../cli/SERVE.md"),
        include_str!("../tower/README.md"),
    ] {
        let files = page.split("```toml\n").skip(1);
        let files = files.map(|rest| rest.split("```").next().unwrap());
        let files: Vec<_> = files.filter(|file| file.contains("[[rules]]")).collect();
        assert!(!files.is_empty(), "{}", &page[..40]);
        for text in files {
            let config = RulesConfig::from_toml(text).unwrap_or_else(|it| panic!("{it}\n{text}"));
            RedissonClient::in_memory().rules_from(&config).unwrap();
        }
    }
}

#[test]
fn a_file_is_read_by_its_ending_and_named_in_errors() {
    let missing = RulesConfig::from_file("/nowhere/rules.toml").unwrap_err();
    let expected = "invalid rules file `/nowhere/rules.toml`: No such file";
    assert!(missing.to_string().starts_with(expected), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    for (name, (text, read)) in [
        ("rules.toml", FORMATS[0]),
        ("rules", FORMATS[0]),
        ("rules.yaml", FORMATS[1]),
        ("rules.yml", FORMATS[1]),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let config = RulesConfig::from_file(&path).unwrap();
        assert_eq!(config, read(text).unwrap());
        fs::write(&path, replaced(text, "\"per-user\"", "\"\"")).unwrap();
        let refused = RulesConfig::from_file(&path).unwrap_err().to_string();
        let expected = format!(
            "invalid rules file `{}`, line {}: `name` of ``: must not be empty",
            path.display(),
            if text == TOML { 3 } else { 2 }
        );
        assert_eq!(refused, expected);
    }
}

#[test]
fn a_name_that_no_rule_has_is_refused() {
    let config = || RulesConfig::from_toml(TOML).unwrap();
    config().require(["per-user", "everything"]).unwrap();
    let refused = config().require(["per-user", "per-usr"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid rules: there is no rule `per-usr`"
    );
}

#[test]
fn a_program_that_learns_no_endings_refuses_a_count_with_its_line() {
    for (text, read) in FORMATS {
        assert!(read(text).unwrap().without_count().is_ok());
        for (count, ending) in [
            ("failures", Ending::Failure),
            ("successes", Ending::Success),
        ] {
            let counted = format!("by = [\"user\"]\ncount = \"{count}\"");
            let config = read(&replaced(text, "by = [\"user\"]", &counted)).unwrap();
            assert_eq!(config.rules[0].count, Some(ending));
            let refused = config.without_count().unwrap_err().to_string();
            let expected =
                "invalid rules, line 5: `count` of `per-user`: is for programs that see how";
            assert!(refused.starts_with(expected), "{refused}");
        }
    }
}

#[test]
fn a_network_of_mapped_addresses_has_at_least_their_96_bits() {
    for (bits, is_network) in [(64, false), (95, false), (96, true), (120, true)] {
        let text = format!(
            "[[rules]]\nname = \"office\"\nlimit = \"allow\"\n\
             when = {{ address = [\"::ffff:192.0.2.0/{bits}\"] }}\n"
        );
        assert_eq!(RulesConfig::from_toml(&text).is_ok(), is_network, "{bits}");
    }
}

#[tokio::test]
async fn a_query_behind_a_path_evades_no_rule() {
    let text = "[[rules]]\nname = \"logins\"\nwhen = { path = \"/login\" }\nlimit = \"block\"\n";
    let rules = RedissonClient::in_memory().rules_from(&RulesConfig::from_toml(text).unwrap());
    let rules = rules.unwrap();
    for path in ["/login", "/login?a", "/login#a", "/login#a?b"] {
        let verdict = rules.check(&[("path", path)]).await.unwrap();
        assert!(matches!(verdict, Verdict::Denied(_)), "{path}");
    }
}

#[test]
fn a_fixed_cost_above_the_limit_of_a_plan_is_refused() {
    for (text, read) in FORMATS {
        let text = replaced(text, "by = [\"user\"]", "by = [\"user\"]\ncost = 2");
        assert!(read(&text).is_ok());
        let text = replaced(&text, "rate = \"3/1m\"", "rate = \"1/1m\"");
        let refused = read(&text).unwrap_err().to_string();
        let expected = "invalid rules, line 5: `cost` of `per-user`: is above a limit, 1";
        assert_eq!(refused, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_allows_all_may_have_plans_of_an_rratelimiter() {
    let text = "[[rules]]\nname = \"partners\"\nby = [\"user\"]\nlimiter = \"orders\"\n\
                limit = \"allow\"\nplans = { small = { rate = \"1/1m\" } }\n\
                keys = { acme = \"small\" }\n";
    let client = RedissonClient::in_memory();
    let rules = client.rules_from(&RulesConfig::from_toml(text).unwrap());
    let rules = rules.unwrap();
    assert_eq!(granted(&rules, "acme").await, (1, "partners".to_owned()));
    assert_eq!(granted(&rules, "alice").await.0, 10);
    let limiter = client.rate_limiter("orders:acme");
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[test]
fn another_penalty_is_a_change_of_the_rule() {
    for (text, read) in FORMATS {
        let with = |time: &str| {
            let penalty = format!("by = [\"user\"]\npenalty = \"{time}\"");
            read(&replaced(text, "by = [\"user\"]", &penalty)).unwrap()
        };
        let rules = RedissonClient::in_memory().rules_from(&read(text).unwrap());
        let rules = rules.unwrap();
        for time in ["1m", "2m"] {
            let change = rules.replace_from(&with(time)).unwrap();
            assert_eq!(change.to_string(), "changed: `per-user`");
            assert!(rules.replace_from(&with(time)).unwrap().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_configured_rule_counts_only_successes() {
    for (text, read) in FORMATS {
        let counted = replaced(
            text,
            "by = [\"user\"]",
            "by = [\"user\"]\ncount = \"successes\"",
        );
        let rules = RedissonClient::in_memory().rules_from(&read(&counted).unwrap());
        let rules = rules.unwrap();
        let mut endings = Vec::new();
        for ending in [
            Ending::Failure,
            Ending::Success,
            Ending::Failure,
            Ending::Success,
            Ending::Failure,
        ] {
            if let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await.unwrap() {
                rules.end(granted, ending).await.unwrap();
                endings.push(ending);
            }
        }
        assert_eq!(endings.len(), 4, "{endings:?}");
    }
}

/// What is wrong with a text, and what the error says: the line, and the reason.
#[test]
fn a_mistake_is_refused_with_its_line_and_field() {
    let mut others = Vec::new();
    for (right, wrong, line, reason) in [
        (
            "by = [\"user\"]",
            "bye = [\"user\"]",
            4,
            "unknown field `bye`, expected one of ",
        ),
        (
            "by = [\"user\"]",
            "by = [\"address/129\"]",
            4,
            "`by` of `per-user`: `address/129`: the bits of a network are 1 to 128",
        ),
        (
            "by = [\"user\"]",
            "by = [\"user\", \"user\"]",
            4,
            "`by` of `per-user`: `user` is there twice",
        ),
        (
            "by = [\"user\"]",
            "by = [\"user\"]\ncount = \"errors\"",
            5,
            "`count` of `per-user`: `errors` is neither \"failures\" nor \"successes\"",
        ),
        (
            "by = [\"user\"]",
            "by = [\"user\"]\ncount = 5",
            5,
            "`count` of `per-user`: must be a string",
        ),
        (
            "\"token_bucket\", rate = \"1/s\", capacity = 2 }",
            "\"leaky_bucket\", rate = \"1/s\", capacity = 2 }\ncount = \"failures\"",
            6,
            "`count` of `per-user`: a `leaky_bucket` gives nothing back",
        ),
        (
            "\"everything\"",
            "\"per-user\"",
            14,
            "`name` of `per-user`: is that of an earlier rule",
        ),
        (
            "[\"/a*\", \"/b\"]",
            "[]",
            15,
            "`when` of `everything`: `path` has no value",
        ),
        (
            "[\"/a*\", \"/b\"]",
            "\"\"",
            15,
            "`when` of `everything`: a value must not be empty",
        ),
        (
            "[\"/a*\", \"/b\"]",
            "\"/login?next=/\"",
            15,
            "`when` of `everything`: `/login?next=/`: a path is compared without its query",
        ),
        (
            "path = [\"/a*\", \"/b\"]",
            "address = \"192.0.2.0/33\"",
            15,
            "`when` of `everything`: `192.0.2.0/33` is not a network",
        ),
        (
            "[\"/a*\", \"/b\"]",
            "5",
            15,
            "expected a string or a list of strings",
        ),
        (
            "\"shared\"",
            "\"fixed_window:per-user\"", // that of the plan
            16,
            "`limiter` of `everything`: keys of a `fixed_window` begin with `fixed_window:`",
        ),
        (
            "\"shared\"",
            "\"\"",
            16,
            "`limiter` of `everything`: must not be empty",
        ),
        (
            "limiter = \"shared\"",
            "limiter = [5]",
            16,
            "`limiter` of `everything`: must be a string",
        ),
        (
            "limiter = \"shared\"",
            "cost = 1",
            17,
            "`limit` of `everything`: missing field `algorithm`",
        ),
        (
            "limit = { rate = \"8/1m\" }",
            "limit = { algorithm = \"gcra\", rate = \"8/1m\" }",
            16,
            "`limiter` of `everything`: an RRateLimiter has a `rate` and no other algorithm",
        ),
        (
            "limit = { rate = \"8/1m\" }",
            "limit = \"allow\"",
            16,
            "`limiter` of `everything`: there is no `rate`",
        ),
        (
            "limit = { rate = \"8/1m\" }",
            "limit = \"alow\"",
            17,
            "`limit` of `everything`: `alow` is neither \"allow\" nor \"block\" nor a limit",
        ),
        (
            "rate = \"1/s\"",
            "rate = \"0/s\"",
            5,
            "`limit` of `per-user`: invalid argument: `rate` must be",
        ),
        (
            "rate = \"1/s\"",
            "rate = \"1/m\"",
            5,
            "`limit` of `per-user`: `rate`: must be of a second",
        ),
        (
            "rate = \"3/1m\"",
            "rate = \"3 a minute\"",
            6,
            "`plans` of `per-user`: `paid`: `rate`: `3 a minute` is not QUANTITY/TIME",
        ),
        (
            "algorithm = \"fixed_window\", rate = \"3/1m\"",
            "algorithm = \"fixed_window\"",
            6,
            "`plans` of `per-user`: `paid`: missing field `rate`",
        ),
        (
            "capacity = 2",
            "capacity = 2, capacity = 3",
            5,
            "duplicate ",
        ),
        (
            "capacity = 2",
            "capacity = -2",
            5,
            "`limit` of `per-user`: `capacity`: must be a whole number of at most 4294967295",
        ),
        (
            "capacity = 2",
            "capasity = 2",
            5,
            "`limit` of `per-user`: unknown field `capasity`, expected ",
        ),
        (
            "\"token_bucket\"",
            "\"tocken_bucket\"",
            5,
            "`limit` of `per-user`: unknown variant `tocken_bucket`",
        ),
        (
            "acme = \"paid\"",
            "acme = \"gold\"",
            8,
            "`keys` of `per-user`: a key has the plan `gold`, which is none of its plans",
        ),
        (
            "shadow = true",
            "shadow = \"yes\"",
            18,
            "`shadow` of `everything`: must be true or false",
        ),
        (
            "shadow = true",
            "penalty = \"0s\"",
            18,
            "`penalty` of `everything`: must be at least 1 ms",
        ),
        (
            "shadow = true",
            "penalty = \"5 minutes\"",
            18,
            "`penalty` of `everything`: `5 minutes` is not a time such as",
        ),
        (
            "shadow = true",
            "penalty = \"5m\"",
            18,
            "`penalty` of `everything`: an RRateLimiter has no penalty",
        ),
        (
            "by = [\"user\"]",
            "by = [\"user\"]\ncost = 3",
            5,
            "`cost` of `per-user`: is above a limit, 2",
        ),
        (
            "shadow = true",
            "cost = 0",
            18,
            "`cost` of `everything`: must be at least 1",
        ),
        (
            "shadow = true",
            "cost = 1.5",
            18,
            "`cost` of `everything`: must be a number or the name of an attribute",
        ),
        (
            "shadow = true",
            "instead_of = [\"users\"]",
            18,
            "`instead_of` of `everything`: `users` is the name of no other rule",
        ),
        (
            "shadow = true",
            "instead_of = [\"everything\"]",
            18,
            "`instead_of` of `everything`: `everything` is the name of no other rule",
        ),
        (
            "shadow = true",
            "keys = { acme = \"allow\" }",
            18,
            "`keys` of `everything`: all requests count together: there are no keys",
        ),
        (
            "shadow = true",
            "plans = { large = { rate = \"9/s\" } }",
            16,
            "`limiter` of `everything`: one RRateLimiter has no second rate",
        ),
        (
            "paid = {",
            "block = {",
            6,
            "`plans` of `per-user`: each rule has the plan `block`",
        ),
        (
            "rate = \"8/1m\"",
            "rate = \"-8/1m\"",
            17,
            "`limit` of `everything`: `rate`: `-8` is not a whole number",
        ),
        (
            "\n[[rules]]",
            "shadows = true\n[[rules]]",
            1,
            "unknown field `shadows`",
        ),
        ("limiter = ", "limiter ", 16, ""),
    ] {
        for (text, read) in FORMATS {
            let error = read(&replaced(text, right, wrong)).unwrap_err();
            let Error::InvalidRules {
                line: found,
                reason: told,
                ..
            } = &error
            else {
                panic!("{error}")
            };
            let has_key = told.contains("acme"); // it may be somebody's name, and errors are logged
            let is_told = told.contains(reason) && !told.contains(" at line ") && !has_key;
            // A table is at its header or at its first field, a name behind the sign of a list.
            let line = match (text == YAML, reason) {
                (true, reason) if reason.starts_with("`name`") => line - 1,
                (true, reason) if reason.starts_with("`plans`") => line + 1,
                (true, reason) if reason.starts_with("`keys` of `per-user`") => line + 1,
                _ => line,
            };
            if !is_told || *found != Some(line) {
                others.push(format!("{wrong}: {line}: {error}"));
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// All rules apply to the same requests, and none of these could be decided.
#[test]
fn more_rules_than_decide_together_are_refused() {
    let read = |rules: &[(usize, &str)], limit: &str| {
        let rules =
            rules
                .iter()
                .enumerate()
                .flat_map(|(kind, (count, condition))| {
                    (0..*count).map(move |it| {
                format!("[[rules]]\nname = \"{kind}-{it}\"\n{condition}\nlimit = {{ {limit} }}\n")
            })
                });
        RulesConfig::from_toml(&rules.collect::<String>())
    };
    let user = "by = [\"user\"]";
    let counter = "algorithm = \"sliding_window_counter\", rate = \"9/1m\", period = \"120ms\"";
    for (count, limit) in [(32, FIXED), (4, counter)] {
        read(&[(count, user)], limit).unwrap();
        read(&[(count, user), (count, "by = [\"address\"]")], limit).unwrap();
        let Err(Error::InvalidRules { line, reason, .. }) = read(&[(count + 1, user)], limit)
        else {
            panic!("another error")
        };
        assert_eq!(line, Some(2));
        assert_eq!(
            reason,
            "`name` of `0-0`: wherever this rule applies, more do than can decide a request: at most 32, \
             which touch at most 2,000 members of logs and counters"
        );
    }
    let (wide, narrow) = ("", "by = [\"user\"]\nwhen = { path = \"/a*\" }");
    read(&[(10, wide), (10, user), (12, narrow)], FIXED).unwrap();
    assert!(read(&[(10, wide), (11, user), (12, narrow)], FIXED).is_err());
    // Rules in shadow mode decide separately, and a rule that is replaced does not decide.
    let shadow = "by = [\"user\"]\nshadow = true";
    read(&[(32, user), (32, shadow)], FIXED).unwrap();
    let other = "by = [\"user\"]\ninstead_of = [\"0-0\"]";
    read(&[(32, user), (1, other)], FIXED).unwrap();
}

#[test]
fn a_list_of_rules_may_be_empty_but_not_missing() {
    for (text, line) in [
        ("rules: []\n", None),
        ("rules:\n", Some(1)),
        ("shadow: true\n", Some(1)),
    ] {
        let read = RulesConfig::from_yaml(text).map(|_| ());
        let found = read.err().map(|error| match error {
            Error::InvalidRules { line, .. } => line,
            other => panic!("{other}"),
        });
        assert_eq!(found, line.map(Some), "{text}");
    }
}
