//! No module imports one of a layer above its own, in no folder. ARCHITECTURE.md lists the layers
//! of `src/`, and a folder's own module those of the folder, the uppermost first.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[path = "support/imports.rs"]
mod imports;
#[path = "support/sources.rs"]
mod sources;

use imports::{Crate, ITSELF, Imports};

/// The place of each module in a list. Modules in one line do not import each other.
fn layers(text: &str) -> Option<BTreeMap<&str, usize>> {
    let (_, list) = text.split_once("```layers\n")?;
    let mut layers = BTreeMap::new();
    for (place, line) in list.lines().enumerate() {
        let line = line.trim_start_matches("//!").trim();
        if line == "```" {
            return Some(layers);
        }
        for module in line.split_whitespace() {
            let earlier = layers.insert(module, place);
            assert_eq!(earlier, None, "{module} is listed twice");
        }
    }
    panic!("a list of layers has no end");
}

/// What is wrong with the imports of the modules in a folder.
fn violations(layers: &BTreeMap<&str, usize>, imports: &Imports) -> Vec<String> {
    let mut wrong = Vec::new();
    for (module, named) in imports.iter().filter(|(module, _)| *module != ITSELF) {
        let Some(own) = layers.get(&**module) else {
            wrong.push(format!("{module} is in no layer"));
            continue;
        };
        for named in named.iter().filter(|named| *named != ITSELF) {
            if layers.get(&**named).is_none_or(|place| place <= own) {
                wrong.push(format!("{module} must not import {named}"));
            }
        }
    }
    for listed in layers.keys().filter(|it| !imports.contains_key(**it)) {
        wrong.push(format!("{listed} is listed, and there is no such module"));
    }
    wrong
}

#[test]
fn no_module_imports_from_a_layer_above_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("src");
    let code = Crate::read(&source);
    let mut wrong = Vec::new();
    for folder in code.folders() {
        let path = folder.join("/");
        let file = match folder.is_empty() {
            true => root.join("ARCHITECTURE.md"),
            false => source.join(&path).with_extension("rs"),
        };
        let text = fs::read_to_string(file).unwrap_or_default();
        match layers(&text) {
            Some(layers) => {
                let violations = violations(&layers, &code.imports(&folder));
                wrong.extend(violations.iter().map(|it| format!("src/{path}: {it}")));
            }
            None => wrong.push(format!("src/{path} lists no layers")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_import_from_a_layer_above_is_found() {
    let files = [
        ("client.rs", "use crate::{\n    store::Store,\n};"),
        (
            "store.rs",
            "//! See crate::client.\nuse crate::client::RedissonClient;\nuse crate::keys::K;\n\
            #[cfg(test)]\nmod tests {\n    use crate::unknown::A;\n}\n#[cfg(test)]\nuse crate::lock::B;",
        ),
        (
            "store/memory.rs",
            "fn lock() { super::super::lock::lock() }",
        ),
        ("keys.rs", ""),
        ("lock.rs", ""),
    ];
    let files = files.map(|(name, source)| (name.to_owned(), source.to_owned()));
    let imports = Crate::of(files.into_iter()).imports(&[]);
    let listed = layers("```layers\nclient\nstore keys\nescaped\n```").unwrap();
    let expected = [
        "lock is in no layer",
        "store must not import client",
        "store must not import keys",
        "store must not import lock",
        "escaped is listed, and there is no such module",
    ];
    assert_eq!(violations(&listed, &imports), expected);
}
