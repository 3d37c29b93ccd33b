//! The Lua files, and how a script is assembled from them.
//!
//! A line `--! include FILE` stands for the text of that file in `lua/`, and `--! include FILE PART` for what the file has
//! between `--! part PART` and `--! end`. Assembling fails where a directive cannot be followed. A script is sent as it is
//! assembled, comments included: the server sees it once, and then its SHA-1.
//!
//! Nothing here depends on the rest of the crate, so that `examples/scripts.rs` and the tests assemble the same scripts.

use std::borrow::Cow;
use std::fmt;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../lua/", $name)))),*]
    };
}

/// Every Lua file, by its path in `lua/`. Those in `shared/` are only included.
const FILES: &[(&str, &str)] = files! {
    "acquire.lua"
    "audit_read.lua"
    "audit_reconcile.lua"
    "available_permits.lua"
    "clear_expire.lua"
    "expire.lua"
    "joint.lua"
    "policies/fixed_window.lua"
    "policies/leaky_bucket.lua"
    "policies/penalty_token_bucket.lua"
    "policies/quota_bucket.lua"
    "policies/sliding_window_counter.lua"
    "policies/sliding_window_log.lua"
    "policies/token_bucket.lua"
    "multi_acquire.lua"
    "reclaim.lua"
    "refund.lua"
    "release.lua"
    "set_rate.lua"
    "shared/acquire_steps.lua"
    "shared/finite.lua"
    "shared/grant_runs.lua"
    "shared/life.lua"
    "shared/limits.lua"
    "shared/lock.lua"
    "shared/one_target.lua"
    "shared/policy.lua"
    "shared/shared_rate.lua"
    "shared/time.lua"
    "shared/whole.lua"
    "shared/window.lua"
    "try_set_rate.lua"
    "update_rate.lua"
};

/// The scripts that are sent, by their paths in `lua/`.
#[allow(dead_code, reason = "the library names each script where it is used")]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let names = FILES.iter().map(|(name, _)| *name);
    names.filter(|name| !name.starts_with("shared/"))
}

/// The text of a file in `lua/`.
pub(crate) fn read(name: &str) -> Option<Cow<'static, str>> {
    let file = FILES.iter().find(|(file, _)| *file == name);
    file.map(|(_, text)| Cow::Borrowed(*text))
}

/// Assembles a script from the files that `read` returns.
pub(crate) fn assemble(
    name: &str,
    read: impl Fn(&str) -> Option<Cow<'static, str>>,
) -> Result<String, DirectiveError> {
    let text = read(name).ok_or_else(|| DirectiveError {
        file: name.to_owned(),
        line: 0,
        problem: Problem::UnknownFile(name.to_owned()),
    })?;
    let mut assembly = Assembly {
        read: &read,
        open: Vec::new(),
        script: String::new(),
    };
    assembly.include(name, &text, None)?;
    Ok(assembly.script)
}

/// A directive that cannot be followed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DirectiveError {
    file: String,
    line: usize,
    problem: Problem,
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    UnknownFile(String),
    UnknownPart(String),
    /// The file is being included already.
    Cycle(String),
    /// No directive has this form, or it is not alone in its line, or out of place.
    Malformed(String),
    /// The part has no end.
    OpenPart(String),
}

impl fmt::Display for DirectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lua/{}:{}: ", self.file, self.line)?;
        match &self.problem {
            Problem::UnknownFile(file) => write!(f, "there is no file lua/{file}"),
            Problem::UnknownPart(part) => write!(f, "the included file has no part {part}"),
            Problem::Cycle(file) => write!(f, "lua/{file} includes itself"),
            Problem::Malformed(line) => write!(f, "this is no directive: {line}"),
            Problem::OpenPart(part) => write!(f, "part {part} has no end"),
        }
    }
}

impl std::error::Error for DirectiveError {}

struct Assembly<'a, Read> {
    read: &'a Read,
    /// The files that are being included.
    open: Vec<String>,
    script: String,
}

impl<Read: Fn(&str) -> Option<Cow<'static, str>>> Assembly<'_, Read> {
    /// Adds the text of a file, or of one part of it. `false` where it has no such part.
    fn include(
        &mut self,
        file: &str,
        text: &str,
        wanted: Option<&str>,
    ) -> Result<bool, DirectiveError> {
        self.open.push(file.to_owned());
        let mut part: Option<&str> = None;
        let mut is_found = wanted.is_none();
        for (index, line) in text.lines().enumerate() {
            let fail = |problem| {
                let (file, line) = (file.to_owned(), index + 1);
                Err(DirectiveError {
                    file,
                    line,
                    problem,
                })
            };
            let is_wanted = wanted.is_none() || part == wanted;
            let Some(directive) = line.trim_start().strip_prefix("--!") else {
                if line.contains("--!") {
                    return fail(Problem::Malformed(line.to_owned()));
                }
                if is_wanted {
                    self.script.push_str(line);
                    self.script.push('\n');
                }
                continue;
            };
            let words: Vec<&str> = directive.split_whitespace().collect();
            match (&words[..], part) {
                (["part", name], None) => {
                    part = Some(name);
                    is_found |= part == wanted;
                }
                (["end"], Some(_)) => part = None,
                (["include", included, rest @ ..], _) if rest.len() <= 1 => {
                    if !is_wanted {
                        continue;
                    }
                    if self.open.iter().any(|open| open == included) {
                        return fail(Problem::Cycle((*included).to_owned()));
                    }
                    let Some(text) = (self.read)(included) else {
                        return fail(Problem::UnknownFile((*included).to_owned()));
                    };
                    let wanted = rest.first().copied();
                    if !self.include(included, &text, wanted)? {
                        return fail(Problem::UnknownPart(wanted.unwrap_or_default().to_owned()));
                    }
                }
                _ => return fail(Problem::Malformed(line.to_owned())),
            }
        }
        self.open.pop();
        match part {
            Some(part) => Err(DirectiveError {
                file: file.to_owned(),
                line: text.lines().count(),
                problem: Problem::OpenPart(part.to_owned()),
            }),
            None => Ok(is_found),
        }
    }
}
