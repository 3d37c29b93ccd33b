//! The files of this repository.

use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder with this extension, without those of build directories and of hidden
/// ones.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                found.extend(files(&path, extension));
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found
}
