//! In a folder with more than a few files, no two modules import each other, directly or through
//! other modules: an object is in one place, and what it needs is below it.

use std::collections::BTreeSet;
use std::path::Path;

#[path = "support/imports.rs"]
mod imports;
#[path = "support/sources.rs"]
mod sources;

use imports::{Crate, ITSELF, Imports};

/// The sources of the crates.
const CRATES: [&str; 5] = ["src", "cli/src", "metrics/src", "serve/src", "tower/src"];

/// The modules that are on a circle: those that are left when each module that imports none of the
/// others left, and each that none of them imports, is removed again and again.
fn on_circles(imports: &Imports) -> Vec<String> {
    let mut left: BTreeSet<&String> = imports.keys().collect();
    loop {
        let before = left.len();
        let imports_one = |it: &&String| imports[*it].iter().any(|of| left.contains(of));
        let above: BTreeSet<_> = left.iter().copied().filter(imports_one).collect();
        let is_imported = |it: &&String| above.iter().any(|by| imports[*by].contains(*it));
        left = above.iter().copied().filter(is_imported).collect();
        if left.len() == before {
            return left.into_iter().cloned().collect();
        }
    }
}

#[test]
fn no_module_imports_one_that_imports_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for sources in CRATES {
        let code = Crate::read(&root.join(sources));
        let folders = code.folders();
        for folder in folders {
            let circle = on_circles(&code.imports(&folder));
            let name = [&[sources.to_owned()], &folder[..]].concat().join("/");
            if !circle.is_empty() {
                found.push(format!("{name}: {}", circle.join(" ")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn code<const N: usize>(files: [(&str, &str); N]) -> Crate {
    let files = files.map(|(name, source)| (name.to_owned(), source.to_owned()));
    Crate::of(files.into_iter())
}

#[test]
fn a_circle_over_three_modules_is_found() {
    let all = [
        ("one.rs", "use crate::two::A;"),
        (
            "two.rs",
            "// crate::one\nfn a() {}\n#[cfg(test)]\nuse crate::one::A;",
        ),
        (
            "two/inner.rs",
            "use super::super::{\n    three::B as C,\n    leaf,\n};",
        ),
        ("three.rs", "fn a() { super::one::c::<D>(); }"),
        ("above.rs", "use crate::one::D;"),
        ("leaf.rs", "use std::fmt::{self, Debug};"),
    ];
    assert_eq!(on_circles(&code(all).imports(&[])), ["one", "three", "two"]);
    let [one, two, inner, ..] = all;
    let without = code([one, two, inner]);
    assert_eq!(on_circles(&without.imports(&[])), [""; 0]);
}

#[test]
fn a_folder_and_a_module_in_it_that_import_each_other_are_found() {
    let folder = ["a".to_owned()];
    let root = "mod b;\nmod c;\npub(crate) use b::B;\nuse b::D;\npub(crate) struct A;";
    let circle = code([("a.rs", root), ("a/b.rs", "use super::A;"), ("a/c.rs", "")]);
    assert_eq!(on_circles(&circle.imports(&folder)), [ITSELF, "b"]);
    // What the folder re-exports is from `b`.
    let none = code([("a.rs", root), ("a/b.rs", ""), ("a/c.rs", "use super::B;")]);
    assert_eq!(on_circles(&none.imports(&folder)), [""; 0]);
    assert!(none.imports(&folder)["c"].contains("b"));
}
