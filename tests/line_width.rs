//! Comments have lines of at most 100 characters. The code is rustfmt's, which has the same width.

use std::fs;
use std::path::Path;

#[path = "support/sources.rs"]
mod sources;

const WIDEST: usize = 100;

/// The numbers of comments that are wider. Code, tables, single words and the targets of links in
/// them cannot be wrapped.
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
        if line.chars().count() > WIDEST && !is_fixed {
            wider.push(place + 1);
        }
    }
    wider
}

#[test]
fn no_comment_is_wider_than_100_characters() {
    let mut wider = Vec::new();
    for file in sources::files(Path::new(env!("CARGO_MANIFEST_DIR")), "rs") {
        let source = fs::read_to_string(&file).expect("a source file");
        for line in wider_comments(&source) {
            wider.push(format!("{}:{line}", file.display()));
        }
    }
    assert_eq!(wider, Vec::<String>::new());
}

#[test]
fn a_comment_of_101_characters_is_found() {
    let [fits, wide] = [95, 96].map(|length| format!("// n {}", "n".repeat(length)));
    let source = format!("{fits}\n{wide}\n/// ```\n//{wide}\n/// ```\n    let it = 1; {wide}\n");
    assert_eq!(wider_comments(&source), [2]);
}
