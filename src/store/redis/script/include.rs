//! The Lua files, and how a script is assembled from them.
//!
//! A line `--! include FILE` stands for the text of that file in `lua/`, and `--! include FILE
//! PART` for what the file has between `--! part PART` and `--! end`. The lines between `--! each
//! policy WORD` and `--! end` stand for themselves once for each policy, with its name for the
//! word. Assembling fails where a directive cannot be followed. A script is sent as it is
//! assembled, comments included: the server sees it once, and then its SHA-1.
//!
//! Nothing here depends on the rest of the crate, so that `examples/scripts.rs` and the tests
//! assemble the same scripts.

use std::borrow::Cow;
use std::fmt;

macro_rules! files {
    ([$($file:literal)*] $($name:ident: $Policy:ident,)*) => {
        &[
            $(files!($file),)*
            $(files!(concat!("policies/", stringify!($name), ".lua")),)*
            $(files!(concat!("refunds/", stringify!($name), ".lua")),)*
        ]
    };
    ($file:expr) => {
        ($file, include_str!(concat!("../../../../lua/", $file)))
    };
}

/// Every Lua file, by its path in `lua/`. Those in `refunds/` and `shared/` are only included.
const FILES: &[(&str, &str)] = policies!(files! {
    "acquire.lua"
    "audit_read.lua"
    "audit_reconcile.lua"
    "available_permits.lua"
    "clear_expire.lua"
    "expire.lua"
    "hold.lua"
    "joint.lua"
    "multi_acquire.lua"
    "multi_check.lua"
    "reclaim.lua"
    "refund.lua"
    "release.lua"
    "set_rate.lua"
    "settle.lua"
    "shared/acquire_steps.lua"
    "shared/ahead.lua"
    "shared/fence.lua"
    "shared/finite.lua"
    "shared/flow.lua"
    "shared/free.lua"
    "shared/grant_runs.lua"
    "shared/held.lua"
    "shared/life.lua"
    "shared/limits.lua"
    "shared/lock.lua"
    "shared/one_target.lua"
    "shared/open_limiter.lua"
    "shared/policy.lua"
    "shared/publish_freed.lua"
    "shared/quota_fields.lua"
    "shared/refill.lua"
    "shared/return_grant.lua"
    "shared/shared_rate.lua"
    "shared/time.lua"
    "shared/token_fields.lua"
    "shared/until_back.lua"
    "shared/whole.lua"
    "shared/window.lua"
    "shared/write.lua"
    "try_set_rate.lua"
    "update_rate.lua"
});

/// The scripts that are sent, by their paths in `lua/`.
#[allow(dead_code, reason = "the library names each script where it is used")]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let names = FILES.iter().map(|(name, _)| *name);
    names.filter(|name| !name.starts_with("refunds/") && !name.starts_with("shared/"))
}

/// The names of the policies, each of which has a script.
fn policies() -> impl Iterator<Item = &'static str> {
    let scripts = names().filter_map(|name| name.strip_prefix("policies/"));
    scripts.filter_map(|file| file.strip_suffix(".lua"))
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
    /// What stands for each policy has no end.
    OpenEach,
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
            Problem::OpenEach => write!(f, "what is repeated for each policy has no end"),
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
        let lines = each_line(file, text)?;
        for (number, line) in &lines {
            let fail = |problem| Err(problem_at(file, *number, problem));
            let is_wanted = wanted.is_none() || part == wanted;
            let Some(directive) = line.trim_start().strip_prefix("--!") else {
                if line.contains("--!") {
                    return fail(Problem::Malformed(line.clone().into_owned()));
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
                _ => return fail(Problem::Malformed(line.clone().into_owned())),
            }
        }
        self.open.pop();
        let lines = text.lines().count();
        match part {
            Some(part) => Err(problem_at(file, lines, Problem::OpenPart(part.to_owned()))),
            None => Ok(is_found),
        }
    }
}

fn problem_at(file: &str, line: usize, problem: Problem) -> DirectiveError {
    DirectiveError {
        file: file.to_owned(),
        line,
        problem,
    }
}

/// The lines of a file, each with its number, where those that stand for each policy are repeated.
fn each_line<'a>(file: &str, text: &'a str) -> Result<Vec<(usize, Cow<'a, str>)>, DirectiveError> {
    let mut lines = (1..).zip(text.lines());
    let mut all = Vec::new();
    while let Some((number, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["--!", "each", "policy", word] = words[..] else {
            all.push((number, Cow::Borrowed(line)));
            continue;
        };
        let is_end = |line: &str| line.split_whitespace().eq(["--!", "end"]);
        let mut repeated = Vec::new();
        loop {
            match lines.next() {
                Some((_, line)) if is_end(line) => break,
                Some(line) => repeated.push(line),
                None => return Err(problem_at(file, number, Problem::OpenEach)),
            }
        }
        for name in policies() {
            let named = repeated.iter();
            all.extend(named.map(|(number, line)| (*number, line.replace(word, name).into())));
        }
    }
    Ok(all)
}
