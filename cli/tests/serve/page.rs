//! The status page, in a browser.

mod browser;

use reqwest::StatusCode;
use serde_json::json;

use self::browser::{Report, View, chromium, see};
use crate::clients::answer_to;
use crate::http::RULES;
use crate::support::servers::Server;
use crate::support::{Serve, envoy};

/// Keys that are made to be more than text.
const HOSTILE: [&str; 5] = [
    "<img src=x onerror=\"document.title='run'\">",
    "</td></tr></table><script>document.title='run'</script>",
    "javascript:document.title='run'",
    "&lt;b id=inserted&gt;'\"`${document.title='run'}",
    "\u{202e}\u{0}\u{1b}[31m",
];

/// The widths and whether the colours are dark: a desktop and a phone, each in both.
const SCREENS: [(u32, bool); 4] = [(1280, false), (1280, true), (390, false), (390, true)];

/// With all answers, once a rule has been used.
fn used(width: u32) -> View<'static> {
    View {
        width,
        is_dark: false,
        until: "body:not(.stale) .rule rect",
        answers: u32::MAX,
    }
}

/// A text as the page shows it: characters that a person does not see are escaped.
fn visible(text: &str) -> String {
    let visible = |it: char| match it {
        '\u{0}' | '\n' | '\u{1b}' | '\u{a0}' | '\u{200b}' | '\u{202e}' => {
            format!("\\u{{{:x}}}", u32::from(it))
        }
        '\\' => "\\\\".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(visible).collect()
}

/// How often a line of what is seen is this text.
fn lines(text: &str, line: &str) -> usize {
    text.lines().filter(|it| *it == line).count()
}

/// Asserts that the page is accessible and needs no scrolling sideways.
fn assert_usable(report: &Report, width: u32) {
    assert_eq!(report.violations, [""; 0], "{width}");
    assert_eq!(report.sideways, 0, "{width}: {}", report.text);
}

#[tokio::test]
async fn nothing_in_a_key_runs_under_the_policy_of_the_page() {
    let serve = Serve::start(RULES);
    for user in HOSTILE {
        for _ in 0..3 {
            serve.check(json!({ "user": user })).await;
        }
    }
    let profile = tempfile::tempdir().unwrap();
    let output = chromium(&profile)
        .args(["--dump-dom", "--virtual-time-budget=1500"])
        .arg(format!("http://{}/", serve.admin))
        .output()
        .await
        .expect("chromium is installed: see scripts/tools");
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("<title>rratelimiter</title>"), "{page}");
    assert!(page.contains("user=&lt;img src=x"), "{page}");
    for element in ["<img", "id=\"inserted\"", "<script>"] {
        assert!(!page.contains(element), "{page}");
    }
}

#[tokio::test]
async fn each_rule_shows_its_keys_as_text() {
    let serve = Serve::start(RULES);
    for user in HOSTILE {
        for _ in 0..3 {
            serve.check(json!({ "user": user })).await;
        }
    }
    let report = see(&serve, used(1280)).await;
    for key in HOSTILE {
        // It is among the keys with the most requests, and among those with the most denials.
        let line = format!("user={}", visible(key));
        assert_eq!(lines(&report.text, &line), 2, "{line}: {}", report.text);
    }
    assert!(!report.elements.contains(&"img".to_owned()));
    for text in ["✓ ready", "33 % denied", "fixed window: 2 per 3600s"] {
        assert!(report.text.contains(text), "{text}: {}", report.text);
    }
    // The other rule.
    assert!(report.text.contains("never used"), "{}", report.text);
}

