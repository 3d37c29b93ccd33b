//! `serve --check` and `serve --try`: tries the rules of a file without a server and a store.

use std::fmt::Write;
use std::path::Path;
use std::slice;

use redisson_rate_limiter::{RedissonClient, Verdict};
use serde_json::{Value, json};

use super::http::read_part;
use super::rules::{RulesFile, Shown, ShownRule};
use crate::Error;

/// The result of trying the rules of a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tried {
    /// Whether the request is granted. True if only the rules were checked, without a request.
    pub is_granted: bool,
    /// The result as a text for people.
    pub text: String,
    /// The result as JSON for programs.
    pub json: Value,
}

/// Reads the rules, and lists them with warnings of what is probably not intended.
pub(super) fn check(path: &Path) -> Result<Tried, Error> {
    let client = RedissonClient::in_memory();
    let file = RulesFile::open(&client, path.to_owned()).map_err(Error::Usage)?;
    let shown = file.shown();
    let warnings = warnings(&shown);
    let mut text = format!("{}: {}", path.display(), number_of_rules(&shown));
    for rule in &shown.rules {
        line(&mut text, rule, &rule.applies(), rule.config.shadow);
    }
    for warning in &warnings {
        let _ = write!(text, "\nwarning: {warning}"); // writing to a String never fails
    }
    let names: Vec<&str> = shown.rules.iter().map(|it| &*it.config.name).collect();
    Ok(Tried {
        is_granted: true,
        text,
        json: json!({ "rules": names, "warnings": warnings }),
    })
}

/// Lists the rules that apply to a request, and says how they would decide it if nothing had been
/// used before.
pub(super) async fn decide(path: &Path, request: &str) -> Result<Tried, Error> {
    let part = read_part(request)
        .map_err(|error| Error::Usage(format!("the request of --try: {error}")))?;
    let client = RedissonClient::in_memory();
    let file = RulesFile::open(&client, path.to_owned()).map_err(Error::Usage)?;
    let verdict = file.rules.peek_all(slice::from_ref(&part)).await?;
    let shown = file.shown();
    let applying = shown.rules.iter().filter(|it| it.applies_to(&part));
    let (mut text, mut rules) = (String::new(), Vec::new());
    for rule in applying {
        let key = rule.label(&part);
        let is_shadow = rule.config.shadow || shown.is_shadow;
        line(&mut text, rule, &key, is_shadow);
        let name = &rule.config.name;
        rules.push(json!({ "name": name, "key": key, "cost": part.cost, "shadow": is_shadow }));
    }
    let (is_granted, said, by) = match &verdict {
        Verdict::Denied(joint) => {
            let name = joint.deciding().0;
            let said = format!("denied by {}", name.escape_debug());
            (false, said, Value::from(name))
        }
        _ if rules.is_empty() => (true, "granted: no rule applies".to_owned(), Value::Null),
        _ => (true, format!("granted, {} charged", part.cost), Value::Null),
    };
    let head = format!(
        "{}, of which {} apply",
        number_of_rules(&shown),
        rules.len()
    );
    let json = json!({ "granted": is_granted, "denied_by": by, "rules": rules });
    Ok(Tried {
        is_granted,
        text: format!("{head}{text}\n{said}"),
        json,
    })
}

/// The number of rules in words, such as `1 rule` or `2 rules`.
pub(super) fn number_of_rules(shown: &Shown) -> String {
    match shown.rules.len() {
        1 => "1 rule".to_owned(),
        number => format!("{number} rules"),
    }
}

fn line(text: &mut String, rule: &ShownRule, by: &str, is_shadow: bool) {
    let name = rule.config.name.escape_debug();
    let shadow = if is_shadow { " (shadow)" } else { "" };
    // Writing to a String never fails.
    let _ = write!(
        text,
        "\n  {name}{shadow}: {}: {}",
        by.escape_debug(),
        rule.limit()
    );
}

fn warnings(shown: &Shown) -> Vec<String> {
    let mut warnings = Vec::new();
    if shown.rules.is_empty() {
        warnings.push("there are no rules: every request is granted".to_owned());
    }
    if shown.is_shadow {
        warnings.push("`shadow` is true for the file: no request is denied".to_owned());
    }
    warnings
}
