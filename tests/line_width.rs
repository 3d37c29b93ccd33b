//! Comments in Rust and all lines of Lua have at most 100 characters. Rust's code is rustfmt's,
//! which has the same width.

use std::fs;
use std::path::Path;

#[path = "support/sources.rs"]
mod sources;

const WIDEST: usize = 100;

fn is_wide(line: &str) -> bool {
    line.chars().count() > WIDEST
}

/// Returns the numbers of the lines that are wider, in Lua.
fn wider_lines(source: &str) -> Vec<usize> {
    let lines = (1..).zip(source.lines());
    let wider = lines.filter(|(_, line)| is_wide(line));
    wider.map(|(number, _)| number).collect()
}

/// Returns the numbers of the comments that are wider, in Rust. Code, tables, single words and the
/// targets of links in them cannot be wrapped.
fn wider_comments(source: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut wider = Vec::new();
    for (place, line) in source.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_code = false;
            continue;
        };
        let text = comment.trim_start_matches(['/', '!']).trim_start();
        if text.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let is_one_word = !text.contains(' ');
        let is_fixed = is_code || is_one_word || text.starts_with(['|', '[']);
        if is_wide(line) && !is_fixed {
            wider.push(place + 1);
        }
    }
    wider
}

/// Returns the lines that `wider` finds in the files with this extension, each as `FILE:LINE`.
fn wider_in_files(extension: &str, wider: impl Fn(&str) -> Vec<usize>) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources::files(Path::new(env!("CARGO_MANIFEST_DIR")), extension) {
        let source = fs::read_to_string(&file).expect("a source file");
        for line in wider(&source) {
            found.push(format!("{}:{line}", file.display()));
        }
    }
    found
}

#[test]
fn no_comment_in_rust_is_wider_than_100_characters() {
    assert_eq!(wider_in_files("rs", wider_comments), Vec::<String>::new());
}

#[test]
fn no_line_of_lua_is_wider_than_100_characters() {
    assert_eq!(wider_in_files("lua", wider_lines), Vec::<String>::new());
}

#[test]
fn a_line_of_lua_of_101_characters_is_found() {
    let [fits, wide] = [100, 101].map(|length| "…".repeat(length));
    assert_eq!(
        wider_lines(&format!("{fits}\n{wide}\n--! {fits}\n")),
        [2, 3]
    );
}

#[test]
fn a_comment_of_101_characters_is_found() {
    let [fits, wide] = [95, 96].map(|length| format!("// n {}", "n".repeat(length)));
    let source = format!("{fits}\n{wide}\n/// ```\n//{wide}\n/// ```\n    let it = 1; {wide}\n");
    assert_eq!(wider_comments(&source), [2]);
}
