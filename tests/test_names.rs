//! The name of a test is a sentence of at most 70 characters.

use std::fs;
use std::path::Path;

#[path = "support/sources.rs"]
mod sources;

const LONGEST: usize = 70;

/// The names of functions that are longer; other functions than tests have shorter names.
fn longer_names(source: &str) -> impl Iterator<Item = &str> {
    let functions = source.lines().filter_map(|line| line.split_once("fn "));
    functions
        .filter_map(|(_, rest)| rest.split(['(', '<']).next())
        .filter(|name| name.len() > LONGEST && !name.contains(' '))
}

#[test]
fn no_name_of_a_test_is_longer_than_70_characters() {
    let mut too_long = Vec::new();
    for file in sources::files(Path::new(env!("CARGO_MANIFEST_DIR")), "rs") {
        let source = fs::read_to_string(&file).expect("a source file");
        for name in longer_names(&source) {
            too_long.push(format!("{}: {name}", file.display()));
        }
    }
    assert_eq!(too_long, Vec::<String>::new());
}

#[test]
fn a_name_of_71_characters_is_found() {
    let [fits, too_long] = [70, 71].map(|length| "n".repeat(length));
    let source = format!("    async fn {fits}() {{}}\n    fn {too_long}(it: u8) {{}}\n");
    assert!(longer_names(&source).eq([&too_long]));
}
