//! `import` makes rules of a configuration of envoyproxy/ratelimit that decide as it says.

use std::process::{Command, Output};

use crate::support::messages::Code;
use crate::support::{Serve, envoy};

fn import(configuration: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rratelimiter"));
    command.arg("import").arg(&file).output().unwrap()
}

/// How many of four requests with this descriptor are granted.
async fn granted(serve: &Serve, descriptor: &[(&str, &str)]) -> u32 {
    let mut granted = 0;
    for _ in 0..4 {
        let answer = serve.ask(envoy("shop", &[descriptor])).await.unwrap();
        granted += u32::from(answer.overall_code() == Code::Ok);
    }
    granted
}

const CONFIGURATION: &str = r#"
domain: shop
descriptors:
  # Each address, one that is banned and one that is not limited.
  - key: remote_address
    rate_limit: { unit: day, requests_per_unit: 2 }
  - key: remote_address
    value: 192.0.2.9
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: remote_address
    value: 192.0.2.8
    rate_limit: { unlimited: true }
  # Messages of one kind to each number, and all messages to it.
  - key: kind
    value: offer
    descriptors:
      - key: number
        rate_limit: { unit: day, requests_per_unit: 1 }
  - key: number
    rate_limit: { unit: day, requests_per_unit: 3 }
  # One value is tried out, and one counts by its beginning.
  - key: service
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: service
    value: auth
    rate_limit: { unit: day, requests_per_unit: 1 }
    shadow_mode: true
  - key: service
    value: batch*
    rate_limit: { unit: day, requests_per_unit: 2 }
"#;

#[tokio::test]
async fn imported_rules_decide_as_the_configuration_says() {
    let output = import(CONFIGURATION);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rules = String::from_utf8(output.stdout).unwrap();
    assert!(!rules.contains('#'), "{rules}");
    let serve = Serve::start(&rules);
    for (descriptor, expected) in [
        (&[("remote_address", "192.0.2.1")][..], 2),
        (&[("remote_address", "192.0.2.2")], 2),
        (&[("remote_address", "2001:db8::1")], 2),
        (&[("remote_address", "2001:db8::2")], 2), // each by itself, as there
        (&[("remote_address", "192.0.2.9")], 0),
        (&[("remote_address", "192.0.2.8")], 4),
        (&[("kind", "offer"), ("number", "1")], 1),
        (&[("kind", "offer"), ("number", "2")], 1),
        (&[("kind", "other"), ("number", "1")], 4),
        (&[("kind", "offer")], 4),
        (&[("number", "1")], 3),
        (&[("service", "web")], 1),
        (&[("service", "auth")], 4),
        (&[("service", "batch-1")], 2),
        (&[("service", "batch-2")], 2),
        (&[("unknown", "1")], 4),
    ] {
        let granted = granted(&serve, descriptor).await;
        assert_eq!(granted, expected, "{descriptor:?}\n{rules}");
    }
}

#[test]
fn what_has_no_form_is_a_comment_before_the_rules() {
    let output = import(
        "domain: shop\ndescriptors:\n- key: user\n  rate_limit:\n    { unit: month, requests_per_unit: 9, replaces: [{ name: a }] }\n",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rules = String::from_utf8(output.stdout).unwrap();
    let comments = "# Not as there: `replaces` of `shop.user` has no form: it is about other descriptors of a request\n\
                    # Not as there: `shop.user` is by the calendar's month, in UTC\n[[rules]]\n";
    assert!(rules.starts_with(comments), "{rules}");
    assert!(rules.contains("rate = \"9/month\""), "{rules}");
}

#[test]
fn a_configuration_with_a_mistake_is_an_error_of_usage() {
    let output = import("domain: shop\ndescriptors:\n- kye: user\n");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("config.yaml") && said.contains("kye"),
        "{said}"
    );
}
