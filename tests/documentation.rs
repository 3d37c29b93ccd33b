//! docs/faults.md names a test for each fault: each of them exists.

use std::fs;
use std::path::Path;

/// Names and files of the tests in a line: [`name`](../path/of/the_file.rs).
fn tests_in(line: &str) -> Vec<(&str, &str)> {
    let mut tests = Vec::new();
    for part in line.split("[`").skip(1) {
        let Some((name, rest)) = part.split_once("`](../") else {
            continue;
        };
        if let Some((file, _)) = rest.split_once(')').filter(|it| it.0.ends_with(".rs")) {
            tests.push((name, file));
        }
    }
    tests
}

#[test]
fn each_fault_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/faults.md")).expect("docs/faults.md");
    let mut faults = 0;
    let lines: Vec<_> = text.lines().collect();
    for (place, line) in lines.iter().enumerate() {
        let is_heading = lines
            .get(place + 1)
            .is_some_and(|next| next.starts_with("|--"));
        let is_fault = line.starts_with("| ") && !is_heading && line.matches(" | ").count() >= 3;
        let tests = tests_in(line);
        assert!(!is_fault || !tests.is_empty(), "no test: {line}");
        faults += usize::from(is_fault);
        for (name, file) in tests {
            let source = fs::read_to_string(root.join(file));
            let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
            let is_there = source.contains(&format!("fn {name}("));
            assert!(is_there, "{file} has no test {name}");
        }
    }
    assert!(faults > 30, "{faults} faults");
}