#[tokio::test]
async fn a_rule_in_shadow_mode_shows_which_keys_it_would_deny() {
    let shadow = RULES.replace("by = ", "shadow = true\nby = ");
    let serve = Serve::start(&shadow);
    for user in ["alice", "bob", "alice", "alice"] {
        serve.check(json!({ "user": user })).await;
    }
    let report = see(&serve, used(1280)).await;
    let title = "Keys that would be denied most";
    let (asking, denied) = report.text.split_once(title).unwrap();
    assert_eq!(lines(asking, "user=alice"), 1, "{asking}");
    assert_eq!(lines(asking, "user=bob"), 1, "{asking}");
    assert_eq!(lines(denied, "user=alice"), 1, "{denied}");
    assert_eq!(lines(denied, "user=bob"), 0, "{denied}");
}

#[tokio::test]
async fn keys_that_differ_do_not_look_the_same() {
    let serve = Serve::start(RULES);
    let alike = [
        "admin",
        "admi\u{200b}n",
        "\u{202e}nimda",
        "admin\n",
        "admin\u{a0}",
        "admi\\u{200b}n",
    ];
    for user in alike {
        serve.check(json!({ "user": user })).await;
    }
    serve.check(json!({ "user": "admin " })).await;
    let report = see(&serve, used(390)).await;
    for key in alike {
        let line = format!("user={}", visible(key));
        assert_eq!(lines(&report.text, &line), 1, "{line}: {}", report.text);
    }
    assert_eq!(
        lines(&report.text, "user=admin\\u{20}"),
        1,
        "{}",
        report.text
    );
}

#[tokio::test]
async fn a_long_key_is_cut_in_the_middle_and_whole_on_demand() {
    let serve = Serve::start(RULES);
    let key = format!("{}-{}", "a".repeat(100), "z".repeat(100));
    serve.check(json!({ "user": key })).await;
    let report = see(&serve, used(390)).await;
    let cut = format!("user={} … {}", "a".repeat(14), "z".repeat(19));
    assert_eq!(lines(&report.cut, &cut), 1, "{}", report.cut);
    assert!(report.text.contains(&key), "{}", report.text);
    assert_usable(&report, 390);
}

#[tokio::test]
async fn the_page_shows_names_of_rules_as_text() {
    let rule = |(place, name): (usize, &&str)| {
        let name = json!(name);
        format!(
            "[[rules]]\nname = {name}\nby = [\"user{place}\"]\n\
             limit = {{ algorithm = \"fixed_window\", rate = \"1/1m\" }}\n"
        )
    };
    let rules: String = HOSTILE[..4].iter().enumerate().map(rule).collect();
    let serve = Serve::start(&rules);
    serve.check(json!({ "user0": "a" })).await;
    let report = see(&serve, used(390)).await;
    for name in &HOSTILE[..4] {
        assert!(
            report.text.contains(&visible(name)),
            "{name}: {}",
            report.text
        );
    }
    assert!(!report.elements.contains(&"img".to_owned()));
    assert_usable(&report, 390);
}

#[tokio::test]
async fn everybody_can_use_the_page_on_every_screen() {
    let shadow = RULES.replace("limiter = ", "shadow = true\nlimiter = ");
    let serve = Serve::start(&shadow);
    for _ in 0..5 {
        let request = json!({ "domain": "shop", "entries": {} });
        serve.post("/v1/check", request).await;
    }
    // The share is that of the last minute.
    let report = see(&serve, used(1280)).await;
    let share = report.text.contains("40 % would be denied");
    assert!(share, "{}", report.text);
    for (width, is_dark) in SCREENS {
        let view = View {
            is_dark,
            ..used(width)
        };
        assert_usable(&see(&serve, view).await, width);
    }
}

#[tokio::test]
async fn a_page_without_rules_in_use_says_so() {
    let serve = Serve::start(RULES);
    for (width, is_dark) in SCREENS {
        let until = "body:not(.stale) #glance div";
        let report = see(
            &serve,
            View {
                is_dark,
                until,
                ..used(width)
            },
        )
        .await;
        assert_usable(&report, width);
        assert_eq!(
            report.text.matches("never used").count(),
            2,
            "{}",
            report.text
        );
        assert!(report.text.contains("in memory"), "{}", report.text);
    }
}

