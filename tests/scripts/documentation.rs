//! Each script documents itself, and `lua/README.md` covers every one.

use crate::include::{assemble, names, read};

const README: &str = include_str!("../../lua/README.md");

#[test]
fn each_script_has_a_header_with_purpose_keys_arguments_reply_and_writes() {
    for name in names() {
        let text = read(name).unwrap_or_else(|| panic!("{name}"));
        let header: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .collect();
        let has = |label: &str| header.iter().any(|line| line.starts_with(label));
        assert!(
            header[0].ends_with('.') || header[1].ends_with('.'),
            "{name}"
        );
        assert!(has("-- KEYS    "), "{name}");
        assert!(has("-- ARGV    ") || has("-- numbers "), "{name}");
        assert!(has("-- Returns "), "{name}");
        assert!(has("-- Writes  "), "{name}");
    }
}

#[test]
fn a_script_that_can_refuse_a_limiter_says_so_in_its_header() {
    for name in names().filter(|name| !name.starts_with("policies/")) {
        let script = assemble(name, read).unwrap_or_else(|error| panic!("{error}"));
        let header = script.split("\n\n").next().unwrap();
        let can_refuse = script.contains("window.open(");
        assert_eq!(can_refuse, header.contains("-- Errors  "), "{name}");
    }
}

#[test]
fn the_readme_covers_every_script() {
    for name in names() {
        let short = name.trim_start_matches("policies/");
        let short = short.strip_suffix(".lua").unwrap_or(short);
        let is_named = README.contains(&format!("`{short}.lua`"))
            || README.contains(&format!("| `{short}` |"));
        assert!(is_named, "{name}");
    }
}
