//! What the documentation names exists: the test of each fault in docs/faults.md, and the target of
//! each link, in the repository and in the documentation of the crate.

use std::collections::{BTreeSet, HashSet};
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use redisson_rate_limiter::AnyPolicy;

#[path = "support/sources.rs"]
mod sources;

/// The tests that a row of a table names in its third column.
fn tests_in(row: &str) -> impl Iterator<Item = &str> {
    let tests = row.split(" | ").nth(2).unwrap_or_default();
    tests.split('`').filter(|name| name.contains('_'))
}

#[test]
fn each_fault_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources::files(root, "rs").into_iter();
    let sources: String = sources
        .map(|file| fs::read_to_string(file).expect("a source file"))
        .collect();
    let text = fs::read_to_string(root.join("docs/faults.md")).expect("docs/faults.md");
    let mut faults = 0;
    let lines: Vec<_> = text.lines().collect();
    for (place, line) in lines.iter().enumerate() {
        let is_heading = lines
            .get(place + 1)
            .is_some_and(|next| next.starts_with("|--"));
        let is_fault = line.starts_with("| ") && !is_heading && line.matches(" | ").count() >= 3;
        if is_fault {
            assert!(tests_in(line).next().is_some(), "no test: {line}");
            faults += 1;
            for name in tests_in(line) {
                assert!(sources.contains(&format!("fn {name}(")), "no test {name}");
            }
        }
    }
    assert!(faults > 30, "{faults} faults");
}

/// The line of scripts/test for each server that the guide says the tests run on.
const RUNS: [(&str, &str); 5] = [
    ("Redis 5", "REDISRS_SERVER_BIN=$redis_5 cargo test"),
    ("Redis 7", "\ncargo test"),
    ("Redis 8", "target/newer-servers/{redis,valkey}-server"),
    ("Valkey 8", "REDISRS_SERVER_BIN=valkey-server cargo test"),
    ("Valkey 9", "target/newer-servers/{redis,valkey}-server"),
];

#[test]
fn the_tests_run_on_the_servers_that_the_guide_names() {
    let page = include_str!("../docs/connections.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let named = rows.filter_map(|row| row.split(" |").next());
    let is_server = |it: &&str| it.starts_with("Redis ") || it.starts_with("Valkey ");
    let named: Vec<_> = named.filter(is_server).collect();
    assert_eq!(named, RUNS.map(|(server, _)| server));
    let runs = include_str!("../scripts/test");
    for (server, run) in RUNS {
        assert!(runs.contains(run), "no run on {server}");
    }
    let programs = runs.matches("REDISRS_SERVER_BIN=").count();
    assert_eq!(programs, 4, "two of them on Redis 5");
    let readme = include_str!("../README.md").replace('\n', " ");
    assert!(readme.contains("Redis 5, 7 and 8 and Valkey 8 and 9"));
}

#[test]
fn the_readme_has_the_version_and_the_rust_version_of_the_manifest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("README.md")).expect("README.md");
    let [major, minor, rust] = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_RUST_VERSION"),
    ];
    let dependency = format!("redisson-rate-limiter = \"{major}.{minor}\"\n");
    assert!(text.contains(&dependency), "{dependency}");
    assert!(text.contains(&format!("needs Rust {rust} ")), "{rust}");
}

