//! No module imports one of a layer above its own. ARCHITECTURE.md lists the layers, the uppermost
//! first.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

#[path = "support/sources.rs"]
mod sources;

/// The place of each module in the list of ARCHITECTURE.md. Modules in one line do not import each
/// other.
fn layers(architecture: &str) -> HashMap<String, usize> {
    let list = architecture.split("```layers\n").nth(1);
    let list = list.and_then(|rest| rest.split("```").next());
    let mut layers = HashMap::new();
    for (place, line) in list.expect("a list of layers").lines().enumerate() {
        for module in line.split_whitespace() {
            let earlier = layers.insert(module.to_owned(), place);
            assert_eq!(earlier, None, "{module} is listed twice");
        }
    }
    layers
}

/// Modules of the crate that are compiled only for tests.
const FOR_TESTS: [&str; 3] = ["client_vectors", "interleaving", "random_cases"];

/// Files that are compiled only for tests.
fn is_of_tests(path: &Path) -> bool {
    let mut names = path.iter().map(|name| name.to_string_lossy());
    names.any(|name| {
        let name = name.trim_end_matches(".rs");
        let is_named_so = ["tests", "_histories"]
            .iter()
            .any(|end| name.ends_with(end));
        is_named_so || FOR_TESTS.contains(&name)
    })
}

/// The lines that the library is compiled from: without comments, and without the items that are
/// only for tests.
fn library_lines(source: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test") {
            skip_item(line.len() - code.len(), &mut lines);
        } else if !code.starts_with("//") {
            kept.push(line);
        }
    }
    kept
}

/// Skips the item that follows an attribute with this indentation.
fn skip_item<'a>(indentation: usize, lines: &mut impl Iterator<Item = &'a str>) {
    for line in lines {
        let code = line.trim_start();
        let is_outermost = line.len() - code.len() == indentation;
        if is_outermost && !code.starts_with("#[") && code.ends_with([';', '}', ',']) {
            return;
        }
    }
}

/// The modules of the crate that a line names.
fn named_modules(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// What is wrong with the imports of one file.
fn violations(layers: &HashMap<String, usize>, module: &str, source: &str) -> Vec<String> {
    let Some(own) = layers.get(module) else {
        return vec![format!("{module} is in no layer")];
    };
    let mut wrong = Vec::new();
    for line in library_lines(source) {
        for named in named_modules(line).filter(|named| *named != module) {
            if layers.get(named).is_none_or(|place| place <= own) {
                wrong.push(format!("{module} must not import {named}: {}", line.trim()));
            }
        }
    }
    wrong
}

#[test]
fn no_module_imports_from_a_layer_above_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let layers = layers(&architecture);
    let (source, mut wrong) = (root.join("src"), Vec::new());
    for file in sources::files(&source, "rs") {
        let path = file.strip_prefix(&source).expect("a file in src");
        let first = path.iter().next().expect("a name").to_string_lossy();
        let module = first.trim_end_matches(".rs");
        if module != "lib" && !is_of_tests(path) {
            let text = fs::read_to_string(&file).expect("a source file");
            for violation in violations(&layers, module, &text) {
                wrong.push(format!("{}: {violation}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_import_from_a_layer_above_is_found() {
    let layers = layers("```layers\nclient\nstore keys\n```");
    let source = "//! See crate::client.\nuse crate::client::RedissonClient;\nlet _ = crate::keys::K;\n\
        #[cfg(test)]\nmod tests {\n    use crate::client::A;\n}\n#[cfg(test)]\nuse crate::client::B;\n";
    let expected = [
        "store must not import client: use crate::client::RedissonClient;",
        "store must not import keys: let _ = crate::keys::K;",
    ];
    assert_eq!(violations(&layers, "store", source), expected);
    assert!(violations(&layers, "client", "use crate::store::Store;").is_empty());
    assert_eq!(
        violations(&layers, "lock", ""),
        ["lock is in no layer".to_owned()]
    );
}
