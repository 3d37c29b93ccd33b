//! What `lua/shared/` says about names. An include is text, so it shares the names of the script
//! around it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::include::{assemble, read};

/// What Lua and Redis define.
const GIVEN: [&str; 15] = [
    "ARGV", "KEYS", "error", "ipairs", "math", "pairs", "pcall", "redis", "string", "struct",
    "table", "tonumber", "tostring", "type", "unpack",
];
const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// The names that a text uses without setting them, those that it leaves set, and those of the
/// first that it changes.
#[derive(Debug, PartialEq, Eq, Default)]
struct Names {
    uses: BTreeSet<String>,
    sets: BTreeSet<String>,
    changes: BTreeSet<String>,
}

#[test]
fn each_include_states_the_names_that_it_uses_sets_and_changes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua/shared");
    for entry in fs::read_dir(folder).unwrap() {
        let name = format!("shared/{}", entry.unwrap().file_name().display());
        let text = assemble(&name, read).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(stated(&read(&name).unwrap()), found(&text), "{name}");
    }
}

/// The names in backticks behind `-- Uses`, `-- Sets` and `-- Changes` in the header.
fn stated(text: &str) -> Names {
    let mut names = Names::default();
    let mut label = "";
    for line in text.lines().take_while(|line| line.starts_with("--")) {
        let (first, rest) = line.split_at(line.len().min("-- Changes ".len()));
        if first.trim_end() != "--" || rest.is_empty() {
            label = first.trim_end();
        }
        let list = match label {
            "-- Uses" => &mut names.uses,
            "-- Sets" => &mut names.sets,
            "-- Changes" => &mut names.changes,
            _ => continue,
        };
        let quoted = rest.split('`').skip(1).step_by(2);
        list.extend(quoted.map(str::to_owned));
    }
    names
}

/// What the code does.
fn found(text: &str) -> Names {
    let tokens = tokens(text);
    let at = |place: usize| tokens.get(place).map_or("", String::as_str);
    let (mut uses, mut changes) = (BTreeSet::new(), BTreeSet::new());
    // The names that each open block has set, from the outermost on.
    let mut blocks = vec![BTreeSet::new()];
    let mut repeated = BTreeSet::new(); // of the block before an `until`, which sees them
    let (mut braces, mut loop_heads) = (0, 0);
    for place in 0..tokens.len() {
        let token = at(place);
        match token {
            "do" if loop_heads > 0 => loop_heads -= 1,
            "for" | "while" => {
                loop_heads += 1;
                blocks.push(BTreeSet::new());
            }
            "function" | "if" | "do" | "repeat" => blocks.push(BTreeSet::new()),
            "end" => drop(blocks.pop()),
            "until" => repeated = blocks.pop().unwrap_or_default(),
            "local" | "return" => repeated.clear(),
            "{" => braces += 1,
            "}" => braces -= 1,
            _ => {}
        }
        let first = match (token, at(place + 1)) {
            ("local", "function") | ("function", "(") => Some(place + 2),
            ("local" | "for", _) => Some(place + 1),
            ("function", _) => Some(place + 3), // behind its own name
            _ => None,
        };
        let set = first
            .into_iter()
            .flat_map(|first| names_from(&tokens, first));
        blocks.last_mut().unwrap().extend(set.cloned());

        let is_name = is_name(token) && !KEYWORDS.contains(&token) && !GIVEN.contains(&token);
        let is_field = place > 0 && matches!(at(place - 1), "." | ":");
        let is_entry = braces > 0 && at(place + 1) == "=";
        let mut visible = blocks.iter().chain([&repeated]);
        let is_set = visible.any(|names| names.contains(token));
        if is_name && !is_field && !is_entry && !is_set {
            uses.insert(token.to_owned());
            // The first name behind those that commas separate.
            let behind = place + 2 * names_from(&tokens, place).count() - 1;
            if at(behind) == "=" {
                changes.insert(token.to_owned());
            }
        }
    }
    assert_eq!(blocks.len(), 1, "all blocks have ended");
    let last = text.lines().last();
    if last.is_some_and(|line| line.starts_with("return ")) {
        blocks.clear(); // nothing follows
    }
    let sets = blocks.pop().unwrap_or_default();
    Names {
        uses,
        sets,
        changes,
    }
}

/// The names from there on that commas separate.
fn names_from(tokens: &[String], first: usize) -> impl Iterator<Item = &String> {
    let names = tokens[first..].iter().step_by(2);
    let commas = tokens[first..].iter().skip(1).step_by(2);
    let mut goes_on = true;
    names.zip(commas).map_while(move |(name, comma)| {
        let is_listed = goes_on && is_name(name);
        goes_on = comma == ",";
        is_listed.then_some(name)
    })
}

fn is_name(token: &str) -> bool {
    token.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
}

/// The words and signs of Lua code, without comments and texts.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for line in text.lines() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            if rest.starts_with("--") {
                break;
            }
            let length = if first == '\'' {
                let end = rest[1..].find('\'');
                end.unwrap_or_else(|| panic!("an open text: {line}")) + 2
            } else if first.is_ascii_alphanumeric() || first == '_' {
                let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
                end.unwrap_or(rest.len())
            } else if ["==", "~=", "<=", ">=", ".."]
                .iter()
                .any(|sign| rest.starts_with(sign))
            {
                2
            } else {
                1
            };
            let (token, behind) = rest.split_at(length);
            if first != '\'' {
                tokens.push(token.to_owned());
            } else {
                tokens.push("''".to_owned());
            }
            rest = behind.trim_start();
        }
    }
    tokens
}
