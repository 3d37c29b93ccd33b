//! `hash-key` prints what serve and the layer count a key by.

use std::io::Write;
use std::process::{Command, Stdio};

use reqwest::StatusCode;
use serde_json::json;

use crate::http::RULES;
use crate::support::Serve;

/// What it prints for this standard input.
fn hash_key(arguments: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rratelimiter"));
    command.arg("hash-key").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text.trim_end().to_owned())
}

#[tokio::test]
async fn a_hashed_key_is_that_of_the_request_with_the_long_value() {
    let long = "long value ".repeat(100);
    let (code, hash) = hash_key(&[], format!("{long}\n").as_bytes());
    assert_eq!(code, Some(0));
    let serve = Serve::start(&RULES.replace("mallory", &hash));
    let blocked = serve.check(json!({ "user": long })).await;
    assert_eq!(blocked, StatusCode::FORBIDDEN);
    let other = serve.check(json!({ "user": format!("{long}a") })).await;
    assert_eq!(other, StatusCode::OK);
}

#[test]
fn a_key_is_hashed_by_the_secret_of_a_service() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret of this service\n").unwrap();
    let with_secret = ["--secret-file", secret.to_str().unwrap()];
    let hash = "feb880058dc8f5122458b99e61971f8c".to_owned();
    assert_eq!(hash_key(&with_secret, b"sk-123\n"), (Some(0), hash));
    // A short one is counted as it is.
    assert_eq!(hash_key(&[], b"alice"), (Some(0), "alice".to_owned()));
    assert_eq!(hash_key(&[], b"\n").0, Some(2));
    std::fs::write(&secret, "\n").unwrap();
    assert_eq!(hash_key(&with_secret, b"sk-123").0, Some(2));
    std::fs::remove_file(&secret).unwrap();
    assert_eq!(hash_key(&with_secret, b"sk-123").0, Some(2));
}
