//! The status page, in a browser.

use std::process::{Command, Stdio};

use reqwest::StatusCode;
use serde_json::json;

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

/// The document after its scripts have run.
fn browsed(url: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--dump-dom",
        ])
        .arg("--virtual-time-budget=1500")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .expect("chromium is installed: see scripts/tools");
    let (page, errors) = (
        String::from_utf8(output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{errors}");
    page.unwrap()
}

/// As the page has it, where a person sees what is hidden.
fn as_html(text: &str) -> String {
    let visible = |it: char| match it {
        '\u{0}' | '\n' | '\u{1b}' | '\u{a0}' | '\u{200b}' | '\u{202e}' => {
            format!("\\u{{{:x}}}", u32::from(it))
        }
        '\\' => "\\\\".to_owned(),
        other => other.to_string(),
    };
    let text: String = text.chars().map(visible).collect();
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[tokio::test]
async fn the_page_shows_keys_as_text_and_nothing_in_them_runs() {
    let serve = Serve::start(RULES);
    for user in HOSTILE {
        for _ in 0..3 {
            serve.check(json!({ "user": user })).await;
        }
    }
    let page = browsed(&format!("http://{}/", serve.admin));
    assert!(page.contains("<title>rratelimiter</title>"), "{page}");
    for key in &HOSTILE {
        let cell = format!("<td class=\"key\">user={}</td>", as_html(key));
        // Among those that ask most, and among those that are denied.
        assert_eq!(page.matches(&cell).count(), 2, "{cell}: {page}");
    }
    for element in ["<img", "id=\"inserted\"", "<script>"] {
        assert!(!page.contains(element), "{page}");
    }
    assert!(page.contains("<td>per-user</td><td>user</td>"), "{page}");
    assert!(
        page.contains("<td class=\"number\">10</td><td class=\"number\">5</td>"),
        "{page}"
    );
    assert!(page.contains("<rect "), "{page}");
    assert!(page.contains(">ready, up for "), "{page}");
}

#[tokio::test]
async fn keys_that_differ_do_not_look_the_same() {
    let serve = Serve::start(RULES);
    let alike = [
        "admin",
        "admi\u{200b}n",
        "\u{202e}nimda",
        "admin\n",
        "admin ",
        "admin\u{a0}",
        "admi\\u{200b}n",
    ];
    for user in alike {
        serve.check(json!({ "user": user })).await;
    }
    let page = browsed(&format!("http://{}/", serve.admin));
    for key in alike {
        let cell = format!("<td class=\"key\">user={}</td>", as_html(key));
        assert_eq!(page.matches(&cell).count(), 1, "{cell}: {page}");
    }
}

#[tokio::test]
async fn the_page_shows_names_of_rules_as_text() {
    let rule = |(place, name): (usize, &&str)| {
        let name = json!(name);
        format!(
            "[[rules]]\nname = {name}\nkey = \"user{place}\"\n\
             policy = {{ algorithm = \"fixed_window\", limit = 1, window_ms = 60000 }}\n"
        )
    };
    let rules: String = HOSTILE[..4].iter().enumerate().map(rule).collect();
    let serve = Serve::start(&rules);
    for place in 0..4 {
        let user = format!("user{place}");
        for _ in 0..2 {
            serve.check(json!({ user.as_str(): "a" })).await;
        }
    }
    let page = browsed(&format!("http://{}/", serve.admin));
    assert!(page.contains("<title>rratelimiter</title>"), "{page}");
    for name in &HOSTILE[..4] {
        let cell = format!("<td>{}</td>", as_html(name));
        // Among the rules, those that ask most, and those that are denied.
        assert_eq!(page.matches(&cell).count(), 3, "{cell}: {page}");
    }
    for element in ["<img", "id=\"inserted\"", "<script>"] {
        assert!(!page.contains(element), "{page}");
    }
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
    let page = browsed(&format!("http://{}/", serve.admin));
    assert!(page.contains("The rules file was refused"), "{page}");
    assert!(!page.contains("id=\"inserted\""), "{page}");
    assert!(page.contains(">not ready, up for "), "{page}");
    assert!(page.contains("<td class=\"bad\">"), "{page}");
    assert!(page.contains("<td class=\"key\">user=alice</td>"), "{page}");
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
    // It is not on the public port.
    for path in ["/", "/status.json", "/page.js"] {
        assert_eq!(
            serve.get(&serve.http, path).await.status(),
            StatusCode::NOT_FOUND
        );
    }
}
