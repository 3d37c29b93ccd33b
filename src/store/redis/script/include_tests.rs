//! How the scripts are assembled: every directive in `lua/` can be followed, and one that cannot is
//! an error.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::{fs, io};

use super::include::{assemble, names, read};

/// Assembles `main` from these files.
fn assembled(files: &[(&str, &'static str)]) -> Result<String, String> {
    let read = |name: &str| {
        let file = files.iter().find(|(file, _)| *file == name);
        file.map(|(_, text)| Cow::Borrowed(*text))
    };
    assemble("main", read)
}

fn error(files: &[(&str, &'static str)]) -> String {
    assembled(files).unwrap_err()
}

#[test]
fn an_include_stands_for_the_file_and_the_files_that_it_includes() {
    let files = [
        ("main", "one\n  --! include a\ntwo\n--! include a\n"),
        ("a", "from a\n--! include b"),
        ("b", "from b\n"),
    ];
    let expected = "one\nfrom a\nfrom b\ntwo\nfrom a\nfrom b\n";
    assert_eq!(assembled(&files).as_deref(), Ok(expected));
}

#[test]
fn an_include_of_a_part_stands_for_that_part_alone() {
    let a = "head\n--! include b\n--! part read\nreads\n--! include b\n--! end\n--! part write\nwrites\n--! end\n";
    let files = [
        ("main", "--! include a write\nthen\n--! include a read\n"),
        ("a", a),
        ("b", "from b\n"),
    ];
    let expected = "writes\nthen\nreads\nfrom b\n";
    assert_eq!(assembled(&files).as_deref(), Ok(expected));
    let whole = [("main", a), ("b", "from b\n")];
    let expected = "head\nfrom b\nreads\nfrom b\nwrites\n";
    assert_eq!(assembled(&whole).as_deref(), Ok(expected));
}

#[test]
fn lines_for_each_policy_are_repeated_in_the_order_of_the_scripts() {
    let text = "one\n--! each policy NAME\nNAME = {\n  --! include policies/NAME.lua read\n}\n--! end\ntwo\n";
    let mut files = vec![("main", text)];
    let mut expected = "one\n".to_owned();
    for script in names().filter(|name| name.starts_with("policies/")) {
        files.push((script, "--! part read\nreads\n--! end\n"));
        let name = script.strip_prefix("policies/").unwrap();
        expected += &format!("{} = {{\nreads\n}}\n", name.strip_suffix(".lua").unwrap());
    }
    assert!(files.len() > 2);
    assert_eq!(assembled(&files), Ok(expected + "two\n"));
}

#[test]
fn lines_for_each_policy_without_an_end_are_an_error() {
    let unended = "lua/main:1: what is repeated for each policy has no end";
    assert_eq!(error(&[("main", "--! each policy NAME\nNAME\n")]), unended);
}

#[test]
fn an_error_in_lines_for_each_policy_has_the_number_of_its_line() {
    let unknown = "one\n--! each policy NAME\n\n--! include NAME\n--! end\n";
    let first = names().find_map(|script| script.strip_prefix("policies/"));
    let first = first.unwrap().strip_suffix(".lua").unwrap();
    let expected = format!("lua/main:4: there is no file lua/{first}");
    assert_eq!(error(&[("main", unknown)]), expected);
}

#[test]
fn an_unknown_file_is_an_error() {
    let unknown = "lua/main:2: there is no file lua/a";
    assert_eq!(error(&[("main", "\n--! include a\n")]), unknown);
    assert_eq!(error(&[]), "lua/main:0: there is no file lua/main");
}

#[test]
fn an_unknown_part_is_an_error() {
    let files = [
        ("main", "--! include a write\n"),
        ("a", "--! part read\n--! end\n"),
    ];
    let unknown = "lua/main:1: the included file has no part write";
    assert_eq!(error(&files), unknown);
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let files = [
        ("main", "--! include a\n"),
        ("a", "--! include b\n"),
        ("b", "--! include a\n"),
    ];
    assert_eq!(error(&files), "lua/b:1: lua/a includes itself");
    let itself = [("main", "--! include main\n")];
    assert_eq!(error(&itself), "lua/main:1: lua/main includes itself");
}

#[test]
fn a_directive_of_another_form_is_an_error_and_none_is_left_over() {
    for line in [
        "--! inclde a",
        "--! include",
        "--! include a b c",
        "--!",
        "--! end",
        "--! part",
        "--! each NAME",
        "--! each limiter NAME",
        "local x = 1 --! include a",
    ] {
        let text: &'static str = line.to_owned().leak();
        let expected = format!("lua/main:1: this is no directive: {line}");
        assert_eq!(error(&[("main", text), ("a", "")]), expected);
    }
    let nested = "--! part one\n--! part two\n--! end\n";
    let expected = "lua/main:2: this is no directive: --! part two";
    assert_eq!(error(&[("main", nested)]), expected);
}

#[test]
fn a_part_without_an_end_is_an_error() {
    let error = error(&[("main", "--! part read\nreads\n")]);
    assert_eq!(error, "lua/main:2: part read has no end");
}

#[test]
fn every_script_is_assembled_and_no_file_is_unused() {
    let seen = std::cell::RefCell::new(HashSet::new());
    for name in names() {
        let script = assemble(name, |file: &str| {
            seen.borrow_mut().insert(file.to_owned());
            read(file)
        });
        let script = script.unwrap_or_else(|error| panic!("{error}"));
        assert!(!script.contains("--!"), "{name}");
    }
    let in_folder: HashSet<String> = ["", "policies/", "refunds/", "shared/"]
        .into_iter()
        .flat_map(lua_files)
        .collect();
    assert_eq!(*seen.borrow(), in_folder);
}

/// The Lua files in a folder of `lua/`.
fn lua_files(folder: &'static str) -> impl Iterator<Item = String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("lua")
        .join(folder);
    let entries: io::Result<Vec<_>> = fs::read_dir(path).and_then(Iterator::collect);
    let names = entries.unwrap().into_iter().map(|entry| entry.file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names
        .filter(|name| name.ends_with(".lua"))
        .map(move |name| format!("{folder}{name}"))
}
