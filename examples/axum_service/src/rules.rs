//! The rules, as the file has them.

use std::path::Path;

use axum::http::request::Parts;
use redisson_rate_limiter::{RedissonClient, Rule, RulesConfig};
use redisson_rate_limiter_tower::key::{ClientAddress, Header, by};

use crate::Failure;

type Target = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// What a file says.
pub(crate) struct Read {
    pub(crate) rules: Vec<Rule<Parts, ()>>,
    /// Whether all of them are in shadow mode.
    pub(crate) is_shadow: bool,
}

pub(crate) fn read(client: &RedissonClient, file: &Path) -> Result<Read, Failure> {
    let config: RulesConfig = toml::from_str(&std::fs::read_to_string(file)?)?;
    let rules = config.rules.iter().map(|rule| {
        let target = target(&rule.key).ok_or(format!("{}: no key `{}`", rule.name, rule.key))?;
        Ok(client.rule(rule, target, |_, _| ())?)
    });
    Ok(Read {
        rules: rules.collect::<Result<_, Failure>>()?,
        is_shadow: config.shadow,
    })
}

/// Whom a request counts for, by the name that the file has for it.
fn target(key: &str) -> Option<Target> {
    Some(match key {
        // Here a header, to try it out. Take the user that your authentication has found.
        "user" => Box::new(by(Header::new("x-user"))),
        "address" => Box::new(by(ClientAddress::peer())),
        "all" => Box::new(|_| Some("all".to_owned())),
        _ => return None,
    })
}
