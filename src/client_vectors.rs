//! The cases in `lua/vectors/client/`: what a client concludes by itself, by the rules of
//! `lua/README.md`. The module that has a rule tests it with the cases of its file.

use std::path::Path;
use std::{env, fs};

use serde_json::Value as Json;

use crate::pretty_json::pretty;

/// Holds a rule to the cases of a file: `conclude` returns what follows from what a case gives.
/// With `RECORD_VECTORS=1` that is written to the file instead.
pub(crate) fn hold(file: &str, conclude: impl Fn(&Json) -> Json) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua/vectors/client");
    let path = folder.join(file).with_extension("json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut cases: Json = serde_json::from_str(&text).unwrap();
    let is_recording = env::var_os("RECORD_VECTORS").is_some();
    let each = cases["cases"].as_array_mut().unwrap();
    assert!(!each.is_empty(), "{file}");
    for case in each {
        let result = conclude(&case["given"]);
        if is_recording {
            case["result"] = result;
        } else {
            assert_eq!(result, case["result"], "{file}, {}", case["name"]);
        }
    }
    if is_recording {
        fs::write(&path, pretty(&cases)).unwrap();
    }
}

pub(crate) fn text(value: &Json) -> &str {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("no text: {value}"))
}

pub(crate) fn number(value: &Json) -> i64 {
    let number = value.as_i64();
    number.unwrap_or_else(|| panic!("no number: {value}"))
}

pub(crate) fn numbers(value: &Json) -> Vec<i64> {
    list(value).map(number).collect()
}

pub(crate) fn list(value: &Json) -> impl Iterator<Item = &Json> {
    let list = value.as_array();
    list.unwrap_or_else(|| panic!("no list: {value}")).iter()
}
