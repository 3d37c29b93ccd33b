//! Clients that are too slow, too large, unknown, or many.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;
use tonic::Request;

use crate::http::RULES;
use crate::support::{Serve, ask, command, envoy};

/// What comes back on a connection on which only these bytes are sent, until it ends.
pub fn answer_to(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may end it while it is written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    // Longer than any timeout of the server.
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_client_that_is_too_slow_is_cut_off() {
    let serve = Serve::start_with(RULES, &["--client-timeout", "300ms"], |_| {});
    for address in [&serve.http, &serve.admin] {
        assert_eq!(answer_to(address, b""), "");
        assert_eq!(answer_to(address, b"GET /heal"), "");
        assert_eq!(
            answer_to(address, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"),
            ""
        );
        // Also after an answer.
        let answered = answer_to(address, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
    }
    let head = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let body = answer_to(
        &serve.http,
        format!("{head}Content-Length: 20\r\n\r\n{{").as_bytes(),
    );
    assert!(body.starts_with("HTTP/1.1 408 "), "{body}");
}

#[tokio::test]
async fn a_client_of_grpc_that_does_not_answer_is_cut_off_and_others_are_not() {
    let serve = Serve::start_with(RULES, &["--client-timeout", "200ms"], |_| {});
    let channel = serve.channel().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for bytes in [&b""[..], &preface[..10], preface] {
        let address = serve.grpc.clone();
        let bytes = bytes.to_vec();
        let cut = tokio::task::spawn_blocking(move || answer_to(&address, &bytes));
        cut.await.unwrap();
    }
    // This one was idle for longer, and has answered pings.
    let request = Request::new(envoy("edge", &[&[("user", "alice")]]));
    ask(channel, request).await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_cut_off() {
    let arguments = ["--max-connections", "1", "--client-timeout", "300ms"];
    let serve = Serve::start_with(RULES, &arguments, |_| {});
    let mut greedy = TcpStream::connect(&serve.http).unwrap();
    let asking = std::thread::spawn(move || {
        let request = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
        // Until the server ends the connection.
        while greedy.write_all(&request).is_ok() {}
    });
    // The server accepts one connection, so the next request waits for the end of this one.
    assert_eq!(
        serve.check(json!({ "user": "alice" })).await,
        StatusCode::OK
    );
    asking.join().unwrap();
}

#[test]
fn what_is_too_large_is_refused() {
    let serve = Serve::start(RULES);
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100_000));
    let refused = answer_to(&serve.http, long.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
    let fields = "X-A: a\r\n".repeat(200);
    let many = format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let refused = answer_to(&serve.http, many.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
    let head = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let body = " ".repeat(65 * 1024);
    let refused = answer_to(
        &serve.http,
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes(),
    );
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let chunked = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let refused = answer_to(&serve.http, chunked.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
}

#[tokio::test]
async fn connections_over_the_bound_wait_for_others_to_end() {
    let arguments = ["--max-connections", "2", "--client-timeout", "60s"];
    let serve = Serve::start_with(RULES, &arguments, |_| {});
    for address in [&serve.http, &serve.admin] {
        let request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let connect = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            BufReader::new(stream)
        };
        let answered = |stream: &mut BufReader<TcpStream>| {
            let mut head = String::new();
            while !head.ends_with("ok\n") {
                assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
            }
        };
        let (mut first, mut second) = (connect(), connect());
        answered(&mut first);
        answered(&mut second);
        let mut third = connect();
        for _ in 0..200 {
            first.get_mut().write_all(request).unwrap();
            answered(&mut first);
        }
        third.get_ref().set_nonblocking(true).unwrap();
        let waiting = third.fill_buf().unwrap_err();
        assert_eq!(waiting.kind(), ErrorKind::WouldBlock);
        third.get_ref().set_nonblocking(false).unwrap();
        drop(second);
        answered(&mut third);
    }
}

#[tokio::test]
async fn clients_need_a_token_if_there_is_one() {
    let token_file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&token_file, "first\n\nsecond\n").unwrap();
    let arguments = ["--token-file", token_file.path().to_str().unwrap()];
    let mut serve = Serve::start_with(RULES, &arguments, |_| {});
    let url = format!("http://{}/v1/check", serve.http);
    let client = serve.client.clone();
    let check = |authorization: &'static str| {
        let request = client.post(&url).json(&json!({ "entries": {} }));
        let request = request.header("authorization", authorization).send();
        async { request.await.unwrap().status() }
    };
    for authorization in ["Bearer first", "bearer second"] {
        assert_eq!(check(authorization).await, StatusCode::OK);
    }
    for authorization in [
        "",
        "first",
        "Bearer ",
        "Bearer firs",
        "Bearer first\tsecond",
        "Basic first",
        "Tokens first",
        "Bearer third",
    ] {
        assert_eq!(
            check(authorization).await,
            StatusCode::UNAUTHORIZED,
            "{authorization}"
        );
    }
    let without = serve.get(&serve.http, "/openapi.json").await;
    assert_eq!(without.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(without.headers()["www-authenticate"], "Bearer");
    assert_eq!(
        serve.get(&serve.http, "/readyz").await.status(),
        StatusCode::OK
    );

    let request = || Request::new(envoy("edge", &[&[("user", "alice")]]));
    let refused = ask(serve.channel().await, request()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let mut with = request();
    with.metadata_mut()
        .insert("authorization", "Bearer second".parse().unwrap());
    ask(serve.channel().await, with).await.unwrap();

    // Tokens are replaced while it runs, and a mistake keeps the old ones.
    for mistake in [Some(&b"\n"[..]), Some(b"\xff"), None] {
        match mistake {
            Some(bytes) => fs::write(&token_file, bytes).unwrap(),
            None => fs::remove_file(&token_file).unwrap(),
        }
        serve.signal(rustix::process::Signal::HUP);
        serve.line_with("credentials: kept the old ones: ");
        assert_eq!(check("").await, StatusCode::UNAUTHORIZED, "{mistake:?}");
        assert_eq!(check("Bearer first").await, StatusCode::OK, "{mistake:?}");
    }
    fs::write(&token_file, "third").unwrap();
    serve.signal(rustix::process::Signal::HUP);
    serve.line_with("credentials: read again");
    let url = format!("http://{}/openapi.json", serve.http);
    for (token, status) in [
        ("first", StatusCode::UNAUTHORIZED),
        ("third", StatusCode::OK),
    ] {
        let request = serve.client.get(&url).bearer_auth(token);
        assert_eq!(request.send().await.unwrap().status(), status);
    }
}

/// Only probes are answered without one.
#[tokio::test]
async fn no_path_but_those_of_probes_is_answered_without_a_token() {
    let serve = Serve::start_with(RULES, &[], |command| {
        command.env("RRATELIMITER_TOKEN", "token");
    });
    let url = |path: &str| format!("http://{}{path}", serve.http);
    let document = serve.client.get(url("/openapi.json")).bearer_auth("token");
    let document: serde_json::Value = document.send().await.unwrap().json().await.unwrap();
    let documented = document["paths"].as_object().unwrap().keys();
    let paths = documented.map(|it| it.replace("{domain}", "shop"));
    let others = [
        "/",
        "/v1",
        "/v1/",
        "/v1/auth-request",
        "/v1/auth-request/",
        "/v1/auth-request/shop/cart",
        "/v1/other",
        "/metrics",
        "/status.json",
    ];
    let others = others.map(str::to_owned);
    let near = [
        "/healthz/",
        "/readyz/",
        "/healthz/..",
        "//healthz",
        "/Healthz",
        "/readyz%2f",
    ];
    let near = near.map(str::to_owned);
    let methods = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "OTHER",
    ];
    for path in paths.chain(others).chain(near) {
        for method in methods {
            let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
            let asked = serve.client.request(method.clone(), url(&path));
            let asked = asked.json(&json!({ "entries": {}, "timeout_ms": 1 }));
            let status = asked.send().await.unwrap().status();
            let is_probe = ["/healthz", "/readyz"].contains(&&*path);
            let is_refused = status == StatusCode::UNAUTHORIZED;
            assert_ne!(is_refused, is_probe, "{method} {path}: {status}");
        }
    }
}

#[test]
fn a_token_that_is_empty_or_cannot_be_read_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, RULES).unwrap();
    for (token, error) in [
        (&b""[..], "RRATELIMITER_TOKEN: there is no token"),
        (b" \n\t", "RRATELIMITER_TOKEN: there is no token"),
        (b"secret\xff", "RRATELIMITER_TOKEN is not UTF-8"),
    ] {
        let mut command = command(&rules);
        command.env("RRATELIMITER_TOKEN", OsStr::from_bytes(token));
        let mut serve = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(serve.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let expected = format!("rratelimiter: {error}");
        if first != expected {
            serve.kill().unwrap(); // it serves
        }
        assert_eq!((serve.wait().unwrap().code(), first), (Some(2), expected));
    }
}

#[tokio::test]
async fn no_key_and_no_secret_is_in_the_log() {
    let serve = Serve::start_with(RULES, &[], |command| {
        command.env("RRATELIMITER_TOKEN", "the-secret-token");
    });
    let url = format!("http://{}/v1/check", serve.http);
    for authorization in ["Bearer the-secret-token", "Bearer a-wrong-token"] {
        for body in [
            json!({ "entries": { "user": "the-key-of-alice" } }),
            json!({ "entrees": "the-key-of-alice" }),
        ] {
            let request = serve
                .client
                .post(&url)
                .header("authorization", authorization);
            request.json(&body).send().await.unwrap();
        }
    }
    serve.signal(rustix::process::Signal::TERM);
    let (lines, _) = serve.ended();
    let log = lines.join("\n");
    for secret in ["token", "alice"] {
        assert!(!log.contains(secret), "{log}");
    }
}
