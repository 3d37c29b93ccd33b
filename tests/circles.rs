//! In these folders no two modules import each other, not by way of others either: an object is in
//! one place, and what it needs is below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

#[path = "support/sources.rs"]
mod sources;

/// The folders, and how their modules are named from the root of their crate.
const FOLDERS: [(&str, &str); 2] = [("cli/src", "crate::"), ("serve/src", "crate::")];

type Imports = BTreeMap<String, BTreeSet<String>>;

/// What the modules of a folder import of each other. `sources` are paths in the folder.
fn imports(path: &str, sources: &[(String, String)]) -> Imports {
    let module = |file: &str| {
        let first = file.split('/').next().unwrap_or_default();
        first.trim_end_matches(".rs").to_owned()
    };
    let mut imports = Imports::new();
    for (file, _) in sources {
        imports.entry(module(file)).or_default();
    }
    for (file, source) in sources {
        // From a file one folder down it is `super::super::`.
        let up = "super::".repeat(file.matches('/').count() + 1);
        let code = source.lines().map(str::trim_start);
        for line in code.filter(|line| !line.starts_with("//")) {
            for start in [path, up.as_str()] {
                for (at, _) in line.match_indices(start) {
                    let is_longer = line[..at].ends_with("::");
                    let rest = &line[at + start.len()..];
                    let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
                    let named = &rest[..end.unwrap_or(rest.len())];
                    if !is_longer && named != module(file) && imports.contains_key(named) {
                        let from = imports.entry(module(file)).or_default();
                        from.insert(named.to_owned());
                    }
                }
            }
        }
    }
    imports
}

/// The modules that are on a circle: what is left when those that import nothing of the rest go.
fn on_circles(mut imports: Imports) -> Vec<String> {
    loop {
        let names: BTreeSet<String> = imports.keys().cloned().collect();
        let before = imports.len();
        imports.retain(|_, of| of.iter().any(|it| names.contains(it)));
        if imports.len() == before {
            return imports.into_keys().collect();
        }
    }
}

#[test]
fn no_module_imports_one_that_imports_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, path) in FOLDERS {
        let folder = root.join(folder);
        let sources: Vec<_> = { sources::files(&folder, "rs").into_iter() }
            .map(|file| {
                let name = file.strip_prefix(&folder).expect("a file in the folder");
                let source = fs::read_to_string(&file).expect("a source file");
                (name.to_string_lossy().into_owned(), source)
            })
            // The root knows all of them, and they know nothing of it.
            .filter(|(name, _)| name != "main.rs")
            .collect();
        assert!(sources.len() > 10, "{}", folder.display());
        let circles = on_circles(imports(path, &sources));
        assert_eq!(circles, Vec::<String>::new(), "{}", folder.display());
    }
}

#[test]
fn a_circle_over_three_modules_is_found() {
    let sources = [
        ("one.rs", "use crate::two::A;"),
        ("two.rs", "// crate::one\nfn a() {}"),
        ("two/inner.rs", "use super::super::three::B;"),
        ("three.rs", "use super::one::C;"),
        ("leaf.rs", "use crate::one::D;"),
    ];
    let sources = sources.map(|(file, source)| (file.to_owned(), source.to_owned()));
    let found = on_circles(imports("crate::", &sources));
    // The leaf imports one of them, and is kept with them.
    assert_eq!(found, ["leaf", "one", "three", "two"]);
    assert_eq!(on_circles(imports("crate::", &sources[..3])), [""; 0]);
}