#[test]
fn the_readme_names_each_policy_and_the_guide_has_its_section_and_picture() {
    let readme = include_str!("../README.md");
    let guide = include_str!("../docs/which-limiter.md");
    for policy in AnyPolicy::examples(1, Duration::from_secs(1)) {
        let (name, shown) = (policy.algorithm(), format!("{policy:?}"));
        let (kind, _) = shown.split_once('(').expect("the name of its type");
        if let AnyPolicy::SharedRate(_) = policy {
            continue;
        }
        assert!(readme.contains(&format!("`{kind}`")), "README.md: {kind}");
        let section = format!("\n## {kind}\n\n![{kind}: ");
        assert!(guide.contains(&section), "docs/which-limiter.md: {section}");
        let picture = format!("][which-limiter/{name}.svg]\n");
        assert!(guide.contains(&picture), "docs/which-limiter.md: {picture}");
    }
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
        let anchor: String = kept
            .flat_map(char::to_lowercase)
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

/// The targets of the links of a line: `[text](target)`, or `[text]: target` where they are
/// collected.
fn links(line: &str) -> Vec<&str> {
    let mut links: Vec<&str> = { line.split("](").skip(1) }
        .filter_map(|rest| rest.split([')', ' ']).next())
        .collect();
    if line.starts_with('[') {
        links.extend(line.split_once("]: ").map(|(_, target)| target.trim()));
    }
    links
}

/// Where docs.rs shows the crate, and where it shows the files of the package.
const PUBLISHED: &str = "https://docs.rs/redisson-rate-limiter/latest/redisson_rate_limiter/guide/";
const PACKAGED: &str = "https://docs.rs/crate/redisson-rate-limiter/latest/source/";

/// The file of this repository that docs.rs shows there.
fn published_page(address: &str) -> Option<String> {
    let module = address
        .strip_prefix(PUBLISHED)?
        .strip_suffix("/index.html")?;
    Some(format!("docs/{}.md", module.replace('_', "-")))
}

/// Whether the package has this file.
fn is_packaged(file: &str) -> bool {
    let manifest = include_str!("../Cargo.toml");
    let included = manifest.lines().find(|it| it.starts_with("include = "));
    let top = file.split('/').next().expect("a part");
    included.is_some_and(|it| it.contains(&format!("\"/{top}\"")))
}

/// The labels of a line that stand for links: `[label]` and `[text][label]`.
fn labels(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.match_indices(']').map(|(at, _)| at);
    ends.filter_map(|end| {
        let start = line[..end].rfind('[')?;
        let is_code = line[..start].matches('`').count() % 2 == 1;
        let is_label = !is_code && !line[end + 1..].starts_with(['(', ':', '[']);
        is_label.then(|| &line[start + 1..end])
    })
}

/// A registry shows the README of a crate by itself: there, only labels that it defines are links.
#[test]
fn each_label_in_the_readme_of_a_crate_is_defined_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["", "cli", "metrics", "serve", "tower"] {
        let text = fs::read_to_string(root.join(folder).join("README.md")).expect("README.md");
        let defined: HashSet<_> = definitions(&text).map(|(label, _)| label).collect();
        let used = prose(&text).flat_map(labels);
        let undefined: Vec<_> = used.filter(|label| !defined.contains(label)).collect();
        assert_eq!(undefined, Vec::<&str>::new(), "{folder}");
    }
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
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = file.parent().expect("a folder");
            let target = if path.is_empty() {
                file.clone()
            } else if let Some(page) = published_page(path) {
                root.join(page)
            } else if path.contains("://") {
                continue;
            } else {
                folder.join(path)
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

/// A block of the README that names another crate is not compiled there.
#[test]
fn the_layer_in_the_readme_is_the_one_that_is_tested_in_its_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let of_tower = fs::read_to_string(root.join("tower/README.md")).expect("tower/README.md");
    let untested: Vec<_> = readme.split("```rust,ignore\n").skip(1).collect();
    let [layer] = untested[..] else {
        panic!("{} blocks that are not tested", untested.len());
    };
    let layer = layer.split("```").next().expect("a block");
    assert!(of_tower.contains(&format!("```rust\n{layer}")), "{layer}");
}

/// The definitions of links and pictures of a page, `[label]: target`.
fn definitions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = prose(text).filter_map(|line| line.strip_prefix('['));
    lines.filter_map(|line| line.split_once("]: "))
}

/// Where a page of docs/ is in the documentation of the crate.
fn module(page: &str) -> String {
    let (file, anchor) = page.split_once(".md").unwrap_or((page, ""));
    format!("crate::guide::{}{anchor}", file.replace('-', "_"))
}

/// A picture as an address: it may stand between `<` and `>`.
fn data(picture: &str) -> String {
    let mut address = String::from("data:image/svg+xml,");
    for byte in picture.bytes() {
        if byte.is_ascii_alphanumeric() || b" -.,:;=/()".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

#[test]
fn the_guide_has_the_links_and_pictures_of_all_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut links, mut pictures) = (BTreeSet::new(), BTreeSet::new());
    let docs = root.join("docs");
    let guide = fs::read_to_string(root.join("src/guide.rs")).expect("src/guide.rs");
    for file in sources::files(&docs, "md") {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        assert!(guide.contains(&format!("\"{name}\"")), "{name}");
        let text = fs::read_to_string(&file).expect("a page");
        let labels: HashSet<&str> = definitions(&text).map(|(label, _)| label).collect();
        let joined = text.replace('\n', " ");
        for used in joined.split("][").skip(1) {
            let label = used.split(']').next().unwrap_or_default();
            let is_file = label.contains(".md") || label.ends_with(".svg");
            assert!(
                !is_file || labels.contains(label),
                "{name}: no definition of {label}"
            );
        }
        assert!(
            !joined.contains("](../"),
            "{name}: the guide has no such file"
        );
        for (label, target) in definitions(&text) {
            if target.ends_with(".svg") {
                let picture = fs::read_to_string(docs.join(target)).expect("a picture");
                pictures.insert(format!("[{label}]: <{}>\n", data(&picture)));
            } else if !target.contains("://") {
                links.insert(format!("[{label}]: {}\n", module(target)));
            }
        }
    }
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    for (label, file) in definitions(&readme) {
        if let Some(page) = file.strip_prefix("docs/").filter(|it| it.ends_with(".md")) {
            links.insert(format!("[{label}]: {}\n", module(page)));
        } else if !file.starts_with("docs/") {
            assert!(is_packaged(file), "docs.rs does not have {file}");
            links.insert(format!("[{label}]: {PACKAGED}{file}\n"));
        }
    }
    for (name, lines) in [("links", links), ("pictures", pictures)] {
        let file = root.join(format!("src/guide/{name}.txt"));
        let expected: String = lines.into_iter().collect();
        if env::var_os("RECORD_GUIDE").is_some() {
            fs::write(&file, &expected).expect("a file, written");
        }
        let recorded = fs::read_to_string(&file).unwrap_or_default();
        assert!(recorded == expected, "RECORD_GUIDE=1 writes {name}.txt");
    }
}
