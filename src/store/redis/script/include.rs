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

/// Assembles a script from the files that `read` returns. An error says which line cannot be
/// followed.
pub(crate) fn assemble(
    name: &str,
    read: impl Fn(&str) -> Option<Cow<'static, str>>,
) -> Result<String, String> {
    let text = read(name).ok_or_else(|| unknown_file(name, 0, name))?;
    let mut assembly = Assembly {
        read: &read,
        open: Vec::new(),
        script: String::new(),
    };
    assembly.include(name, &text, None)?;
    Ok(assembly.script)
}

struct Assembly<'a, Read> {
    read: &'a Read,
    /// The files that are being included.
    open: Vec<String>,
    script: String,
}

impl<Read: Fn(&str) -> Option<Cow<'static, str>>> Assembly<'_, Read> {
    /// Adds the text of a file, or of one part of it. `false` where it has no such part.
    fn include(&mut self, file: &str, text: &str, wanted: Option<&str>) -> Result<bool, String> {
        self.open.push(file.to_owned());
        let mut part: Option<&str> = None;
        let mut is_found = wanted.is_none();
        let lines = each_line(file, text)?;
        for (number, line) in &lines {
            let fail = |problem: String| Err(problem_at(file, *number, &problem));
            let malformed = || fail(format!("this is no directive: {line}"));
            let is_wanted = wanted.is_none() || part == wanted;
            let Some(directive) = line.trim_start().strip_prefix("--!") else {
                if line.contains("--!") {
                    return malformed();
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
                        return fail(format!("lua/{included} includes itself"));
                    }
                    let Some(text) = (self.read)(included) else {
                        return Err(unknown_file(file, *number, included));
                    };
                    let wanted = rest.first().copied();
                    if !self.include(included, &text, wanted)? {
                        let part = wanted.unwrap_or_default();
                        return fail(format!("the included file has no part {part}"));
                    }
                }
                _ => return malformed(),
            }
        }
        self.open.pop();
        let lines = text.lines().count();
        match part {
            Some(part) => Err(problem_at(file, lines, &format!("part {part} has no end"))),
            None => Ok(is_found),
        }
    }
}

fn unknown_file(file: &str, line: usize, included: &str) -> String {
    problem_at(file, line, &format!("there is no file lua/{included}"))
}

fn problem_at(file: &str, line: usize, problem: &str) -> String {
    format!("lua/{file}:{line}: {problem}")
}

/// The lines of a file, each with its number, where those that stand for each policy are repeated.
fn each_line<'a>(file: &str, text: &'a str) -> Result<Vec<(usize, Cow<'a, str>)>, String> {
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
                None => {
                    let problem = "what is repeated for each policy has no end";
                    return Err(problem_at(file, number, problem));
                }
            }
        }
        for name in policies() {
            let named = repeated.iter();
            all.extend(named.map(|(number, line)| (*number, line.replace(word, name).into())));
        }
    }
    Ok(all)
}
