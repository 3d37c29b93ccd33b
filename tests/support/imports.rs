//! What the modules of a crate import of each other, at every depth of its folders.
//!
//! A path leads to the module that has the item: an import leads on to where it is from. Items
//! that are only for tests import nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::sources;

/// A module's place in the crate, such as `["link", "breaker"]`; empty for the root.
pub type Module = Vec<String>;

/// For each module of a folder what it imports of the others. The module of the folder itself is
/// called [`ITSELF`], but for the root of a crate: it knows all modules, and they may name macros
/// there.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

pub const ITSELF: &str = ".";

/// The library code of a crate, by its modules.
pub struct Crate {
    sources: BTreeMap<Module, String>,
    /// The items that modules import, which those below them may name too, and where from.
    re_exports: BTreeMap<(Module, String), Module>,
}

impl Crate {
    /// Reads the files below a folder.
    pub fn read(root: &Path) -> Self {
        let files = sources::files(root, "rs").into_iter().map(|file| {
            let path = file.strip_prefix(root).expect("a file in the folder");
            let source = fs::read_to_string(&file).expect("a source file");
            (path.to_string_lossy().into_owned(), source)
        });
        Self::of(files)
    }

    /// From the files of these names.
    pub fn of(files: impl Iterator<Item = (String, String)>) -> Self {
        let files = files.filter(|(name, _)| !is_of_tests(Path::new(name)));
        let sources = files.map(|(name, source)| (module_of(&name), library_code(&source)));
        let sources: BTreeMap<_, _> = sources.collect();
        let mut re_exports = BTreeMap::new();
        for (module, source) in &sources {
            for (start, _) in source.match_indices("use ") {
                let (paths, _) = expand(Vec::new(), &source[start + "use ".len()..]);
                for path in paths.into_iter().filter_map(|it| absolute(module, &it)) {
                    if let Some(name) = path.last() {
                        re_exports.insert((module.clone(), name.clone()), path);
                    }
                }
            }
        }
        Self {
            sources,
            re_exports,
        }
    }

    /// The folders with more than a few modules, each by its own module.
    pub fn folders(&self) -> Vec<Module> {
        const FEW: usize = 5;
        let folders = self.sources.keys().map(|module| match module.split_last() {
            Some((_, folder)) => folder.to_vec(),
            None => Vec::new(),
        });
        let folders: BTreeSet<Module> = folders.collect();
        let is_large = |folder: &Module| self.imports(folder).len() > FEW + 1;
        folders.into_iter().filter(is_large).collect()
    }

    /// What the modules of a folder import of each other.
    pub fn imports(&self, folder: &[String]) -> Imports {
        let mut imports = Imports::new();
        for (module, source) in &self.sources {
            let Some(own) = place(folder, module) else {
                continue;
            };
            let of = imports.entry(own.to_owned()).or_default();
            for path in paths(module, source, &self.sources) {
                let target = self.target(path);
                let named = target.as_ref().and_then(|it| place(folder, it));
                of.extend(named.filter(|it| *it != own).map(str::to_owned));
            }
        }
        imports
    }

    /// The module that has the item of a path.
    fn target(&self, mut path: Module) -> Option<Module> {
        for _ in 0..8 {
            let mut starts = (0..=path.len()).rev().map(|end| &path[..end]);
            let module = starts.find(|it| self.sources.contains_key(*it))?;
            let Some(item) = path.get(module.len()) else {
                return Some(module.to_vec());
            };
            match self.re_exports.get(&(module.to_vec(), item.clone())) {
                Some(from) if *from != path => path = from.clone(),
                _ => return Some(module.to_vec()),
            }
        }
        None
    }
}

/// Where in a folder a module is; `None` if it is not in it.
fn place<'a>(folder: &[String], module: &'a [String]) -> Option<&'a str> {
    let inner = module.strip_prefix(folder)?;
    match inner.first() {
        None if folder.is_empty() => None,
        first => Some(first.map_or(ITSELF, String::as_str)),
    }
}

/// Modules that are compiled only for tests.
const FOR_TESTS: [&str; 3] = ["client_vectors", "interleaving", "random_cases"];

/// Whether a file is compiled only for tests.
fn is_of_tests(path: &Path) -> bool {
    path.iter().any(|name| {
        let name = name.to_string_lossy();
        let name = name.trim_end_matches(".rs");
        name.ends_with("tests") || name.ends_with("_histories") || FOR_TESTS.contains(&name)
    })
}

fn module_of(file: &str) -> Module {
    let mut module: Module = file.split('/').map(str::to_owned).collect();
    let name = module.pop().unwrap_or_default();
    match name.trim_end_matches(".rs") {
        "lib" | "main" | "mod" => {}
        name => module.push(name.to_owned()),
    }
    module
}

/// What the library is compiled from: without comments, and without the items that are only for
/// tests.
fn library_code(source: &str) -> String {
    let mut kept = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test") {
            skip_item(line.len() - code.len(), &mut lines);
        } else if !code.starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
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

/// The paths in the crate that the code of a module names.
fn paths(module: &Module, source: &str, known: &BTreeMap<Module, String>) -> Vec<Module> {
    let mut paths = Vec::new();
    for (at, _) in source.match_indices("::") {
        let start = source[..at].rfind(|it| !is_of_name(it));
        let start = start.map_or(0, |it| it + 1);
        let name = &source[start..at];
        // A visibility names no item.
        let is_first = !source[..start].ends_with("::") && !source[..start].ends_with("(in ");
        let is_child = || known.contains_key(&[&module[..], &[name.to_owned()]].concat());
        if is_first && (matches!(name, "crate" | "super" | "self") || is_child()) {
            paths.extend(expand(Vec::new(), &source[start..]).0);
        }
    }
    paths.iter().filter_map(|it| absolute(module, it)).collect()
}

fn is_of_name(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

/// A path from the root of the crate; `None` if it leads out of it.
fn absolute(module: &Module, path: &[String]) -> Option<Module> {
    let mut from = module.clone();
    let mut rest = path;
    while let Some((first, more)) = rest.split_first() {
        match first.as_str() {
            "crate" => from.clear(),
            "super" => drop(from.pop()?),
            "self" => {}
            _ => break,
        }
        rest = more;
    }
    from.extend(rest.iter().cloned());
    Some(from)
}

/// The paths that begin here, and what follows them: of `a::{b, c}` two.
fn expand(mut path: Module, mut text: &str) -> (Vec<Module>, &str) {
    loop {
        text = text.trim_start();
        if let Some(mut inner) = text.strip_prefix('{') {
            let mut paths = Vec::new();
            loop {
                let (more, rest) = expand(path.clone(), inner);
                paths.extend(more);
                // A name after `as` is not looked at.
                let Some(end) = rest.find([',', '}']) else {
                    return (paths, "");
                };
                inner = rest[end + 1..].trim_start();
                if rest[end..].starts_with('}') {
                    return (paths, &rest[end + 1..]);
                }
                if let Some(rest) = inner.strip_prefix('}') {
                    return (paths, rest);
                }
            }
        }
        let end = text.find(|it| !is_of_name(it)).unwrap_or(text.len());
        if end > 0 {
            path.push(text[..end].to_owned());
            text = &text[end..];
        }
        match text.strip_prefix("::") {
            Some(rest) if !rest.starts_with('<') => text = rest,
            _ => return (vec![path], text),
        }
    }
}
