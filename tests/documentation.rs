//! What the documentation names exists: the test of each fault in docs/faults.md, and the target of each link.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

#[path = "support/sources.rs"]
mod sources;

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

/// The lines of a Markdown text outside its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let mut anchors = HashSet::new();
    for heading in headings {
        let kept = { heading.trim_start_matches('#').trim().chars() }
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = { kept.flat_map(char::to_lowercase) }
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let mut number = 1;
        let mut unique = anchor.clone();
        while !anchors.insert(unique) {
            unique = format!("{anchor}-{number}");
            number += 1;
        }
    }
    anchors
}

/// The targets of the links of a line: `[text](target)`, or `[text]: target` where they are collected.
fn links(line: &str) -> Vec<&str> {
    let mut links: Vec<&str> = { line.split("](").skip(1) }
        .filter_map(|rest| rest.split([')', ' ']).next())
        .collect();
    if line.starts_with('[') {
        links.extend(line.split_once("]: ").map(|(_, target)| target.trim()));
    }
    links
}

#[test]
fn each_link_leads_to_a_file_and_a_heading_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = sources::files(root, "md");
    let mut checked = 0;
    let mut broken = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a text");
        for link in prose(&text).flat_map(links) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = file.parent().expect("a folder");
            let target = match path {
                "" => file.clone(),
                path => folder.join(path),
            };
            let is_there = target.exists()
                && (anchor.is_empty()
                    || fs::read_to_string(&target).is_ok_and(|it| anchors(&it).contains(anchor)));
            if !is_there {
                broken.push(format!("{}: {link}", file.display()));
            }
            checked += 1;
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    assert!(checked > 50, "{checked} links");
}