#[tokio::test]
async fn a_page_turns_stale_when_its_server_is_silent() {
    let serve = Serve::start(RULES);
    for (width, is_dark) in SCREENS {
        let view = View {
            width,
            is_dark,
            until: "body.stale .rule",
            answers: 1,
        };
        let report = see(&serve, view).await;
        assert!(
            report.text.contains("✗ stale: no answer for "),
            "{}",
            report.text
        );
        assert!(!report.text.contains("ready"), "{}", report.text);
        assert_usable(&report, width);
    }
}

#[tokio::test]
async fn requests_that_no_rule_matches_are_shown_with_their_domain() {
    let serve = Serve::start("rules = []");
    let request = envoy("legacy", &[&[("path", "/old")]]);
    serve.ask(request).await.unwrap();
    let until = "body:not(.stale) #unmatched .key";
    let report = see(&serve, View { until, ..used(390) }).await;
    assert_eq!(lines(&report.text, "legacy: path"), 1, "{}", report.text);
    let metrics = serve.metrics().await;
    assert!(
        metrics.contains("\nrate_limiter_unmatched_requests_total 1\n"),
        "{metrics}"
    );
    assert_usable(&report, 390);
}

#[tokio::test]
async fn the_page_shows_a_refused_file_and_a_store_that_is_away() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &[]);
    serve
        .ask(envoy("shop", &[&[("user", "alice")]]))
        .await
        .unwrap();
    serve.write_rules("rules = '<b id=inserted>'");
    serve.line_with("rules: kept the old ones");
    drop(server);
    serve.line_with("breaker of ");
    while serve.get(&serve.admin, "/readyz").await.status() == StatusCode::OK {}
    for (width, is_dark) in SCREENS {
        let report = see(
            &serve,
            View {
                is_dark,
                ..used(width)
            },
        )
        .await;
        for text in [
            "✗ not ready",
            "The store does not answer, requests get 503, for ",
            "The rules file is refused, the rules before it are in force, for ",
        ] {
            assert!(report.text.contains(text), "{text}: {}", report.text);
        }
        let breaker = ["✗ open", "✗ half_open"];
        let is_told = breaker.iter().any(|it| report.text.contains(it));
        assert!(is_told, "{}", report.text);
        assert!(!report.elements.contains(&"b".to_owned()));
        assert_usable(&report, width);
    }
}

#[tokio::test]
async fn the_page_only_reads_and_allows_nothing_from_elsewhere() {
    let serve = Serve::start(RULES);
    for path in ["/", "/page.js", "/page.css", "/status.json", "/metrics"] {
        let url = format!("http://{}{path}", serve.admin);
        let read = serve.client.get(&url).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK, "{path}");
        let policy = read.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        let written = serve.client.post(&url).send().await.unwrap();
        assert_eq!(written.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let here = (StatusCode::OK, &["localhost:1", "[::1]:1", "127.0.0.1"][..]);
        // A name that leads here, of a page of somewhere else.
        let elsewhere = [
            "attacker.example",
            "attacker.example:8082",
            "127.0.0.1.attacker.example",
            "localhost.attacker.example",
            "localhost:8082.attacker.example",
            "localhosts",
            "attacker.localhost",
            "[localhost]",
            "",
        ];
        for (status, hosts) in [here, (StatusCode::MISDIRECTED_REQUEST, &elsewhere[..])] {
            for host in hosts {
                let asked = serve.client.get(&url).header("host", *host);
                let answer = asked.send().await.unwrap();
                assert_eq!(answer.status(), status, "{path} {host}");
            }
        }
    }
    let nameless = answer_to(&serve.admin, b"GET /status.json HTTP/1.0\r\n\r\n");
    assert!(nameless.starts_with("HTTP/1.0 421 "), "{nameless}");
    // It is not on the public port.
    for path in ["/", "/status.json", "/page.js"] {
        assert_eq!(
            serve.get(&serve.http, path).await.status(),
            StatusCode::NOT_FOUND
        );
    }
}
