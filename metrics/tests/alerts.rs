//! The rules of alerts, by Prometheus's own checker.

use std::fs;
use std::path::Path;
use std::process::Command;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

#[test]
fn prometheus_takes_the_rules_of_alerts() {
    let checked = Command::new("promtool")
        .args(["check", "rules", "alerts.yaml"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("promtool is installed: see scripts/tools");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{checked:?}");
    assert!(said.contains("SUCCESS: 9 rules found"), "{said}");
}

#[test]
fn alerts_are_on_metrics_that_the_guides_list() {
    let guides = read("../docs/operation.md") + &read("../cli/SERVE.md");
    let alerts = read("alerts.yaml");
    let words = alerts.split(|it: char| !it.is_alphanumeric() && it != '_');
    let names: Vec<&str> = words.filter(|it| it.starts_with("rate_limiter_")).collect();
    assert!(names.len() > 9, "{names:?}");
    for name in names {
        assert!(guides.contains(&format!("`{name}`")), "{name}");
    }
}
